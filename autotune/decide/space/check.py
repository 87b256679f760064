"""What is wrong with a search space, as far as that can be told without starting a server."""

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from autotune.decide.space.effects import no_effect
from autotune.decide.space.sampling import draw
from autotune.domain.machine import FlagFact, VllmInstall
from autotune.domain.space import (
    CategoricalDomain,
    Configuration,
    Json,
    Parameter,
    SearchSpace,
    Target,
    TargetKind,
    Value,
)
from autotune.errors import ExpressionError

DRAWS = 500
"""Random configurations looked at. A part of the space that holds 1 % of it is missed in 0.7 % of checks."""


class Severity(StrEnum):
    """What a finding means for a study in this space."""

    ERROR = "error"
    """It cannot work: trials would fail, or nothing could be tried."""
    WARNING = "warning"
    """It works, and something in it does nothing."""
    INFO = "info"
    """Something could not be checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing found; `key` is the place as the file names it, `text` one sentence."""

    severity: Severity
    key: str
    text: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.key}: {self.text}"


def check_space(space: SearchSpace, vllm: VllmInstall) -> tuple[Finding, ...]:
    """All findings, in the order of the space; empty when nothing is wrong."""
    settings = list(_settings(space))
    findings: list[Finding] = []
    if vllm.flags is None:
        text = "this vLLM could not be asked for its flags, so that none of them were checked"
        findings.append(Finding(severity=Severity.INFO, key="flags", text=text))
    for key, target, values in settings:
        findings += _check_flag(vllm, key, target, values)
        reason = no_effect(target.name, vllm.device)
        if reason is not None:
            findings.append(_warning(key, f"{target.name} has no effect here: {reason}"))
    findings += _check_baseline(space)
    findings += _check_draws(space)
    return tuple(findings)


def _error(key: str, text: str) -> Finding:
    return Finding(severity=Severity.ERROR, key=key, text=text)


def _warning(key: str, text: str) -> Finding:
    return Finding(severity=Severity.WARNING, key=key, text=text)


def _settings(space: SearchSpace) -> Iterator[tuple[str, Target, list[Json]]]:
    """Each parameter and fixed setting with the values it puts on the command line, as far as listed."""
    for parameter in space.parameters:
        yield f"parameters.{parameter.name}", parameter.target, [*_shown_values(parameter)]
    for fixed in space.fixed:
        table = "env" if fixed.target.kind is TargetKind.ENV else "flags"
        yield f"fixed.{table}.{fixed.target.name.removeprefix('--')}", fixed.target, [fixed.value]


def _shown_values(parameter: Parameter) -> list[Value]:
    """The choices that reach the command line; of a range, its two ends."""
    match parameter.domain:
        case CategoricalDomain(choices=choices):
            return [c for c in choices if not any(type(o) is type(c) and o == c for o in parameter.omit)]
        case domain:
            return [domain.low, domain.high]


def _check_flag(vllm: VllmInstall, key: str, target: Target, values: list[Json]) -> Iterator[Finding]:
    """Whether this vLLM has the flag and takes the values."""
    if vllm.flags is None or target.kind is TargetKind.ENV:
        return
    fact = vllm.flags.get(target.name)
    if fact is None:
        near = difflib.get_close_matches(target.name, vllm.flags, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        yield _error(key, f"vLLM {vllm.version} has no {target.name}{hint}")
        return
    if target.kind is TargetKind.JSON:
        return
    switch = "--no-" + target.name.removeprefix("--")
    for value in values:
        if value is False and switch not in vllm.flags:
            yield _error(key, f"vLLM {vllm.version} has no {switch}, which false would need: omit false")
        elif not isinstance(value, bool) and switch in vllm.flags:
            yield _error(key, f"{target.name} is a switch of vLLM and takes no {value!r}: use true and false")
        elif not isinstance(value, bool):
            yield from _check_choice(fact, key, value)


def _check_choice(fact: FlagFact, key: str, value: Json) -> Iterator[Finding]:
    if fact.choices is None:
        return
    for item in value if isinstance(value, list) else [value]:
        if str(item) not in fact.choices:
            allowed = ", ".join(fact.choices)
            yield _error(key, f"{fact.name} does not take {item!r}; vLLM allows {allowed}")


def _check_baseline(space: SearchSpace) -> Iterator[Finding]:
    """Whether the first trial, which has the fixed settings alone, lies in the space."""
    fixed = {str(setting.target): setting.value for setting in space.fixed}
    values: dict[str, Value] = {}
    for parameter in space.parameters:
        value = fixed.get(str(parameter.target))
        if value is None or isinstance(value, list | dict):
            continue
        values[parameter.name] = value
        if value not in parameter.domain:
            key = f"parameters.{parameter.name}"
            yield _warning(key, f"its fixed value {value!r}, that of the first trial, is not in its range")
    try:
        broken = space.violated(Configuration(values=values))
    except ExpressionError as error:
        yield _error("constraints", str(error))
        return
    if broken is not None:
        yield _error("constraints", f"the fixed settings alone break `{broken.require.source}`")


def _check_draws(space: SearchSpace) -> Iterator[Finding]:
    """What random configurations show: nothing allowed, never active, two parameters at one target."""
    rng = Random(0)  # noqa: S311 - a check must say the same each time
    active: set[str] = set()
    clashes: dict[tuple[str, str], None] = {}
    broken_by: dict[str, int] = {}
    try:
        for _ in range(DRAWS):
            configuration = draw(space, rng)
            active |= configuration.values.keys()
            clashes |= dict.fromkeys(_clashes(space, configuration))
            broken = space.violated(configuration)
            source = broken.require.source if broken else ""
            broken_by[source] = broken_by.get(source, 0) + 1
    except ExpressionError as error:
        yield _error("constraints", str(error))
        return
    for first, second in clashes:
        yield _error(f"parameters.{second}", f"is active together with {first}, which sets the same thing")
    for parameter in space.parameters:
        if parameter.name not in active and parameter.when is not None:
            text = f"is never active: `{parameter.when.source}` is true in none of {DRAWS} configurations"
            yield _warning(f"parameters.{parameter.name}", text)
    if "" not in broken_by:
        most = max(broken_by, key=lambda source: broken_by[source])
        text = f"none of {DRAWS} random configurations keeps all of them; most break `{most}`"
        yield _error("constraints", text)


def _clashes(space: SearchSpace, configuration: Configuration) -> Iterator[tuple[str, str]]:
    """Pairs of active parameters with one target."""
    seen: dict[Target, str] = {}
    for name in configuration.values:
        target = space.parameter(name).target
        if target in seen:
            yield seen[target], name
        seen[target] = name
