"""`autotune explain`: any log, from a file, a pipe or a trial; and the block it shares with `show`."""

import gzip
import io
import json
import math
import signal
import subprocess
import sys
import tracemalloc
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from builders import BEGIN, environment, failure, measured, record, spec
from failures.failure_logs import LOGS, Labelled, labelled
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner, Result

from autotune.cli import app
from autotune.domain.effective import Difference, DifferenceKind, Effective
from autotune.domain.expression import Expression
from autotune.domain.failure import Failure, FailureKind
from autotune.domain.lesson import Finding, Lesson, LessonForm, Scope
from autotune.domain.space import SearchSpace
from autotune.domain.trial import Failed, Interrupted, Interruption, Outcome, TrialRecord
from autotune.errors import FileError
from autotune.files.logs import MAX_LINE_BYTES, stream_lines
from autotune.report.failure import FailureBlock
from autotune.store.connection import open_engine
from autotune.store.evidence import EvidenceStore

KEYS = ["kind", "phase", "blame", "rule", "root_line", "line_number", "numbers"]
MORE_KEYS = ["cure", "confidence", "why", "process", "source"]
KV_LOG = LOGS / "cpu-0.32/f02-kv-too-small.log"
HEALTHY_LOG = LOGS / "cpu-0.32/a1-llama-eager.log"
RUNNER = CliRunner()


def explain(*words: str | Path, stdin: bytes = b"") -> Result:
    return RUNNER.invoke(app, ["explain", *map(str, words)], input=stdin)


@pytest.mark.parametrize("log", labelled(), ids=str)
def test_every_recorded_log_is_explained_as_it_is_labelled(log: Labelled) -> None:
    done = explain(LOGS / log.name, "--json")
    said = json.loads(done.stdout)
    assert list(said) == KEYS + MORE_KEYS
    if log.fails:
        assert done.exit_code == 0
        assert (said["kind"], said["phase"], said["blame"]) == (log.kind, log.phase, log.blame)
        assert said["line_number"] == log.line
        assert said["root_line"].startswith(log.root)
    else:
        assert done.exit_code == 1
        assert said.pop("numbers") == {}
        assert set(said.values()) == {None}


def test_a_person_reads_what_why_what_to_do_where_and_how_sure() -> None:
    done = explain(KV_LOG)
    assert done.exit_code == 0
    labels = [line[:15].strip() for line in done.stdout.splitlines() if line[:1].strip()]
    first = ["Failure", "Why", "What to do", "Root cause", "Numbers", "Stack", "How sure", "Source"]
    assert labels == [*first, "Log"]
    assert "max_model_len at most 3968" in done.stdout
    assert "(line 78 of the log, EngineCore)" in done.stdout
    assert "_check_enough_kv_cache_memory (v1/core/kv_cache_utils.py:1030)" in done.stdout
    assert "https://github.com/vllm-project/vllm/issues/29233" in done.stdout


def test_standard_input_says_the_same_as_the_file() -> None:
    assert explain("-", "--json", stdin=KV_LOG.read_bytes()).stdout == explain(KV_LOG, "--json").stdout


def test_carriers_and_broken_bytes_are_no_obstacle() -> None:
    lines = KV_LOG.read_bytes().splitlines()
    carried = b"".join(b"vllm-1  | \x1b[31m" + line + b"\x1b[0m \xff\xfe\r\n" for line in lines)
    done = explain("-", stdin=carried)
    assert "kv_cache_too_small at kv_cache" in done.stdout
    assert "\x1b" not in done.stdout


def test_an_error_that_no_rule_knows_is_shown_and_has_its_own_exit_code(tmp_path: Path) -> None:
    log = tmp_path / "new.log"
    log.write_text(
        "(EngineCore pid=7) ERROR 01-02 10:00:00 [core.py:9] EngineCore failed to start.\n"
        "(EngineCore pid=7) ERROR 01-02 10:00:00 [core.py:9] Traceback (most recent call last):\n"
        '(EngineCore pid=7) ERROR 01-02 10:00:00 [core.py:9]   File "/x/vllm/v1/new.py", line 3, in frob\n'
        "(EngineCore pid=7) ERROR 01-02 10:00:00 [core.py:9] FrobError: [red]the frob is out of joint\n"
    )
    done = explain(log)
    assert done.exit_code == 3
    assert "FrobError: [red]the frob is out of joint" in done.stdout
    assert "frob (v1/new.py:3)" in done.stdout
    assert json.loads(explain(log, "--json").stdout)["kind"] == "unknown"


