"""Workload files: what they can say, what they may not, and those that come with autotune."""

import hashlib
from pathlib import Path

import pytest

from autotune.decide.space.default_space import MIN_CONTEXT_TOKENS
from autotune.domain.slo import Slo
from autotune.domain.workload import Lengths, Workload
from autotune.errors import FileError, UserError
from autotune.files.shipped import WORKLOADS, shipped_folder
from autotune.files.workloads import load_workload

LINE = '{"prompt": "x"}\n'


def write(folder: Path, text: str) -> None:
    (folder / "w.toml").write_text(f"schema = 1\n{text}\n")


def test_everything_a_workload_can_say(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
name = "night"
prompt_tokens = { min = 100, max = 300 }
output_tokens = { median = 20, sigma = 0.8, min = 4, max = 99 }
streams = [2, 4]
prompts = 5
seed = 3
min_window_s = 1
max_window_s = 2.5
shared_prefix_tokens = 64
prefix_groups = 2
turns = 3
slos = ["ttft_p95=2s", "tpot_p50=50ms"]
""",
    )
    workload = load_workload("w.toml", tmp_path)
    assert workload.name == "night"
    assert workload == Workload(
        prompt_tokens=Lengths(low=100, high=300),
        output_tokens=Lengths(low=4, high=99, median=20.0, sigma=0.8),
        streams=(2, 4),
        prompts=5,
        seed=3,
        min_window_s=1.0,
        max_window_s=2.5,
        shared_prefix_tokens=64,
        prefix_groups=2,
        turns=3,
        slos=(Slo.parse("ttft_p95=2s"), Slo.parse("tpot_p50=50ms")),
    )


def test_what_a_workload_does_not_say_is_the_default(tmp_path: Path) -> None:
    write(tmp_path, "")
    workload = load_workload("w.toml", tmp_path)
    assert workload == Workload()
    assert workload.name == "w"


def test_an_open_loop(tmp_path: Path) -> None:
    write(tmp_path, "rate_per_stream = 0.5")
    assert load_workload("w.toml", tmp_path).rate_per_stream == 0.5


def test_a_range_begins_at_1_where_nothing_is_said(tmp_path: Path) -> None:
    write(tmp_path, "prompt_tokens.max = 300")
    assert load_workload("w.toml", tmp_path).prompt_tokens == Lengths(low=1, high=300)


WRONG = {
    "no tokens": ("prompt_tokens = 0", "prompt_tokens", "must be at least 1, but is 0"),
    "negative tokens": ("output_tokens = -1", "output_tokens", "must be at least 1, but is -1"),
    "tokens a text": ("prompt_tokens = '256-1024'", "prompt_tokens", "must be a whole number"),
    "tokens a list": ("prompt_tokens = [1, 2]", "prompt_tokens", "must be a whole number"),
    "no highest": ("prompt_tokens = { min = 5 }", "prompt_tokens.max", "is missing"),
    "falling": ("prompt_tokens = { min = 5, max = 4 }", "prompt_tokens", "goes from 5 to 4"),
    "no sigma": ("prompt_tokens = { median = 5, max = 9 }", "prompt_tokens", "both median and sigma"),
    "misspelt": ("prompt_tokens = { mean = 5, max = 9 }", "prompt_tokens.mean", "did you mean `median`?"),
    "falling streams": ("streams = [2, 1]", None, "`streams` must be rising"),
    "streams true": ("streams = [true]", "streams", "whole numbers"),
    "no prompts": ("prompts = 0", None, "`prompts` must be at least 1"),
    "no turns": ("turns = 0", None, "`turns` must be at least 1"),
    "open conversation": ("turns = 2\nrate_per_stream = 1", None, "`rate_per_stream` cannot be kept"),
    "no rate": ("rate_per_stream = 0", None, "`rate_per_stream` must be above 0"),
    "unknown key": ("prefix_tokens = 4", "prefix_tokens", "did you mean `shared_prefix_tokens`?"),
    "digest": ("source_digest = 'x'", "source_digest", "there is no such key"),
    "no SLO": ("slos = ['fast']", "slos", "ttft_p95=2s"),
    "SLO a number": ("slos = [2]", "slos", "ttft_p95=2s"),
    "SLO twice": ("slos = ['ttft_p95=2s', 'ttft_p95=1s']", "slos", "second limit for ttft_p95"),
    "no source": ("source = 'gone.jsonl'", None, "cannot be read: No such file"),
    "source in shape": ("source = 'own.jsonl'\nturns = 2", None, "`source` gives whole prompts"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_files(case: str, tmp_path: Path) -> None:
    (tmp_path / "own.jsonl").write_text(LINE)
    text, key, told = WRONG[case]
    write(tmp_path, text)
    with pytest.raises(FileError) as caught:
        load_workload("w.toml", tmp_path)
    assert caught.value.path == ("gone.jsonl" if case == "no source" else "w.toml")
    assert caught.value.key == key
    assert told in caught.value.problem


def test_names_and_paths(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no workload is called 'x'; there are agent, chat, .*\.jsonl file"):
        load_workload("x", tmp_path)
    with pytest.raises(FileError, match="there is no such file"):
        load_workload("x.toml", tmp_path)
    with pytest.raises(FileError, match=r"^x\.jsonl: cannot be read: No such file"):
        load_workload("x.jsonl", tmp_path)
    (tmp_path / "x.json").write_text("[]")
    with pytest.raises(FileError, match=r"x\.json: must be a workload in TOML .* JSON lines \(\.jsonl\)"):
        load_workload("x.json", tmp_path)
    (tmp_path / "workloads").mkdir()
    (tmp_path / "workloads/chat.toml").write_text("schema = 1\nprompts = 7")
    assert load_workload("chat", tmp_path).prompts == 7


def test_prompts_themselves_are_a_workload(tmp_path: Path) -> None:
    (tmp_path / "own.jsonl").write_text(LINE)
    workload = load_workload("own.jsonl", tmp_path)
    assert (workload.name, workload.source) == ("own", str(tmp_path / "own.jsonl"))
    assert workload.source_digest == hashlib.sha256(LINE.encode()).hexdigest()
    assert workload.prompt_tokens.low == 1
    # Nothing that a derived search space does not keep anyway.
    assert workload.context_tokens <= MIN_CONTEXT_TOKENS


def test_a_source_lies_beside_the_file_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/own.jsonl").write_text(LINE)
    (tmp_path / "sub/w.toml").write_text("schema = 1\nsource = 'own.jsonl'\noutput_tokens = 4")
    workload = load_workload("sub/w.toml", tmp_path)
    assert workload.source == str(tmp_path / "sub/own.jsonl")
    assert workload.output_tokens == Lengths.fixed(4)
    # What else holds is the same as for the prompts alone.
    assert workload.prompt_tokens == load_workload("sub/own.jsonl", tmp_path).prompt_tokens


def test_other_prompts_make_another_workload(tmp_path: Path) -> None:
    (tmp_path / "own.jsonl").write_text(LINE)
    before = load_workload("own.jsonl", tmp_path)
    (tmp_path / "moved.jsonl").write_text(LINE)
    assert load_workload("moved.jsonl", tmp_path) == before
    (tmp_path / "own.jsonl").write_text(LINE * 2)
    assert load_workload("own.jsonl", tmp_path) != before


SHIPPED = sorted(path.stem for path in shipped_folder(WORKLOADS).glob("*.toml"))


def test_there_are_shipped_workloads() -> None:
    assert {"chat", "rag", "code", "shared-prefix", "multi-turn", "agent"} <= set(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_workloads(name: str, tmp_path: Path) -> None:
    workload = load_workload(name, tmp_path)
    assert workload.name == name
    assert workload.context_tokens <= MIN_CONTEXT_TOKENS
    text = (shipped_folder(WORKLOADS) / f"{name}.toml").read_text()
    assert text.startswith("# ")
    documented = Path(__file__).parents[2] / "docs/workloads.md"
    assert f"`{name}`" in documented.read_text()
