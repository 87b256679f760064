"""The commands on a study made with the fake vLLM: begin, continue, stop, read, export."""

import json
import os
import re
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
FAKE_VLLM = Path(__file__).parent.parent / "fakes" / "vllm"


class Folder:
    """A working directory with a model, a space and a study, and the command in it."""

    MODEL = "[red]it's a model"

    def __init__(self, path: Path, vllm: Path) -> None:
        self.path = path
        self.vllm = vllm
        (path / self.MODEL).mkdir()
        config = {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 4096}
        (path / self.MODEL / "config.json").write_text(json.dumps(config))
        (path / "space.toml").write_text(SPACE)
        (path / "study.toml").write_text(STUDY)
        rules = [{"if": {"max_num_seqs": f">={n}"}, "scenario": "kv_too_small"} for n in (16,)]
        normal = [{"if": {"max_num_seqs": 256}, "scenario": {"tpot_s": 0.05}}]  # vLLM's default, made slow
        self.env = {
            **os.environ,
            "COLUMNS": "120",
            "FAKE_VLLM_PYTHON": sys.executable,
            "FAKE_VLLM_RULES": json.dumps([*normal, *rules]),
            "HF_TOKEN": "hf_doNotKeepThis",
            "XDG_CACHE_HOME": str(path / "cache"),
        }

    def words(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "autotune", *words]

    def run_words(self, budget: str, *more: str) -> list[str]:
        fixed = ("run", self.MODEL, "--study", "study.toml", "--vllm", str(self.vllm), "--budget", budget)
        return self.words(*fixed, *more)

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.execute(self.words(*words))

    def execute(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, cwd=self.path, env=self.env, capture_output=True, text=True, timeout=100)

    def shown(self) -> dict[str, list[dict[str, object]]]:
        found: dict[str, list[dict[str, object]]] = json.loads(self.call("show", "--json").stdout)
        return found


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A folder in which one study has been run."""
    folder = Folder(tmp_path_factory.mktemp("study"), FAKE_VLLM)
    done = folder.execute(folder.run_words("45s"))
    assert done.returncode == 0, done.stderr
    assert re.search("(Winner|Candidate): trial", done.stdout)  # as far as finals fit the budget here
    assert "completion" in done.stdout
    return folder


def test_optuna_and_show_have_the_same_trials(study: Folder) -> None:
    shown = study.shown()["trials"]
    states = [trial["state"] for trial in shown]
    assert states[0] == "measured"
    assert {"measured", "failed"} <= set(states)
    trials = optuna.load_study(study_name="small", storage=f"sqlite:///{study.path}/studies/small.db").trials
    as_optuna = {"measured": TrialState.COMPLETE, "failed": TrialState.PRUNED, "interrupted": TrialState.FAIL}
    assert [t.state for t in trials] == [as_optuna[str(state)] for state in states]
    assert [t.params for t in trials] == [t["parameters"] for t in shown]
    assert [t.values for t in trials if t.values] == [
        list(t["values"].values()) for t in shown if isinstance(t["values"], dict)
    ]


def test_optuna_dashboard_opens_the_study_file(study: Folder) -> None:
    port = _free_port()
    words = [
        str(Path(sys.executable).parent / "optuna-dashboard"),
        f"sqlite:///{study.path}/studies/small.db",
    ]
    words += ["--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as dashboard:
        try:
            with _patient_client(port) as client:
                (summary,) = client.get("/api/studies").json()["study_summaries"]
                detail = client.get(f"/api/studies/{summary['study_id']}").json()
        finally:
            dashboard.terminate()
    assert summary["study_name"] == "small"
    assert len(detail["trials"]) == len(study.shown()["trials"])


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def _patient_client(port: int) -> httpx.Client:
    """One that waits for the server to listen: 0, 0.5, 1, 2, ... s between tries to connect."""
    transport = httpx.HTTPTransport(retries=8)
    return httpx.Client(
        base_url=f"http://127.0.0.1:{port}", transport=transport, trust_env=False, timeout=30.0
    )


def test_the_launch_file_starts_a_server_that_answers_from_anywhere(study: Folder, tmp_path: Path) -> None:
    best = study.call("best", "--export", "launch.sh")
    assert best.returncode == 0, best.stderr
    port = _free_port()
    env = {**study.env, "PORT": str(port)}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([str(study.path / "launch.sh")], cwd=tmp_path, env=env, **quiet) as server:
        try:
            with _patient_client(port) as client:
                served = client.get("/v1/models").json()["data"][0]["id"]
                body = {"model": served, "prompt": "hello", "max_tokens": 4}
                answer = client.post("/v1/completions", json=body).json()
        finally:
            server.terminate()
    assert served == str(study.path / study.MODEL)
    assert answer["choices"][0]["text"]


def test_what_a_study_is_about_cannot_change_under_it(study: Folder) -> None:
    before = study.shown()
    other = study.execute(study.run_words("20s", "--seed", "5"))
    assert other.returncode == 2
    assert "seed" in other.stderr
    assert "--db" in other.stderr
    assert study.shown() == before


def test_no_secret_is_kept_anywhere(study: Folder) -> None:
    study.call("best", "--export", "launch.sh")
    files = [path for path in study.path.rglob("*") if path.is_file()]
    assert len(files) > 5
    for path in files:
        assert b"hf_doNotKeepThis" not in path.read_bytes(), path


def test_names_with_markup_are_shown_as_text(study: Folder) -> None:
    for words in (("show",), ("show", "0"), ("best",)):
        done = study.call(*words)
        assert done.returncode == 0, done.stderr
    assert study.MODEL in study.call("show", "0").stdout.replace("'\"'\"'", "'")


def test_a_failed_trial_tells_why_on_one_screen(study: Folder) -> None:
    failed = next(t for t in study.shown()["trials"] if t["state"] == "failed")
    done = study.call("show", str(failed["number"]))
    assert len(done.stdout.splitlines()) <= 40
    for said in ("kv_cache_too_small", "Root cause", "What to do", "Command"):
        assert said in done.stdout


def test_best_for_machines_names_winner_baseline_and_front(study: Folder) -> None:
    best = json.loads(study.call("best", "--json").stdout)
    assert best["baseline"]["number"] == 0
    verdict = best["verdict"]
    # The front goes by all launches, what is confirmed by the blocks of the finals alone.
    assert best["best"]["number"] in best["front"] or verdict["certainty"] == "confirmed"
    assert verdict["certainty"] in ("confirmed", "unconfirmed")
    assert verdict["compared"] == best["best"]["number"]
    if verdict["certainty"] == "confirmed":
        assert 1 < verdict["low"] <= verdict["ratio"] == best["gain"] <= verdict["high"]
        assert verdict["blocks"] >= 2
    alone = json.loads(study.call("best", "--json", "--prefer", "out_tok_s@1").stdout)
    rates = {t["number"]: t["values"]["out_tok_s@1"] for t in study.shown()["trials"] if t["values"]}  # type: ignore[call-overload,index]
    assert rates[alone["best"]["number"]] > 0.95 * max(rates.values())


def test_ctrl_c_stops_cleanly_and_the_same_command_goes_on(tmp_path: Path) -> None:
    folder = Folder(tmp_path, FAKE_VLLM)
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
    assert folder.execute(folder.run_words("20s")).returncode == 0
    after = folder.shown()["trials"]
    assert [t["number"] for t in after] == list(range(len(after)))
    assert after[: len(before)] == before
    assert len(after) > len(before)


@pytest.mark.parametrize(
    "command",
    ["run", "best", "ablate", "show", "compare", "bench", "lessons", "explain", "recheck", "check", "doctor"],
)
def test_every_command_has_help_with_an_example(study: Folder, command: str) -> None:
    done = study.call(command, "--help")
    assert done.returncode == 0
    assert f"autotune {command}" in done.stdout.split("Example:")[1]


def test_doctor_says_what_it_sees_for_machines_too(study: Folder) -> None:
    done = study.call("doctor", "--json", "--vllm", str(study.vllm))
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["problem"] is None
    assert seen["vllm"]["command"] == [str(study.vllm)]
    assert seen["machine"]["memory_bytes"] > 0