def test_a_log_without_a_failure_says_how_far_the_server_came() -> None:
    served = explain(HEALTHY_LOG)
    assert served.exit_code == 1
    assert "became ready and answered requests" in " ".join(served.stdout.split())
    cut = explain("-", stdin=b"".join(HEALTHY_LOG.read_bytes().splitlines(keepends=True)[:45]))
    assert cut.exit_code == 1
    assert "while the server was starting" in cut.stdout
    assert "the log is empty" in explain("-").stdout
    assert "looks like a log of vLLM" in explain("-", stdin=b"make: *** [all] Fehler 1\n").stdout


def test_what_had_no_effect_is_told_beside_the_verdict() -> None:
    said = " ".join(explain(LOGS / "h200-0.26/v4_offload8.log").stdout.split())
    assert "cpu_offload_gb = 8 had no effect" in said


def test_a_log_of_several_starts_says_which_one_it_tells_of() -> None:
    both = explain("-", stdin=HEALTHY_LOG.read_bytes() + KV_LOG.read_bytes()).stdout
    assert "kv_cache_too_small at kv_cache" in both
    assert both.splitlines()[-1].endswith("vLLM 0.32.0; start 2 of the 2 in it")


def _gzip(path: Path) -> None:
    path.write_bytes(gzip.compress(b"x"))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: None, "there is no such file"),
        (Path.mkdir, "cannot be read: Is a directory"),
        (_gzip, "zcat"),
        (lambda path: path.write_text("x", encoding="utf-16"), "iconv -f utf-16"),
        (lambda path: path.write_bytes(b"\x7fELF\x02\x01\x01\0\0\0"), "is no text"),
    ],
)
def test_what_is_no_log_is_one_sentence(make: Callable[[Path], object], said: str, tmp_path: Path) -> None:
    path = tmp_path / "some.log"
    make(path)
    done = explain(path)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_log_that_begins_with_a_hole_is_read() -> None:
    assert explain("-", "--json", stdin=b"\0" * 4096 + b"\n" + KV_LOG.read_bytes()).exit_code == 0


class _Endless(io.RawIOBase):
    """100 MB of one line, then a short one."""

    def __init__(self) -> None:
        self.left = 100_000_000

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if self.left <= 0:
            text = b"\nlast\n" if self.left == 0 else b""
            self.left = -1
        else:
            text = b"a" * min(len(buffer), self.left)
            self.left -= len(text)
        buffer[: len(text)] = text
        return len(text)


def test_a_line_without_end_takes_little_memory() -> None:
    tracemalloc.start()
    try:
        lines = [line[:8] for line in stream_lines(io.BufferedReader(_Endless()), "x")]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert lines == ["aaaaaaaa", "last"]
    assert peak < 20 * MAX_LINE_BYTES


@given(st.binary(max_size=300), st.integers(1, 50))
def test_lines_are_those_between_line_feeds(content: bytes, copies: int) -> None:
    text = b"x" + content.replace(b"\0", b"") * copies
    try:
        lines = list(stream_lines(io.BytesIO(text), "x"))
    except FileError:
        pytest.fail("a text that begins with a letter is text")
    assert "\n".join(lines) == text.decode(errors="replace").removesuffix("\n")


