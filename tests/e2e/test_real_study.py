"""The main job on real vLLM for CPUs: a study within its budget, its failures named, its winner served."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import optuna
import psutil
import pytest

from autotune.wiring.open import open_store

ROOT = Path(__file__).parent.parent.parent
BUDGET_S = 280

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(2 * BUDGET_S)]


def _autotune(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "autotune", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def _servers(folder: Path) -> list[psutil.Process]:
    """Processes that have a file below `folder` open: their logs are there."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(file.path.startswith(str(folder)) for file in process.open_files()):
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the quickstart study of a tiny model has been run."""
    folder = tmp_path_factory.mktemp("real")
    subprocess.run([sys.executable, ROOT / "tools" / "make_tiny_model.py", folder / "model"], check=True)
    begun_s = time.monotonic()
    done = _autotune(folder, "run", "model", "--study", "quickstart", "--budget", f"{BUDGET_S}s")
    took_s = time.monotonic() - begun_s
    assert done.returncode == 0, done.stderr
    assert took_s <= BUDGET_S, f"the budget is a promise, and {took_s:.0f} s were taken"
    assert _servers(folder) == []
    return folder


def _trials(folder: Path) -> list[dict[str, object]]:
    trials: list[dict[str, object]] = json.loads(_autotune(folder, "show", "--json").stdout)["trials"]
    return trials


def test_trials_are_finished_and_a_real_failure_among_them_is_named(folder: Path) -> None:
    trials = _trials(folder)
    finished = [t for t in trials if t["state"] in ("measured", "failed")]
    assert len(finished) >= 4
    assert finished[0]["state"] == "measured", "vLLM's defaults do not work here"
    failures = [t["failure"] for t in trials if t["failure"]]
    assert failures, "this seed's first trials include one with too small a KV cache"
    for failure in failures:
        assert isinstance(failure, dict)
        assert failure["kind"] == "kv_cache_too_small"
        assert failure["blame"] == "configuration"
        assert "larger than the available KV cache memory" in failure["root_line"]
    last_failure = max(i for i, t in enumerate(trials) if t["failure"])
    assert any(t["state"] == "measured" for t in trials[last_failure + 1 :]), "the study went on"


def test_the_bound_that_the_log_gives_is_kept_to(folder: Path) -> None:
    trials = _trials(folder)
    failed = next(trial for trial in trials if trial["failure"])
    failure = failed["failure"]
    assert isinstance(failure, dict)
    longest = failure["numbers"]["estimated_len"]
    assert 0 < longest < 2048, "the length that the log says would fit"
    assert f"max_model_len at most {longest:.0f}" in failure["cure"]
    with open_store(str(folder / "studies/quickstart.db")) as store:
        lesson = next(lesson for lesson in store.lessons.all() if lesson.trial == failed["number"])
    given = {"max_model_len": 2048, "kv_cache_memory_bytes": 2097152}
    assert lesson.finding.rejects(given)
    assert not lesson.finding.rejects({**given, "max_model_len": longest})
    assert not lesson.finding.rejects({**given, "kv_cache_memory_bytes": 33554432})
    later = [t["parameters"] for t in trials if t["number"] > failed["number"]]  # type: ignore[operator]
    assert later
    assert not any("2097152" in str(parameters) for parameters in later)


def test_the_failure_is_explained_from_its_log_alone(folder: Path) -> None:
    failed = next(trial for trial in _trials(folder) if trial["failure"])
    done = _autotune(folder, "explain", str(failed["log_path"]), "--json")
    assert done.returncode == 0
    said, kept = json.loads(done.stdout), failed["failure"]
    assert isinstance(kept, dict)
    assert said == {key: kept[key] for key in said}


def test_optuna_has_the_same_trials(folder: Path) -> None:
    trials = _trials(folder)
    stored = optuna.load_study(
        study_name="quickstart", storage=f"sqlite:///{folder}/studies/quickstart.db"
    ).trials
    assert [t.params for t in stored] == [t["parameters"] for t in trials]
    assert [
        dict(zip(("out_tok_s@8", "out_tok_s@1"), t.values, strict=True)) if t.values else None for t in stored
    ] == [t["values"] for t in trials]


@pytest.fixture
def launched(folder: Path) -> Iterator[httpx.Client]:
    """The winner's server, started by its launch file."""
    best = _autotune(folder, "best", "--export", "launch.sh")
    assert best.returncode == 0, best.stderr
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {**os.environ, "PORT": str(port)}
    with (folder / "launched.log").open("w") as log:
        server = subprocess.Popen(
            [folder / "launch.sh"], env=env, cwd="/", stdout=log, stderr=log, start_new_session=True
        )
    # Retries wait 0, 0.5, 1, 2, ... s: 9 of them are 127 s, several times a start.
    transport = httpx.HTTPTransport(retries=9)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", transport=transport, trust_env=False) as client:
        yield client
    server.terminate()
    server.wait()


def test_the_launch_file_starts_a_server_that_answers(folder: Path, launched: httpx.Client) -> None:
    body = {"model": str(folder / "model"), "prompt": "def main():", "max_tokens": 8, "ignore_eos": True}
    answer = launched.post("/v1/completions", json=body, timeout=60).json()
    assert answer["usage"]["completion_tokens"] == 8
