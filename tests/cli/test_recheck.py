"""`autotune recheck` on a study whose failures another (fake) vLLM has partly cured."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from builders import BEGIN, environment, failed, failure, measured, record, spec

from autotune.domain.failure import FailureKind, Phase
from autotune.domain.recheck import Verdict
from autotune.domain.space import IntDomain, Parameter, SearchSpace, Target, TargetKind
from autotune.domain.trial import Failed, Outcome, Step
from autotune.domain.workload import Lengths, Workload
from autotune.files.space_document import space_document
from autotune.store.connection import open_engine
from autotune.store.evidence import EvidenceStore
from autotune.store.rechecks import RecheckStore

FAKE_VLLM = Path(__file__).parent.parent / "fakes" / "vllm"
SPACE = SearchSpace(
    name="seqs",
    parameters=(
        Parameter(
            name="max_num_seqs",
            domain=IntDomain(low=1, high=99),
            target=Target(kind=TargetKind.FLAG, name="--max-num-seqs"),
        ),
    ),
)
WORKLOAD = Workload(
    prompt_tokens=Lengths.fixed(16),
    output_tokens=Lengths.fixed(8),
    streams=(1, 2),
    prompts=4,
    min_window_s=0.2,
    max_window_s=0.4,
)
# How the fake ends that dies at its first request.
SYNTHETIC = Failed(
    failure=failure(
        kind=FailureKind.UNSUPPORTED, phase=Phase.FIRST_REQUEST, rule="synthetic-acceptance-on-cpu"
    )
)
UNKNOWN = Failed(failure=failure(kind=FailureKind.UNKNOWN, root_line="FrobError: at 0x7f00"))
BAD_FLAG = Failed(failure=failure(kind=FailureKind.BAD_FLAG, phase=Phase.ARGS, rule="flag-unknown"))
TRIALS: Sequence[tuple[int, Outcome]] = [
    (99, measured(s1=1.0, s2=2.0)),
    (2, SYNTHETIC),
    (3, SYNTHETIC),
    (4, UNKNOWN),
    (5, failed()),
    (6, BAD_FLAG),
    (2, SYNTHETIC),
]
RUN_ORDER = [6, 3, 5, 2]
"""Of trials: one of each failure first, each configuration once, no memory that was too small."""


class Folder:
    """A study with these trials, and the command beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}/s.db"
        store = EvidenceStore(open_engine(self.url, create=True))
        site = environment()
        site = replace(site, vllm=replace(site.vllm, command=(str(FAKE_VLLM),), version="0.31.0"))
        store.create(spec(SPACE, workload=WORKLOAD), space_document(SPACE), site, BEGIN)
        store.begin_run(600.0, BEGIN)
        for number, (seqs, outcome) in enumerate(TRIALS):
            store.begin(record(number, None, {"max_num_seqs": seqs}), None)
            store.finish(number, outcome, {Step.LAUNCH: 0.1}, BEGIN)
        self.store = store
        self.rechecks = RecheckStore(open_engine(self.url, create=False))

    def words(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "autotune", "recheck", "--db", str(self.path / "s.db"), *words]

    def env(self, scenarios: dict[int, str]) -> dict[str, str]:
        rules = [{"if": {"max_num_seqs": seqs}, "scenario": name} for seqs, name in scenarios.items()]
        return {
            **os.environ,
            "COLUMNS": "100",
            "FAKE_VLLM_PYTHON": sys.executable,
            "FAKE_VLLM_RULES": json.dumps(rules),
            "XDG_CACHE_HOME": str(self.path / "cache"),
        }

    def call(self, *words: str, **scenarios: str) -> subprocess.CompletedProcess[str]:
        env = self.env({int(name.removeprefix("seqs_")): value for name, value in scenarios.items()})
        return subprocess.run(
            self.words(*words), env=env, cwd=self.path, capture_output=True, text=True, timeout=100
        )

    def servers(self) -> list[psutil.Process]:
        """Processes that write into a log of this study."""
        found = []
        for process in psutil.process_iter():
            try:
                if any(file.path.startswith(str(self.path / "s.logs")) for file in process.open_files()):
                    found.append(process)
            except psutil.Error:
                continue
        return found


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_each_failure_is_told_as_cured_or_not_and_the_study_stays_as_it_was(folder: Folder) -> None:
    before = folder.store.records()
    done = folder.call("--json", seqs_2="dies_at_first_request", seqs_4="kv_too_small")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert [r["trial"] for r in said["rechecks"]] == RUN_ORDER
    verdicts = {r["trial"]: (r["verdict"], r["fixed_in"]) for r in said["rechecks"]}
    assert verdicts == {
        6: ("still_fails", None),
        3: ("fails_otherwise", None),
        5: ("works", "0.32.0"),
        2: ("works", "0.32.0"),
    }
    otherwise = said["rechecks"][1]
    assert otherwise["failure"]["kind"] == "kv_cache_too_small"
    assert otherwise["before"]["root_line"] == "FrobError: at 0x7f00"
    assert "EngineCore" in Path(otherwise["log_path"]).read_text()
    assert (said["study_vllm_version"], said["vllm_version"], said["left"]) == ("0.31.0", "0.32.0", [])

    assert folder.store.records() == before
    kept = folder.rechecks.finished()
    assert [r.trial_number for r in kept] == RUN_ORDER
    assert kept[0].verdict is Verdict.STILL_FAILS
    assert folder.servers() == []


