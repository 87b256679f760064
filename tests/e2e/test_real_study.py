"""The main job on real vLLM for CPUs: a study within its budget, failures named, the winner served."""

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


def test_trials_are_finished_and_none_fails_that_could_be_known_to(folder: Path) -> None:
    trials = _trials(folder)
    assert [t["state"] for t in trials[:4]] == ["measured"] * 4
    assert [t["origin"] for t in trials[:2]] == ["baseline", "expert"]
    assert not any(t["failure"] for t in trials), "one with too small a KV cache is refused before its launch"


SMALL_CACHE_SPACE = """
schema = 1
name = "small-cache"
[parameters]
kv_cache_memory_bytes = { type = "categorical", choices = [2097152, 33554432] }
max_num_seqs = { type = "categorical", choices = [4, 8, 16] }
[fixed.flags]
enforce-eager = true
max-model-len = 2048
kv-cache-memory-bytes = 2097152
"""
SMALL_CACHE = """
schema = 1
name = "small-cache"
search_space = "space.toml"
objectives = ["out_tok_s@1"]
[workload]
prompt_tokens = 16
output_tokens = 8
streams = [1]
prompts = 4
min_window_s = 1
max_window_s = 2
"""


@pytest.fixture(scope="module")
def small_cache(folder: Path) -> Path:
    """A folder with a study whose baseline, which is always launched, has too small a KV cache."""
    (folder / "space.toml").write_text(SMALL_CACHE_SPACE)
    (folder / "study.toml").write_text(SMALL_CACHE)
    words = ("--study", "study.toml", "--budget", "110s", "--no-finals", "--db", "small-cache.db")
    done = _autotune(folder, "run", "model", *words)
    assert done.returncode == 0, done.stderr
    return folder


def _shown(folder: Path) -> dict[str, object]:
    shown: dict[str, object] = json.loads(
        _autotune(folder, "show", "--json", "--db", "small-cache.db").stdout
    )
    return shown


def test_a_real_failure_is_named_and_the_bound_in_its_log_kept_to(small_cache: Path) -> None:
    shown = _shown(small_cache)
    failed, *later = shown["trials"]  # type: ignore[misc]
    failure = failed["failure"]
    assert (failure["kind"], failure["blame"]) == ("kv_cache_too_small", "configuration")
    assert "larger than the available KV cache memory" in failure["root_line"]
    longest = failure["numbers"]["estimated_len"]
    assert 0 < longest < 2048, "the length that the log says would fit"
    assert f"max_model_len at most {longest:.0f}" in failure["cure"]
    with open_store(str(small_cache / "small-cache.db")) as store:
        (lesson,) = store.lessons.all()
    given = {"max_model_len": 2048, "kv_cache_memory_bytes": 2097152}
    assert lesson.finding.rejects(given)
    assert not lesson.finding.rejects({**given, "max_model_len": longest})
    assert not lesson.finding.rejects({**given, "kv_cache_memory_bytes": 33554432})
    assert any(trial["state"] == "measured" for trial in later), "the study went on"
    assert not any("2097152" in str(trial["parameters"]) for trial in later)


def test_the_failure_is_explained_from_its_log_alone(small_cache: Path) -> None:
    failed = _shown(small_cache)["trials"][0]  # type: ignore[index]
    done = _autotune(small_cache, "explain", str(failed["log_path"]), "--json")
    assert done.returncode == 0
    said, kept = json.loads(done.stdout), failed["failure"]
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
