"""A study file that is shipped says nothing of the machine's name, its paths and processes, and all else."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from studies_made import StudyMaker

import autotune
from tools.ship_study import ship


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ship") / "made.db"
    return StudyMaker(path=path, trials=8, blocks=2, model="/home/someone/models/Chat-8B").write()


def test_what_is_of_the_machine_alone_is_gone_and_the_rest_is_the_same(made: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(made)) as connection:
        line = 'File "/home/someone/.venv/lib/python3.11/site-packages/vllm/engine.py", line 3'
        connection.execute("UPDATE autotune_trial SET failure = json_set(failure, '$.root_line', ?)", (line,))
        connection.commit()
    copy = tmp_path / "copy.db"
    assert ship(made, copy, "a 24 GB card") == []
    content = copy.read_bytes()
    for gone in (b"/home/someone", b"/opt/vllm", b"/tmp", b"night"):
        assert gone not in content, gone
    assert b"a 24 GB card" in content
    before, after = autotune.open(made), autotune.open(copy)
    assert after.model == "Chat-8B"
    assert after.points.equals(before.points)
    assert after.requests().equals(before.requests())
    assert after.trials.loc[0, "command"] == "vllm serve Chat-8B"
    assert set(after.failures["root_line"]) == {'File "site-packages/vllm/engine.py", line 3'}
    assert [file.name for file in tmp_path.iterdir()] == ["copy.db"]


def test_requests_of_some_trials_alone(made: Path, tmp_path: Path) -> None:
    assert ship(made, tmp_path / "few.db", "x", frozenset({0})) == []
    study = autotune.open(tmp_path / "few.db")
    assert set(study.requests()["trial"]) == {0}
    assert study.points.equals(autotune.open(made).points)


def test_what_still_looks_like_a_path_is_told(made: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(made)) as connection:
        connection.execute("UPDATE autotune_trial SET env = ?", ('{"CACHE": "/srv/cache/models"}',))
        connection.commit()
    assert ship(made, tmp_path / "copy.db", "x") == ["/srv/cache/models"]
