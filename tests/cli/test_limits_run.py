"""`autotune run --limit` with the fake vLLM: the fastest configuration breaks it, so another one wins."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import optuna
import pytest
from builders import objectives, point, record
from optuna.trial import FrozenTrial

from autotune.cli.progress import RunView
from autotune.domain.interrupt import Interrupt
from autotune.domain.metric_limit import parse_metric_limits
from autotune.domain.trial import Measured

LIMIT = "ttft_p50@2<=150ms"
SPACE = """
schema = 1
[parameters]
max_num_seqs = { type = "int", low = 3, high = 4 }
"""
STUDY = """
schema = 1
name = "limited"
search_space = "space.toml"
[workload]
prompt_tokens = 16
output_tokens = 64
streams = [2]
prompts = 4
min_window_s = 0.5
max_window_s = 8
[limits]
startup_s = 20
stop_grace_s = 1
"""
FASTEST = {"if": {"max_num_seqs": 4}, "scenario": {"ttft_s": 0.25, "tpot_s": 0.001}}
GOOD = {"if": {"max_num_seqs": 3}, "scenario": {"ttft_s": 0.02, "tpot_s": 0.006}}
DEFAULT = {"if": {"max_num_seqs": 256}, "scenario": {"ttft_s": 0.02, "tpot_s": 0.012}}

Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def autotune(tmp_path: Path, fake_vllm_program: Path) -> Call:
    """`autotune WORDS` in a folder with a model, a space and a study."""
    (tmp_path / "model").mkdir()
    config = {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 4096}
    (tmp_path / "model/config.json").write_text(json.dumps(config))
    (tmp_path / "space.toml").write_text(SPACE)
    (tmp_path / "study.toml").write_text(STUDY)
    env = {
        **os.environ,
        "COLUMNS": "400",
        "FAKE_VLLM_RULES": json.dumps([FASTEST, GOOD, DEFAULT]),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        of_run = ("--study", "study.toml", "--vllm", str(fake_vllm_program))
        return subprocess.run(
            [sys.executable, "-m", "autotune", *words, *(of_run if words[0] == "run" else ())],
            cwd=tmp_path, env=env, capture_output=True, text=True, timeout=200,
        )  # fmt: skip

    return call


def test_the_fastest_breaks_the_limit_and_another_one_wins(autotune: Call, tmp_path: Path) -> None:
    said = ""
    while not (f"breaks {LIMIT}: " in said and "max_num_seqs=3" in said):  # for as many runs as it takes
        done = autotune("run", "model", "--budget", "30s", "--no-finals", "--limit", LIMIT)
        assert done.returncode == 0, done.stderr
        said += done.stderr
    assert f"keeps {LIMIT}: " in done.stdout

    found = json.loads(autotune("best", "--json").stdout)
    assert found["best"]["parameters"] == {"max_num_seqs": 3}
    assert found["front"] == [found["best"]["number"]]
    trials = json.loads(autotune("show", "--json").stdout)["trials"]
    scored = [t for t in trials if t["values"]]
    rates = {t["parameters"].get("max_num_seqs"): t["values"]["out_tok_s@2"] for t in scored}
    assert rates[4] > rates[3] > rates[None]
    assert {t["parameters"].get("max_num_seqs") for t in trials if t["breaks"]} == {4}

    # As many requests were measured as the median needs, without an objective that asks for them.
    assert all(t["points"][0]["done"] >= 11 for t in trials if t["state"] == "measured")
    assert [limit["limit"] for limit in found["verdict"]["limits"]] == [LIMIT]
    _optuna_knows(tmp_path)

    free = json.loads(autotune("best", "--json", "--limit", "ttft_p50@2<=9s").stdout)
    assert free["best"]["parameters"] == {"max_num_seqs": 4}
    other = autotune("run", "model", "--budget", "9s", "--no-finals")
    assert other.returncode == 2
    assert f"this study was begun with limits {LIMIT}, not none" in other.stderr


def _optuna_knows(folder: Path) -> None:
    """In the study's own record what breaks the limit is complete, with its values and by how much."""
    study = optuna.load_study(study_name="limited", storage=f"sqlite:///{folder}/studies/limited.db")
    measured = [trial for trial in study.trials if trial.values]

    def excess(trial: FrozenTrial) -> float:
        return trial.constraints[f"limit:{LIMIT}"]

    assert {trial.params["max_num_seqs"] for trial in measured if excess(trial) > 0} == {4}
    assert {trial.params.get("max_num_seqs") for trial in measured if excess(trial) <= 0} == {3, None}
    assert {trial.params["max_num_seqs"] for trial in study.best_trials} == {3}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--limit", "ttft_p50@2"), "limit 'ttft_p50@2': write METRIC@STREAMS<=VALUE"),
        (("--limit", "ttft_p50@8<=2s"), "limit ttft_p50@8: measured are 2 streams"),
        (("--limit", "goodput_req_s@2>=1"), "limit goodput_req_s@2: the workload has no service-level"),
        (("--limit", LIMIT, "--limit", "ttft_p50@2<=1s"), "there is a second limit for ttft_p50@2"),
    ],
)
def test_a_wrong_limit_is_one_sentence_and_leaves_nothing_behind(
    autotune: Call, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    done = autotune("run", "model", "--budget", "9s", *words)
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("autotune: ")]
    assert said in line
    assert not (tmp_path / "studies").exists()


def test_the_incumbent_that_is_shown_while_it_runs_keeps_the_limits() -> None:
    limits = parse_metric_limits(["ttft_p50@8<=2s"])
    view = RunView(objectives("out_tok_s@8"), Interrupt(lambda: 0.0, 60.0), limits)
    fast = record(1, Measured(points=(point(8, 300.0, ttft_s=2.6),)))
    view.study_opened([fast])
    assert "nothing keeps the limits yet" in view.parts()
    view.study_opened([record(2, Measured(points=(point(8, 50.0, ttft_s=1.0),)))])
    assert "best: trial 2" in view.parts()
    free = RunView(objectives("out_tok_s@8"), Interrupt(lambda: 0.0, 60.0))
    assert "nothing measured yet" in free.parts()
    free.study_opened([fast])
    assert "best: trial 1" in free.parts()