def test_ctrl_c_ends_it_while_the_pipe_is_open() -> None:
    words = [sys.executable, "-m", "autotune", "explain", "-"]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        # More than a pipe and a buffer hold: when all of it is written, most of it has been read.
        process.stdin.write(KV_LOG.read_bytes() * (1 + 2_000_000 // KV_LOG.stat().st_size))
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr is not None
        assert process.stderr.read() == b"autotune: stopped\n"


@pytest.fixture
def study(tmp_path: Path) -> EvidenceStore:
    """A study whose trials a test adds; the commands find it with `--db`."""
    store = EvidenceStore(open_engine(f"sqlite:///{tmp_path}/s.db", create=True))
    store.create(spec(SearchSpace(name="s", parameters=())), {"name": "s"}, environment(), BEGIN)
    store.begin_run(600.0, BEGIN)
    return store


def _keep(store: EvidenceStore, number: int, outcome: Outcome, log: Path | None) -> TrialRecord:
    kept = replace(record(number, None), log_path=str(log) if log else None)
    store.begin(kept, None)
    store.finish(number, outcome, {}, BEGIN)
    return kept


def test_a_trial_is_explained_by_what_was_kept_and_by_its_log(study: EvidenceStore, tmp_path: Path) -> None:
    db = ("--db", str(tmp_path / "s.db"))
    by_signal = failure(kind=FailureKind.HOST_OOM, why="killed from outside", confidence=0.5)
    unknown = failure(kind=FailureKind.UNKNOWN, rule=None, why="no rule knows this error")
    for number, (outcome, log) in enumerate(
        [
            (measured(s1=1.0), HEALTHY_LOG),
            (Failed(failure=by_signal), HEALTHY_LOG),
            (Failed(failure=unknown), KV_LOG),
            (Failed(failure=by_signal), tmp_path / "removed.log"),
            (Interrupted(reason=Interruption.USER), tmp_path / "removed.log"),
            (Failed(failure=by_signal), None),
            (Interrupted(reason=Interruption.KILLED), None),
        ]
    ):
        _keep(study, number, outcome, log)
    assert [explain(str(n), *db).exit_code for n in range(8)] == [1, 0, 0, 0, 2, 0, 2, 2]
    assert "killed from outside" in explain("1", *db).stdout, "the log alone shows no failure"
    assert "kv_cache_too_small" in explain("2", *db).stdout, "today's rules know it"
    assert "there is no such file; shown is what was kept" in explain("3", *db).stderr
    assert "killed from outside" in explain("3", *db).stdout
    assert "never launched" in explain("6", *db).stderr
    assert "there is no trial 7; the study has 7" in explain("7", *db).stderr
    assert json.loads(explain("5", *db, "--json").stdout)["confidence"] == 0.5


def _screen_rows(text: str, width: int) -> int:
    return sum(max(1, math.ceil(len(line) / width)) for line in text.splitlines())


def _lesson(trial: int) -> Lesson:
    both = Expression.parse('enable_prefix_caching == true and speculative_config__model == "/models/draft"')
    return Lesson(
        number=1,
        finding=Finding(form=LessonForm.NO_GOOD, forbids=both),
        why="",
        kind=FailureKind.INCOMPATIBLE,
        trial=trial,
        study="tiny",
        scope=Scope(vllm_version="0.32.0", model="m", architecture="a", device="cpu"),
    )


def test_show_fits_one_screen_however_much_there_is_to_say(
    study: EvidenceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "a sentence that goes on and on, and [bold]says[/bold] things; " * 40
    full = failure(
        why=long,
        cure=long,
        root_line="\x1b[31mValueError\x07: " + "x" * 4000,
        line_number=123456,
        process="Worker_PP0_TP1_DCP0_EP0",
        numbers={f"number_{n}": n + 0.123456 for n in range(40)},
        rule="some-rule",
        source="vllm#12345, other/repo#6; vllm v1/some/file.py:12; " * 9,
        frames=tuple(f"function_{n} ({'directory/' * 20}file.py:{n})" for n in range(9)),
        confidence=0.8,
    )
    drafts = json.dumps({"method": "dflash", "model": "/models/draft", "num_speculative_tokens": 8})
    kept = replace(
        record(0, None, {"max_num_seqs": 8, "enable_prefix_caching": True, "speculation": "dflash"}),
        argv=("/opt/vllm/bin/vllm", "serve", "/models/tiny", *["--some-flag", "123"] * 12, drafts),
    )
    study.begin(kept, None)
    changed = [
        Difference(
            setting=f"setting_{n}", requested=1, effective=2, kind=DifferenceKind.CHANGED, sentence=long
        )
        for n in range(9)
    ]
    study.set_effective(0, Effective(facts={"kv_cache_tokens": 9947.0}, differences=tuple(changed)))
    study.finish(0, Failed(failure=full), {}, BEGIN)
    study.lessons.add(_lesson(0))
    monkeypatch.setenv("COLUMNS", "80")
    done = RUNNER.invoke(app, ["show", "0", "--db", str(tmp_path / "s.db")])
    assert done.exit_code == 0, done.output
    assert _screen_rows(done.stdout, 80) <= 40
    assert "\x1b" not in done.stdout
    assert "[bold]says" in done.stdout
    assert "lesson 1, never again" in done.stdout
    assert "setting_0" in done.stdout
    assert "function_8" in done.stdout
    assert "function_6" not in done.stdout, "of that many rows the outer functions are the least"
    assert "https://github.com/vllm-project/vllm/issues/12345" in done.stdout
    assert "https://github.com/other/repo/issues/6" in done.stdout


_TEXT = st.text(max_size=600)


@given(
    st.builds(
        Failure,
        kind=st.sampled_from(FailureKind),
        phase=st.just(failure().phase),
        blame=st.just(failure().blame),
        why=_TEXT,
        cure=_TEXT,
        root_line=st.none() | _TEXT,
        line_number=st.none() | st.integers(1),
        process=st.none() | _TEXT,
        numbers=st.dictionaries(_TEXT, st.floats(allow_nan=False, allow_infinity=False) | _TEXT, max_size=3),
        rule=st.none() | st.just("rule"),
        source=st.none() | _TEXT,
        confidence=st.floats(0, 1),
        frames=st.lists(_TEXT, max_size=9).map(tuple),
    )
)
def test_no_failure_takes_more_room_or_steers_the_terminal(some: Failure) -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=False)
    console.print(FailureBlock(some))
    assert isinstance(console.file, io.StringIO)
    rows = console.file.getvalue().split("\n")
    assert len(rows) <= 22  # the last one is empty
    for row in rows:
        assert not [c for c in row if unicodedata.category(c) in ("Cc", "Cf")], row
