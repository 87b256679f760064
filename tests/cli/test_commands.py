"""The commands on a study made with the fake vLLM: begin, continue, stop, read, export."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import optuna
import pytest
from optuna.trial import TrialState

SPACE = """
schema = 1
[parameters]
max_num_seqs = { type = "int", low = 1, high = 128, log = true }
"""
STUDY = """
schema = 1
name = "small"
search_space = "space.toml"
[workload]
prompt_tokens = 16
output_tokens = 8
streams = [1, 2]
prompts = 4
min_window_s = 0.2
max_window_s = 0.4
[limits]
startup_s = 20
stop_grace_s = 1
"""


class Folder:
    """A working directory with a model, a space and a study, and the command in it."""

    def __init__(self, path: Path, vllm: Path) -> None:
        self.path = path
        self.vllm = vllm
        (path / "model").mkdir()
        config = {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 4096}
        (path / "model" / "config.json").write_text(json.dumps(config))
        (path / "space.toml").write_text(SPACE)
        (path / "study.toml").write_text(STUDY)
        self.env = {**os.environ, "XDG_CACHE_HOME": str(path / "cache"), "COLUMNS": "120"}
        self.env["HF_TOKEN"] = "hf_doNotKeepThis"

    def words(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "autotune", *words]

    def run_words(self, budget: str, *more: str) -> list[str]:
        fixed = ("run", "model", "--study", "study.toml", "--vllm", str(self.vllm), "--budget", budget)
        return self.words(*fixed, *more)

    def call(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, cwd=self.path, env=self.env, capture_output=True, text=True, timeout=100)

    def shown(self) -> dict[str, list[dict[str, object]]]:
        found: dict[str, list[dict[str, object]]] = json.loads(self.call(self.words("show", "--json")).stdout)
        return found


@pytest.fixture
def folder(tmp_path: Path, fake_vllm_program: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    rules = [{"if": {"max_num_seqs": low}, "scenario": "kv_too_small"} for low in range(16, 129)]
    monkeypatch.setenv("FAKE_VLLM_RULES", json.dumps(rules))
    return Folder(tmp_path, fake_vllm_program)


def test_from_nothing_to_a_launch_file_that_serves(folder: Folder) -> None:
    done = folder.call(folder.run_words("32s"))
    assert done.returncode == 0, done.stderr
    assert "Winner" in done.stdout or "deploy those" in done.stdout
    assert "completion tok/s" in done.stdout
    shown = folder.shown()
    states = [trial["state"] for trial in shown["trials"]]
    assert states[0] == "measured"
    assert "failed" in states
    study = optuna.load_study(study_name="small", storage=f"sqlite:///{folder.path}/studies/small.db")
    as_optuna = {"measured": TrialState.COMPLETE, "failed": TrialState.PRUNED, "interrupted": TrialState.FAIL}
    assert [t.state for t in study.trials] == [as_optuna[str(state)] for state in states]
    assert [t.params for t in study.trials] == [t["parameters"] for t in shown["trials"]]
    assert [t.values for t in study.trials if t.values] == [
        list(t["values"].values()) for t in shown["trials"] if isinstance(t["values"], dict)
    ]

    best = folder.call(folder.words("best", "--export", "launch.sh"))
    assert best.returncode == 0, best.stderr
    _serves(folder)


def _serves(folder: Folder) -> None:
    """The exported script starts a server that answers a completion."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen(
        [str(folder.path / "launch.sh")],
        env={**folder.env, "PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as server:
        try:
            body = {"model": str(folder.path / "model"), "prompt": "hello", "max_tokens": 4}
            url = f"http://127.0.0.1:{port}/v1/completions"
            transport = httpx.HTTPTransport(retries=8)  # from 0.5 s on, each pause twice as long
            with httpx.Client(transport=transport, trust_env=False) as client:
                answer = client.post(url, json=body).json()
        finally:
            server.terminate()
    assert answer["choices"][0]["text"]


def test_ctrl_c_stops_cleanly_and_the_same_command_goes_on(folder: Folder) -> None:
    with subprocess.Popen(
        folder.run_words("100s"), cwd=folder.path, env=folder.env, stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL, text=True,
    ) as running:  # fmt: skip
        assert running.stderr is not None
        seen = []
        for line in running.stderr:
            seen.append(line)
            if "trial   1" in line:
                running.send_signal(signal.SIGINT)
                break
        rest = running.stderr.read()
    assert running.returncode == 130, "".join(seen) + rest
    assert "Traceback" not in rest
    before = folder.shown()["trials"]
    assert before[-1]["interruption"] in ("user", None)
    assert folder.call(folder.run_words("25s")).returncode == 0
    after = folder.shown()["trials"]
    assert [t["number"] for t in after] == list(range(len(after)))
    assert after[: len(before)] == before
    assert len(after) > len(before)


def test_what_a_study_is_about_cannot_change_under_it(folder: Folder) -> None:
    assert folder.call(folder.run_words("18s")).returncode == 0
    other = folder.call(folder.run_words("18s", "--seed", "5"))
    assert other.returncode == 2
    assert "seed" in other.stderr
    assert "--db" in other.stderr


def test_no_secret_is_kept_anywhere(folder: Folder) -> None:
    assert folder.call(folder.run_words("18s")).returncode == 0
    folder.call(folder.words("best", "--export", "launch.sh"))
    for path in folder.path.rglob("*"):
        if path.is_file():
            assert b"hf_doNotKeepThis" not in path.read_bytes(), path


def test_names_with_markup_are_shown_as_text(folder: Folder, fake_vllm_program: Path) -> None:
    (folder.path / "model").rename(folder.path / "[red]model")
    words = [w if w != "model" else "[red]model" for w in folder.run_words("18s")]
    assert folder.call(words).returncode == 0
    shown = folder.call(folder.words("show", "0"))
    assert "[red]model" in shown.stdout


@pytest.mark.parametrize("command", ["run", "best", "show", "check", "doctor"])
def test_every_command_has_help_with_an_example(folder: Folder, command: str) -> None:
    done = folder.call(folder.words(command, "--help"))
    assert done.returncode == 0
    assert f"autotune {command}" in done.stdout.split("Example:")[1]


def test_doctor_says_what_it_sees_for_machines_too(folder: Folder) -> None:
    done = folder.call(folder.words("doctor", "--json", "--vllm", str(folder.vllm)))
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["problem"] is None
    assert seen["vllm"]["command"] == [str(folder.vllm)]
    assert seen["machine"]["memory_bytes"] > 0
