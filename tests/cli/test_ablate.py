"""`autotune ablate` on studies of the fake vLLM, of whose settings one matters and one does not."""

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SPACE = """
schema = 1
[parameters]
max_num_seqs = { type = "categorical", choices = [8] }
block_size = { type = "categorical", choices = [16, 32] }
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
min_window_s = 0.4
max_window_s = 0.6
[limits]
startup_s = 20
stop_grace_s = 1
"""
FAKE_VLLM = Path(__file__).parent.parent / "fakes" / "vllm"
LAUNCHES = 9
"""Three blocks of the winner and of it without each of its settings: what is left then was one of them."""


class Folder:
    """A working directory in which a short study has been run; vLLM's own `max_num_seqs` is slow."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "model").mkdir()
        config = {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 4096}
        (path / "model" / "config.json").write_text(json.dumps(config))
        (path / "space.toml").write_text(SPACE)
        (path / "study.toml").write_text(STUDY)
        slow = {"if": {"max_num_seqs": 256}, "scenario": {"tpot_s": 0.03}}
        self.env = {
            **os.environ,
            "COLUMNS": "100",
            "FAKE_VLLM_PYTHON": sys.executable,
            "FAKE_VLLM_RULES": json.dumps([slow]),
            "XDG_CACHE_HOME": str(path / "cache"),
        }

    def words(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "autotune", *words]

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(*words), cwd=self.path, env=self.env, capture_output=True, text=True, timeout=200
        )

    def stopped(self, *words: str, at: str, count: int = 1) -> None:
        """The command, stopped with Ctrl-C as soon as it has said `at` so often."""
        with subprocess.Popen(
            self.words(*words), cwd=self.path, env=self.env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as running:  # fmt: skip
            assert running.stderr is not None
            seen = ""
            for line in running.stderr:
                seen += line
                if seen.count(at) >= count:
                    running.send_signal(signal.SIGINT)
                    break
            seen += running.communicate(timeout=60)[1]
        assert running.returncode == 130, seen
        assert "Traceback" not in seen

    def trials(self) -> list[dict[str, object]]:
        found: list[dict[str, object]] = json.loads(self.call("show", "--json").stdout)["trials"]
        return found


@pytest.fixture(scope="module")
def ablated(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A study whose ablation was stopped with Ctrl-C once, and then came to its end."""
    folder = Folder(tmp_path_factory.mktemp("ablated"))
    fixed = ("run", "model", "--study", "study.toml", "--vllm", str(FAKE_VLLM), "--no-finals")
    folder.stopped(*fixed, "--budget", "10m", at="trial   3")
    assert "Candidate: trial" in folder.call("best").stdout
    folder.stopped("ablate", at="(ablation)", count=5)  # in the second block
    done = folder.call("ablate", "--budget", "80s", "--json")
    assert done.returncode == 0, done.stderr
    (folder.path / "said.json").write_text(done.stdout)
    return folder


def test_each_setting_has_its_worth_and_what_is_useless_is_named(ablated: Folder) -> None:
    found = json.loads((ablated.path / "said.json").read_text())["ablation"]
    settings = {each["setting"]: each for each in found["settings"]}
    assert settings["max_num_seqs"]["need"] == "needed"
    assert settings["max_num_seqs"]["worth"]["overall"]["low"] > 1.2
    assert set(settings["max_num_seqs"]["worth"]) == {"overall", "out_tok_s@2", "out_tok_s@1"}
    assert settings["block_size"]["need"] in ("no_difference", "harmful")
    # What could go is dropped only if that lost nothing: on a busy machine the noise may not let it be told.
    if found["reduced"] is not None:
        trial = ablated.trials()[found["reduced"]]
        assert (trial["origin"], trial["parameters"]) == ("ablation", {"max_num_seqs": 8})


def test_it_went_on_where_it_was_and_changed_nothing_of_the_study(ablated: Folder) -> None:
    launched = [trial for trial in ablated.trials() if trial["origin"] == "ablation"]
    assert len([trial for trial in launched if trial["state"] == "measured"]) >= LAUNCHES
    blocks = [int(str(trial["block"])) for trial in launched]
    assert blocks == sorted(blocks)
    assert set(blocks) == set(range(len(set(blocks))))
    best = json.loads(ablated.call("best", "--json").stdout)
    assert best["best"]["origin"] != "ablation"
    numbers = {trial["number"] for trial in launched}
    assert not numbers & set(best["front"])
    assert best["ablation"]["trial"] == best["best"]["number"]


def test_the_launch_file_has_what_is_needed_and_says_why(ablated: Folder) -> None:
    reduced = json.loads((ablated.path / "said.json").read_text())["ablation"]["reduced"]
    assert ablated.call("best", "--export", "launch.sh").returncode == 0
    script = (ablated.path / "launch.sh").read_text()
    comments = "\n".join(line for line in script.splitlines() if line.startswith("#"))
    command = script[script.index("exec ") :]
    assert "--max-num-seqs 8" in command
    assert "max_num_seqs=8: worth +" in comments
    assert ("--block-size" in command) is (reduced is None)
    if reduced is not None:
        assert "Dropped from trial" in comments
    whole = ablated.call("best", "--export", "whole.sh", "--no-ablation")
    assert whole.returncode == 0
    assert "--block-size" in (ablated.path / "whole.sh").read_text()


def test_the_report_has_what_each_setting_was_worth(ablated: Folder) -> None:
    assert ablated.call("report", "--out", "r.html").returncode == 0
    page = (ablated.path / "r.html").read_text()
    assert "worth +" in page
    assert "What a setting is worth alone is not known" not in page


def test_a_person_reads_a_row_for_each_setting(ablated: Folder) -> None:
    done = ablated.call("ablate", "--budget", "3s")
    assert done.returncode == 0, done.stderr
    assert "max_num_seqs=8" in done.stdout
    assert "needed" in done.stdout
    assert max(map(len, done.stdout.splitlines()[:-1])) <= 100


def test_what_cannot_be_looked_into_is_one_sentence(ablated: Folder) -> None:
    for words, said in (
        (("--trial", "0"), "says nothing to vLLM that the baseline does not say as well"),
        (("--trial", "999"), "there is no trial 999"),
        (("--budget", "soon"), "--budget"),
    ):
        done = ablated.call("ablate", *words)
        assert done.returncode == 2, done.stderr
        assert said in " ".join(done.stderr.split())
    with (ablated.path / "studies" / "small.db.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = ablated.call("ablate")
    assert done.returncode == 3
    assert "another autotune is running this study" in done.stderr
