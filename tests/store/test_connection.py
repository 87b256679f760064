"""Opening study files that are fine, wrong, newer, locked or not there."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.errors import EnvironmentFault, StoreError
from autotune.store.connection import open_engine, writer_lock
from autotune.store.schema import MIGRATIONS


def _url(path: Path) -> str:
    return f"sqlite:///{path}"


def test_reading_does_not_make_a_file(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no such study file"):
        open_engine(_url(tmp_path / "none.db"), create=False)
    assert list(tmp_path.iterdir()) == []


def test_opening_twice_migrates_once(tmp_path: Path) -> None:
    for create in (True, True, False):
        open_engine(_url(tmp_path / "s.db"), create=create)
    connection = sqlite3.connect(tmp_path / "s.db")
    assert connection.execute("SELECT version FROM autotune_schema").fetchall() == [
        (n,) for n in range(1, len(MIGRATIONS) + 1)
    ]
    connection.close()


def test_a_newer_file_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    open_engine(_url(path), create=True)
    connection = sqlite3.connect(path)
    connection.execute("INSERT INTO autotune_schema VALUES (999, '2030-01-01')")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    for create in (True, False):
        with pytest.raises(StoreError, match=r"schema 999.*upgrade"):
            open_engine(_url(path), create=create)
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_text("these are notes, and no database at all\n" * 100)
    with pytest.raises(StoreError, match="cannot be used as a study file"):
        open_engine(_url(path), create=True)


def test_a_database_without_a_study_is_not_read(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "empty.db").close()
    (tmp_path / "empty.db").touch()
    with pytest.raises(StoreError, match="no autotune study"):
        open_engine(_url(tmp_path / "empty.db"), create=False)


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot make the folder"):
        open_engine(_url(tmp_path / "file" / "below" / "s.db"), create=True)


def test_one_writer_at_a_time_and_a_killed_one_frees_the_lock(tmp_path: Path) -> None:
    url = _url(tmp_path / "s.db")
    code = (
        "import sys; from autotune.store.connection import writer_lock\n"
        f"with writer_lock({url!r}): print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(EnvironmentFault, match="another autotune"), writer_lock(url):
            pass
        holder.kill()
        holder.wait()
        with writer_lock(url):
            pass
