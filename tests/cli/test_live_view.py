"""What `autotune run` shows while it runs: in a narrow terminal, without colour, on a dumb one, in a pipe."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from terminal import colours, in_terminal, plain

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
SPACE = """
schema = 1
[parameters]
max_num_seqs = { type = "int", low = 1, high = 128, log = true }
"""
SECOND = "trial   1"
FAKE_VLLM = Path(__file__).parent.parent / "fakes" / "vllm"


class Folder:
    """A working directory with a study in it, run until its second trial is announced."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "model").mkdir()
        (path / "model" / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
        (path / "space.toml").write_text(SPACE)
        (path / "study.toml").write_text(STUDY)

        self.env = {
            "FAKE_VLLM_PYTHON": sys.executable,
            # Longer than it takes from one look of the live line to the next, so that each step is seen.
            "FAKE_VLLM_SCENARIO": json.dumps({"start_s": 1.2}),
            "XDG_CACHE_HOME": str(path / "cache"),
        }

    def words(self, name: str) -> list[str]:
        fixed = ("run", "model", "--study", "study.toml", "--vllm", str(FAKE_VLLM), "--no-finals")
        return [sys.executable, "-m", "autotune", *fixed, "--budget", "5m", "--db", f"{name}.db"]

    def shown(self, name: str, columns: int, **env: str) -> str:
        code, seen = in_terminal(
            self.words(name), columns=columns, cwd=self.path, env={**self.env, **env}, until=SECOND
        )
        assert code == 130, seen
        return seen


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return Folder(tmp_path_factory.mktemp("live"))


def test_in_40_columns_the_live_line_is_one_line_of_whole_parts(folder: Folder) -> None:
    seen = folder.shown("narrow", 40)
    live = [line for line in plain(seen).split("\n") if line.startswith("trial 0: ")]
    assert len({line.split(" | ")[0] for line in live}) >= 2  # starting the server, measuring
    assert max(map(len, live)) <= 40
    for line in live:
        parts = line.split(" | ")
        assert all(part.endswith(("left", "yet", "failed", "baseline")) for part in parts[1:]), line
    # A line that were one too long would leave its beginning behind at each look.
    assert seen.count("\x1b[2K") >= len(live)
    assert "trial   0  vLLM's defaults" in plain(seen)


def test_without_colour_there_is_none_and_the_line_is_there(folder: Folder) -> None:
    seen = folder.shown("plain", 80, NO_COLOR="1")
    assert colours(seen) == set()
    assert "trial 0: starting the server | " in plain(seen)
    assert "measured  out_tok_s@2" in plain(seen)


def test_on_a_dumb_terminal_there_are_lines_alone(folder: Folder) -> None:
    seen = folder.shown("dumb", 80, TERM="dumb")
    assert "\x1b" not in seen
    assert "trial 0: " not in seen
    assert "trial   0  vLLM's defaults" in seen


def test_in_a_pipe_there_are_the_same_lines(folder: Folder) -> None:
    with subprocess.Popen(
        folder.words("pipe"), cwd=folder.path, env={**os.environ, **folder.env}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as running:  # fmt: skip
        assert running.stderr is not None
        seen = ""
        for line in running.stderr:
            seen += line
            if SECOND in line:
                running.send_signal(signal.SIGINT)
                break
        rest, more = running.communicate(timeout=60)
    assert running.returncode == 130, seen
    assert "\x1b" not in seen + rest + more
    assert "\r" not in seen
    assert "trial 0: " not in seen
    assert "trial   0  vLLM's defaults" in seen
