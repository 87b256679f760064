"""Recorded servers as they are read back, and made-up ones of a few lines."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from builders import environment

from autotune.bench.metrics import parse_metrics
from autotune.decide.effective import effective
from autotune.domain.effective import Effective, Observed, ServerMetrics
from autotune.domain.machine import Device, Environment
from autotune.domain.measurement import Point
from autotune.files.effective import VLLM_EFFECTIVE, read_effective
from autotune.files.rules import VLLM_RULES, read_rules

DATA = Path(__file__).parent.parent / "data"
BOOK = read_effective(VLLM_EFFECTIVE)
RULES = read_rules(VLLM_RULES)


def on(device: Device) -> Environment:
    """The environment of the builders (CPUs 0 and 1) with another device."""
    return replace(environment(), vllm=replace(environment().vllm, device=device))


def recorded_metrics(name: str) -> ServerMetrics:
    metrics = parse_metrics((DATA / "metrics" / f"{name}.txt").read_text())
    assert metrics is not None
    return metrics


def read_back(
    log: str,
    argv: Iterable[str] = (),
    env: Mapping[str, str] | None = None,
    *,
    device: Device = Device.CUDA,
    metrics: ServerMetrics | None = None,
    points: tuple[Point, ...] = (),
) -> Effective:
    observed = Observed(argv=tuple(argv), env=env or {}, log=log, metrics=metrics, points=points)
    return effective(observed, BOOK, RULES, on(device))


def recorded(name: str, metrics: ServerMetrics | None = None) -> Effective:
    """A log below tests/data/logs; its first lines hold the command and the variables."""
    log = (DATA / "logs" / f"{name}.log").read_bytes().decode()
    env: dict[str, str] = {}
    argv: tuple[str, ...] = ()
    for line in log.split("\n")[:2]:
        if line.startswith("# env "):
            env = {key: value for key, value in json.loads(line[6:]).items() if value is not None}
        elif line.startswith("# cmd "):
            words, brace, config = line[6:].partition("{")
            argv = (*words.split(), brace + config) if brace else tuple(words.split())
        elif line.startswith("# {"):
            argv = tuple(json.loads(line[2:])["cmd"])
    device = Device.CPU if name.startswith("cpu") else Device.CUDA
    return read_back(log, argv, env, device=device, metrics=metrics)


def info(*bodies: str, level: str = "INFO") -> str:
    """Lines of vLLM's engine."""
    return "\n".join(f"(EngineCore pid=7) {level} 11-30 17:58:33 [some.py:1] {body}" for body in bodies)
