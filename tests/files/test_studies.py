from pathlib import Path

import pytest

from autotune.domain.study import Limits
from autotune.domain.workload import Lengths, Workload
from autotune.errors import FileError, UserError
from autotune.files.shipped import STUDIES, shipped_folder
from autotune.files.spaces import load_space
from autotune.files.studies import load_study
from autotune.files.workloads import load_workload


def write(folder: Path, text: str) -> None:
    (folder / "s.toml").write_text(text)


def test_everything_a_study_can_say(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
schema = 1
name = "night-1"
search_space = "spaces/mine.toml"
objectives = ["ttft_p95@4", "out_tok_s@2"]
metric_limits = ["ttft_p95@4 <= 2 s", "out_tok_s@2>=50"]
seed = 7
budget_s = 3600
[workload]
prompt_tokens = 100
output_tokens = 20
streams = [2, 4]
prompts = 5
seed = 3
min_window_s = 1
max_window_s = 2.5
[limits]
startup_s = 60
smoke_s = 5.5
stop_grace_s = 3
retries = 0
isolation_launches = 3
control_every = 9
finalists = 2
max_blocks = 5
memory_floor_bytes = 2147483648
""",
    )
    study = load_study("s.toml", tmp_path)
    assert (study.name, study.search_space, study.seed, study.budget_s) == (
        "night-1",
        "spaces/mine.toml",
        7,
        3600.0,
    )
    assert list(map(str, study.objectives)) == ["ttft_p95@4", "out_tok_s@2"]
    assert list(map(str, study.metric_limits)) == ["ttft_p95@4<=2s", "out_tok_s@2>=50"]
    assert study.workload == Workload(
        prompt_tokens=Lengths.fixed(100),
        output_tokens=Lengths.fixed(20),
        streams=(2, 4),
        prompts=5,
        seed=3,
        min_window_s=1.0,
        max_window_s=2.5,
    )
    assert study.limits == Limits(
        startup_s=60.0,
        smoke_s=5.5,
        stop_grace_s=3.0,
        retries=0,
        isolation_launches=3,
        control_every=9,
        finalists=2,
        max_blocks=5,
        memory_floor_bytes=2 * 2**30,
    )


def test_what_a_study_does_not_say_is_the_default(tmp_path: Path) -> None:
    write(tmp_path, "schema = 1\n")
    study = load_study("s.toml", tmp_path)
    assert study.name == "s"
    assert study.search_space is None
    assert study.budget_s is None
    assert study.workload == Workload()
    assert study.limits == Limits()
    assert list(map(str, study.objectives)) == [f"out_tok_s@{Workload().streams[-1]}", "out_tok_s@1"]


WRONG = {
    "no schema": ("", "schema", "is missing"),
    "unknown key": ("objective = 'x'", "objective", "did you mean `objectives`?"),
    "no metric": ("objectives = ['speed@1']", "objectives", "is no metric; choose from out_tok_s"),
    "objective not measured": (
        "objectives = ['out_tok_s@3']",
        "objectives",
        "stream counts are 1, 2, 4, 8, 16",
    ),
    "objective twice": ("objectives = ['req_s@1', 'req_s@1']", "objectives", "named twice"),
    "objective of another type": ("objectives = [1]", "objectives", "is no metric"),
    "no objective": ("objectives = []", "objectives", "not empty"),
    "no limit": ("metric_limits = ['ttft_p95@1']", "metric_limits", "write METRIC@STREAMS<=VALUE"),
    "limit not measured": (
        "metric_limits = ['req_s@3>=1']",
        "metric_limits",
        "req_s@3 is not measured; the stream counts are 1, 2, 4, 8, 16",
    ),
    "limit twice": ("metric_limits = ['req_s@1>=1', 'req_s@1>=2']", "metric_limits", "second limit"),
    "name that is a path": ("name = '../x'", "name", "must be letters"),
    "seed a text": ("seed = 'x'", "seed", "whole number"),
    "budget 0": ("budget_s = 0", "budget_s", "above 0"),
    "budget with a unit": ("budget_s = '4h'", "budget_s", "whole number"),
    "falling streams": ("workload.streams = [2, 1]", "workload", "`streams` must be rising"),
    "stream 0": ("workload.streams = [0, 1]", "workload", "`streams` must be rising"),
    "streams no numbers": ("workload.streams = [1, 2.5]", "workload.streams", "whole numbers"),
    "streams true": ("workload.streams = [true]", "workload.streams", "whole numbers"),
    "no prompt": ("workload.prompt_tokens = 0", "workload.prompt_tokens", "must be at least 1"),
    "lengths": ("workload.output_tokens.min = 9", "workload.output_tokens.max", "is missing"),
    "windows": ("workload.min_window_s = 99", "workload", "`max_window_s` must hold"),
    "unknown part of the workload": ("workload.stream = [1]", "workload.stream", "did you mean `streams`?"),
    "unknown workload": ("workload = 'heavy'", "workload", "no workload is called 'heavy'; there are agent"),
    "workload a number": ("workload = 7", "workload", "must be a text in quotes"),
    "no time to start": ("limits.startup_s = 0", "limits.startup_s", "above 0"),
    "negative launches": ("limits.isolation_launches = -1", "limits.isolation_launches", "0 or more"),
    "negative retries": ("limits.retries = -1", "limits.retries", "0 or more"),
    "negative controls": ("limits.control_every = -1", "limits.control_every", "0 or more"),
    "negative finalists": ("limits.finalists = -1", "limits.finalists", "0 or more"),
    "one block": ("limits.max_blocks = 1", "limits.max_blocks", "2 or more"),
    "negative floor": ("limits.memory_floor_bytes = -1", "limits.memory_floor_bytes", "0 (no watch) or more"),
    "unknown limit": ("limits.startup = 1", "limits.startup", "did you mean `startup_s`?"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_files(case: str, tmp_path: Path) -> None:
    line, key, told = WRONG[case]
    write(tmp_path, f"schema = 1\n{line}\n" if line else "name = 'x'\n")
    with pytest.raises(FileError) as caught:
        load_study("s.toml", tmp_path)
    assert (caught.value.path, caught.value.key) == ("s.toml", key)
    assert told in caught.value.problem


def test_a_workload_by_its_name_or_its_file(tmp_path: Path) -> None:
    write(tmp_path, "schema = 1\nworkload = 'rag'\nobjectives = ['ttft_p95@1']")
    assert load_study("s.toml", tmp_path).workload == load_workload("rag", tmp_path)
    (tmp_path / "mine.toml").write_text("schema = 1\nprompt_tokens = 5\nstreams = [3]")
    write(tmp_path, "schema = 1\nworkload = 'mine.toml'")
    study = load_study("s.toml", tmp_path)
    assert (study.workload.name, study.workload.prompt_tokens) == ("mine", Lengths.fixed(5))
    assert list(map(str, study.objectives)) == ["out_tok_s@3"]


def test_an_error_in_a_workload_by_its_name_is_told_of_its_own_file(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("schema = 1\nturn = 5")
    write(tmp_path, "schema = 1\nworkload = 'mine.toml'")
    with pytest.raises(FileError, match=r"^mine\.toml: turn: there is no such key; did you mean `turns`\?"):
        load_study("s.toml", tmp_path)


def test_the_prompts_of_a_study_lie_beside_it(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/own.jsonl").write_text('{"prompt": "x"}\n')
    (tmp_path / "sub/s.toml").write_text("schema = 1\nworkload.source = 'own.jsonl'")
    workload = load_study("sub/s.toml", tmp_path).workload
    assert workload.source == str(tmp_path / "sub/own.jsonl")


def test_an_unknown_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no study is called 'nope'; there are .*quickstart"):
        load_study("nope", tmp_path)


SHIPPED = sorted(path.stem for path in shipped_folder(STUDIES).glob("*.toml"))


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_studies_have_their_space(name: str, tmp_path: Path) -> None:
    study = load_study(name, tmp_path)
    assert study.name == name
    if study.search_space is not None:
        load_space(study.search_space, tmp_path)


def test_the_quickstart_leaves_time_for_some_trials(tmp_path: Path) -> None:
    study = load_study("quickstart", tmp_path)
    assert study.budget_s is not None
    # Half a minute to start, and at most the longest window with as much warm-up for each stream count.
    trial_s = 30 + len(study.workload.streams) * 2 * study.workload.max_window_s
    assert study.budget_s / trial_s >= 4
