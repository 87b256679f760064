"""`autotune report`: what it writes where, and how it follows a study that goes on."""

import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from builders import BEGIN
from studies_made import StudyMaker

from autotune.store.connection import open_engine
from autotune.store.evidence import EvidenceStore


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return StudyMaker(path=tmp_path / "night.db", trials=4, blocks=0).write()


def report(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    call = [sys.executable, "-m", "autotune", "report", *words]
    return subprocess.run(call, cwd=folder, capture_output=True, text=True, timeout=60)


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_it_writes_one_file_and_leaves_the_study_as_it_is(study: Path) -> None:
    before = _content(study)
    done = report(study.parent, "--db", "night.db", "--out", "it's.html")
    assert done.returncode == 0, done.stderr
    written = study.parent / "it's.html"
    assert str(written) in done.stdout
    assert "<!DOCTYPE html>" in written.read_text(encoding="utf-8")
    assert _content(study) == before
    assert not any(path.name.startswith(".it's") for path in study.parent.iterdir())


def _content(study: Path) -> list[str]:
    with closing(sqlite3.connect(study)) as connection:
        return list(connection.iterdump())


def test_it_takes_the_latest_study_when_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "studies").mkdir()
    StudyMaker(path=tmp_path / "studies" / "last.db", trials=1, blocks=0).write()
    done = report(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Study last" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--db", "night.db", "--out", "nowhere/report.html"), 3, "cannot be written"),
        (("--db", "night.db", "--every", "10"), 2, "--every"),
        (("--db", "night.db", "--every", "0.5s"), 2, "at least 1.0 s"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(
    words: tuple[str, ...], code: int, said: str, study: Path
) -> None:
    done = report(study.parent, *words)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in study.parent.glob("*.html")] == []


def test_a_watched_study_is_written_again_when_it_changes_and_only_then(study: Path) -> None:
    path = study.parent / "report.html"
    call = [sys.executable, "-m", "autotune", "report", "--db", "night.db", "--watch", "--every", "1s"]
    with subprocess.Popen(call, cwd=study.parent, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        try:
            assert str(path) in watching.stdout.readline()
            assert 'id="renewal"' in path.read_text(encoding="utf-8")
            assert "Study night" in path.read_text(encoding="utf-8")
            first = path.stat().st_ino
            store = EvidenceStore(open_engine(f"sqlite:///{study}", create=False))
            store.begin_run(60.0, BEGIN)
            until(lambda: path.stat().st_ino != first)
            # The second line says that it was written once, and the file that it was written whole.
            assert str(path) in watching.stdout.readline()
            assert path.read_text(encoding="utf-8").rstrip().endswith("</html>")
        finally:
            watching.send_signal(signal.SIGINT)
        rest = watching.stdout.read()
    assert watching.returncode == 0
    assert len(rest.splitlines()) == 1
    assert re.search(r'id="renewal"', path.read_text(encoding="utf-8")) is None
