"""The exported script, run by a real shell."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from builders import BEGIN, info, measured, objectives, record

from autotune.decide.verdict import Verdict, verdict
from autotune.domain.trial import Origin, TrialRecord
from autotune.report.launch_file import launch_script

NASTY = [
    "a b",
    "it's",
    '"',
    "$HOME",
    "`id`",
    "%s",
    "\\",
    "{'x': 1}",
    '{"method":"ngram"}',
    "ü\u2028",
    "line\nbreak",
    "",
]


def _record(argv: list[str], env: dict[str, str]) -> TrialRecord:
    base = record(3, measured(s1=10.0, s8=50.0), {"note": "line\nbreak; rm -rf /"})
    return replace(base, argv=tuple(argv), env=env)


def _verdict(records: list[TrialRecord]) -> Verdict:
    found = verdict(records, objectives())
    assert found is not None
    return found


@pytest.fixture
def echo(tmp_path: Path) -> str:
    """A program that prints the words and variables it was started with."""
    program = tmp_path / "echo me"
    program.write_text(
        f"#!{sys.executable}\nimport json, os, sys\nprint(json.dumps([sys.argv[1:], dict(os.environ)]))\n"
    )
    program.chmod(0o755)
    return str(program)


def test_every_value_arrives_as_it_was_measured(tmp_path: Path, echo: str) -> None:
    argv = [echo, "serve", "/models/it's here", *(w for value in NASTY for w in ("--flag", value))]
    env = {f"VALUE_{i}": value for i, value in enumerate(NASTY)}
    script = tmp_path / "launch.sh"
    script.write_text(launch_script(info("evil\nrm -rf /"), _verdict([_record(argv, env)]), BEGIN))
    outside = {"PATH": os.environ["PATH"], "PORT": "9001"}
    done = subprocess.run(["sh", str(script), "--extra"], env=outside, capture_output=True, check=True)
    words, variables = json.loads(done.stdout)
    assert words == [*argv[1:], "--host", "127.0.0.1", "--port", "9001", "--extra"]
    assert {name: variables[name] for name in env} == env


def test_the_header_says_what_was_measured_where(tmp_path: Path) -> None:
    base = record(0, measured(s1=5.0, s8=25.0), {})
    chosen = _record(["vllm", "serve", "/models/tiny"], {})
    text = launch_script(info(), _verdict([base, chosen]), BEGIN)
    for said in (
        "/models/tiny",
        "0.32.0+cpu",
        "host",
        "study    tiny, trial 3",
        "8: 50",
        "8: 25",
        "2026-01-02",
        "looks like 2.00 times vLLM's defaults",
        "not confirmed",
    ):
        assert said in text, said
    comments = [line for line in text.splitlines() if line.startswith("#")]
    assert not any("rm -rf" in line for line in text.splitlines() if line not in comments)


def test_the_header_tells_the_gain_of_finals_with_its_interval(tmp_path: Path) -> None:
    records = [record(0, measured(s1=5.0, s8=25.0), {}), _record(["vllm", "serve", "/models/tiny"], {})]
    for block in range(3):
        for one in records[:2]:
            off = 1 + 0.001 * ((3 * len(records)) % 4)
            points = measured(**{f"s{p.streams}": p.out_tok_s * off for p in one.points})
            more = {"number": len(records), "origin": Origin.FINAL, "block": block, "outcome": points}
            records.append(replace(one, **more))  # type: ignore[arg-type]
    text = launch_script(info(), _verdict(records), BEGIN)
    assert "trial 3" in text
    assert "2.00 times vLLM's defaults in out_tok_s@8 and out_tok_s@1 (geometric mean), 95 % interval" in text
    assert "3 blocks of finals" in text
    assert "not confirmed" not in text
