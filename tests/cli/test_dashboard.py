"""`autotune dashboard`: a copy of the study on this machine, to look at, that keeps up with it."""

import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import httpx
import psutil
import pytest
from studies_made import NASTY, StudyMaker

DEADLINE_S = 60


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dashboard") / "made.db"
    return StudyMaker(path=path, trials=8, blocks=2, control_every=0, model=NASTY[1]).write()


@pytest.fixture
def study(made: Path, tmp_path: Path) -> Path:
    return shutil.copy(made, tmp_path / "study.db")


@pytest.fixture
def address(study: Path) -> Iterator[httpx.Client]:
    """A client of the dashboard that a process serves until it is interrupted."""
    command = [sys.executable, "-m", "autotune", "dashboard", "--db", str(study), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline().strip()
            assert line.startswith("http://127.0.0.1:"), line or process.communicate()[1]
            connections = psutil.Process(process.pid).net_connections()
            assert [c.laddr.ip for c in connections if c.status == psutil.CONN_LISTEN] == ["127.0.0.1"]
            with httpx.Client(base_url=line.partition("/dashboard")[0]) as client:
                assert client.get(line).status_code == 200
                yield client
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(DEADLINE_S)
        assert process.returncode == 0


def test_it_shows_the_study_and_leaves_the_file_as_it_is(address: httpx.Client, study: Path) -> None:
    before = sha256(study.read_bytes()).hexdigest()
    (summary,) = address.get("/api/studies").json()["study_summaries"]
    assert summary["study_name"] == "made"
    shown = address.get("/api/studies/0").json()
    assert {"Complete", "Pruned"} <= {trial["state"] for trial in shown["trials"]}
    assert shown["best_trials"]
    assert "This is a copy" in shown["note"]["body"]
    for method, path in (
        ("POST", "/api/studies"),
        ("POST", "/api/studies/0/rename"),
        ("DELETE", "/api/studies/0"),
        ("PUT", "/api/studies/0/note"),
    ):
        answer = address.request(method, path, json={"study_name": "x", "version": 9, "body": "x"})
        assert (answer.status_code, "nothing can be changed" in answer.json()["reason"]) == (405, True)
    assert address.get("/api/studies").json()["study_summaries"] == [summary]
    assert sha256(study.read_bytes()).hexdigest() == before


def test_notes_hold_no_markup_of_strangers(address: httpx.Client) -> None:
    for trial in address.get("/api/studies/0").json()["trials"]:
        text = trial["note"]["body"].replace(r"\<", "").replace(r"\[", "").replace(r"\$", "")
        assert not {"<", "[", "$"} & set(text)


def test_a_page_of_another_site_is_refused(address: httpx.Client) -> None:
    assert address.get("/api/studies", headers={"Host": "evil.example:8080"}).status_code == 403
    assert address.get("/api/studies", headers={"Host": "localhost:9"}).status_code == 200


def test_it_keeps_up_with_the_study(address: httpx.Client, study: Path) -> None:
    count = len(address.get("/api/studies/0").json()["trials"])
    with closing(sqlite3.connect(study)) as writer:
        writer.execute("PRAGMA foreign_keys=OFF")
        writer.execute("DELETE FROM autotune_trial WHERE number = (SELECT max(number) FROM autotune_trial)")
        writer.commit()
    deadline = time.monotonic() + DEADLINE_S
    while len(address.get("/api/studies/0").json()["trials"]) != count - 1:
        assert time.monotonic() < deadline


def _run(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "autotune", "dashboard", *words]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=DEADLINE_S)


def test_a_port_that_is_taken_is_named(study: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = _run("--db", str(study), "--port", str(port))
    assert done.returncode == 3
    assert f"port {port} cannot be listened on" in done.stderr
    assert "--port" in done.stderr


def test_without_optuna_dashboard_one_sentence_says_what_to_install(study: Path, tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "optuna_dashboard.py").write_text(
        "raise ModuleNotFoundError('hidden', name='optuna_dashboard')\n", encoding="utf-8"
    )
    done = _run("--db", str(study), "--port", "0", env={**os.environ, "PYTHONPATH": str(hidden)})
    assert done.returncode == 3
    assert "pip install 'vllm-autotune[dashboard]'" in done.stderr.replace("\n", " ")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    done = _run("--db", str(tmp_path / "no.db"))
    assert (done.returncode, "no such study file" in done.stderr) == (4, True)
