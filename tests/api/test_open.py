"""A study is looked into and not touched, whatever its state; what is no study is an error that says so."""

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import pytest
from studies_made import NASTY, StudyMaker

import autotune
from autotune.errors import StoreError, UserError
from autotune.store import read_only
from autotune.wiring.open import look_into


def _copy(made: Path, folder: Path) -> Path:
    copy = folder / "copy.db"
    shutil.copy(made, copy)
    return copy


def test_reading_all_of_it_changes_no_byte(made: Path, tmp_path: Path) -> None:
    path = _copy(made, tmp_path)
    before = sha256(path.read_bytes()).hexdigest()
    study = autotune.open(path)
    for frame in (study.trials, study.points, study.failures, study.lessons, study.requests()):
        assert len(frame)
    assert study.best() is not None
    assert sha256(path.read_bytes()).hexdigest() == before
    with closing(sqlite3.connect(path)) as writer:  # the next writer finds a sound file, and tidies up
        assert writer.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert [file.name for file in tmp_path.iterdir()] == ["copy.db"]


def test_it_is_read_while_another_is_about_to_write(made: Path, tmp_path: Path) -> None:
    path = _copy(made, tmp_path)
    count = len(autotune.open(path).trials)
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("DELETE FROM autotune_request")
        writer.execute("UPDATE autotune_trial SET origin = 'final'")
        study = autotune.open(path)
        assert len(study.trials) == count
        assert len(study.requests())
        writer.execute("COMMIT")
        assert set(study.trials["origin"]) != {"final"}
        assert set(study.refresh().trials["origin"]) == {"final"}


def test_nothing_can_be_written_through_it(made: Path, tmp_path: Path) -> None:
    with look_into(str(_copy(made, tmp_path))) as store, pytest.raises(StoreError, match="readonly"):
        store.begin_run(1.0, datetime.now(UTC))


def test_a_file_on_a_medium_that_cannot_be_written_is_read(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _copy(made, tmp_path)
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert len(autotune.open(path).trials)
    assert [file.name for file in tmp_path.iterdir()] == ["copy.db"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("UPDATE autotune_schema SET version = 99", "upgrade with: pip install -U vllm-autotune"),
        ("UPDATE autotune_schema SET version = 0", "no autotune study"),
        ("DROP TABLE autotune_schema", "no autotune study"),
    ],
)
def test_another_schema_is_named(made: Path, tmp_path: Path, change: str, says: str) -> None:
    path = _copy(made, tmp_path)
    with closing(sqlite3.connect(path)) as writer:
        writer.execute(change)
        writer.commit()
    with pytest.raises(StoreError, match=says):
        autotune.open(path)


def test_an_older_schema_is_not_migrated(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_only, "MIGRATIONS", [lambda _: None] * 2)
    with pytest.raises(StoreError, match=r"schema 1, from an older autotune.*autotune show --db"):
        autotune.open(_copy(made, tmp_path))


def test_what_is_no_study_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no such study file"):
        autotune.open(tmp_path / "missing.db")
    assert list(tmp_path.iterdir()) == []
    text = tmp_path / "text.db"
    text.write_text("no database at all, but long enough to look like one" * 20)
    with pytest.raises(StoreError, match="cannot be used as a study file"):
        autotune.open(text)


@pytest.mark.parametrize("state", ["running", "killed"])
def test_a_trial_without_an_end_is_there(tmp_path: Path, state: str) -> None:
    path = StudyMaker(path=tmp_path / "x.db", trials=4, outcome_of_last=state, blocks=0).write()
    last = autotune.open(path).trials.set_index("trial").loc[3]
    assert last["state"] == {"running": "running", "killed": "interrupted"}[state]


def test_the_study_shows_itself_as_text_whatever_it_is_called(tmp_path: Path) -> None:
    study = autotune.open(StudyMaker(path=tmp_path / "x.db", trials=1, blocks=0, model=NASTY[0]).write())
    html = study._repr_html_()
    assert "<img" not in html
    assert "&lt;img src=x" in html
    best = study.best()
    assert best is not None
    assert "<img" not in best._repr_html_()
    assert "<img" not in study.what_if(context_tokens=1)._repr_html_()


def test_what_was_not_measured_is_refused(made: Path) -> None:
    study = autotune.open(made)
    with pytest.raises(UserError, match="no point at 3 streams; it has them at 1, 4, 16"):
        study.pareto(["out_tok_s@3"])
    with pytest.raises(UserError, match="no point at 3 streams"):
        study.requests(streams=3)
    with pytest.raises(UserError, match="there is no trial 999"):
        study.requests(trial=999)
    with pytest.raises(UserError, match="service-level objective"):
        study.best("goodput_req_s@4")


def _python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


def test_the_command_line_does_not_load_pandas() -> None:
    done = _python("import sys, autotune, autotune.cli; print('pandas' in sys.modules, autotune.open)")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("False <function open")


def test_without_pandas_one_sentence_says_what_to_install() -> None:
    done = _python("import sys; sys.modules['pandas'] = None; import autotune; autotune.open('x.db')")
    assert done.stderr.rstrip().endswith(
        "Error: autotune.open needs pandas; install it with: pip install 'vllm-autotune[notebook]'"
    )


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'opne'"):
        autotune.opne  # noqa: B018