def test_a_person_reads_one_line_for_each_and_the_sum(folder: Folder) -> None:
    done = folder.call(seqs_2="dies_at_first_request", seqs_4="kv_too_small")
    assert done.returncode == 0, done.stderr
    for said in (
        "trial   6  still fails in the same way",
        "trial   3  fails, but otherwise than before",
        "now: kv_cache_too_small at kv_cache: ",
        "trial   5  works now: fixed in 0.32.0",
        "was: bad_flag at args: one request does not fit",
        "max_num_seqs=6",
        "2 of 4 failed configurations work now with vLLM 0.32.0",
    ):
        assert said in done.stdout


def test_without_time_all_is_left_and_nothing_is_launched(folder: Folder) -> None:
    done = folder.call("--json", "--budget", "2s")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["left"] == RUN_ORDER
    assert not (folder.path / "s.logs").exists()


def _wait_for_server(folder: Folder) -> None:
    deadline_s = time.monotonic() + 60
    while not folder.servers():
        assert time.monotonic() < deadline_s, "no server was started"


def _never_ready(folder: Folder) -> subprocess.Popen[str]:
    """A recheck whose first server is starting, and will not become ready."""
    running = subprocess.Popen(
        folder.words(), env=folder.env({2: "never_ready"}), cwd=folder.path, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    _wait_for_server(folder)
    return running


def test_ctrl_c_ends_the_server_and_decides_nothing(folder: Folder) -> None:
    with _never_ready(folder) as running:
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    assert "Traceback" not in err
    assert "0 of 0 failed configurations work now" in out
    assert folder.servers() == []
    assert [(r.trial_number, r.verdict) for r in folder.rechecks.finished()] == [(6, Verdict.UNDECIDED)]


def test_the_server_of_a_killed_recheck_is_ended_by_the_next(folder: Folder) -> None:
    with _never_ready(folder) as running:
        running.kill()
    assert folder.servers() != []
    done = folder.call()
    assert done.returncode == 0, done.stderr
    assert "that a killed recheck had left" in " ".join(done.stderr.split())
    assert "4 of 4 failed configurations work now" in done.stdout
    assert folder.servers() == []
    assert folder.rechecks.unfinished() == []


def test_it_waits_for_no_study_that_runs(folder: Folder) -> None:
    with (folder.path / "s.db.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder.call()
    assert done.returncode == 3
    assert "another autotune is running this study" in done.stderr


def test_nothing_to_do_is_said(tmp_path: Path) -> None:
    store = EvidenceStore(open_engine(f"sqlite:///{tmp_path}/s.db", create=True))
    store.create(spec(SPACE), space_document(SPACE), environment(), BEGIN)
    store.begin_run(600.0, BEGIN)
    store.begin(record(0, None), None)
    store.finish(0, failed(), {}, BEGIN)
    words = [sys.executable, "-m", "autotune", "recheck", "--db", str(tmp_path / "s.db")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "No trial of this study failed for a reason that another vLLM could cure." in done.stdout
