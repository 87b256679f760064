"""Reads a study from TOML: what is measured, what is best, and how long a trial may take."""

import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TypeVar

from autotune.domain.metric_limit import MetricLimit, parse_metric_limits
from autotune.domain.objective import Objective, default_objectives
from autotune.domain.study import Limits
from autotune.domain.workload import Workload
from autotune.errors import UserError
from autotune.files.shipped import STUDIES, find, shown
from autotune.files.toml import Table, read_toml
from autotune.files.workloads import study_workload

T = TypeVar("T")

_KEYS = (
    *("schema", "name", "search_space", "objectives", "metric_limits", "seed", "budget_s"),
    *("workload", "limits"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFile:
    """What a study file says; the model, and what is None here, come from the command line."""

    name: str
    search_space: str | None
    """A path or a name for `load_space`; None for the default space of the machine."""
    workload: Workload
    objectives: tuple[Objective, ...]
    seed: int
    limits: Limits
    budget_s: float | None
    metric_limits: tuple[MetricLimit, ...] = ()


def load_study(ref: str, cwd: Path) -> StudyFile:
    """The study that `ref` means: a path or a name, see `autotune.files.shipped.find`.

    Raises FileError for the first thing in the file that is not allowed, UserError for an unknown name.
    """
    path = find(STUDIES, ref, cwd)
    file = read_toml(path, shown(path, cwd))
    file.only(*_KEYS)
    workload = study_workload(file, path.parent, cwd)
    budget_s = file.number("budget_s")
    if budget_s is not None and budget_s <= 0:
        raise file.error("budget_s", f"must be above 0 seconds, but is {budget_s}")
    name = file.text("name") or path.stem
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise file.error("name", f"must be letters, digits, `.`, `_` and `-`, but is {name!r}")
    return StudyFile(
        name=name,
        search_space=file.text("search_space"),
        workload=workload,
        objectives=_objectives(file, workload),
        seed=file.whole("seed") or 0,
        limits=_limits(file.table("limits")),
        budget_s=budget_s,
        metric_limits=_metric_limits(file, workload),
    )


def _objectives(file: Table, workload: Workload) -> tuple[Objective, ...]:
    texts = file.sequence("objectives")
    if texts is None:
        return default_objectives(workload.streams)
    objectives: list[Objective] = []
    for text in texts:
        try:
            objective = Objective.parse(str(text))
        except UserError as error:
            raise file.error("objectives", str(error)) from None
        _check_measured(file, "objectives", objective, workload)
        if objective in objectives:
            raise file.error("objectives", f"{objective} is named twice")
        objectives.append(objective)
    return tuple(objectives)


def _metric_limits(file: Table, workload: Workload) -> tuple[MetricLimit, ...]:
    try:
        limits = parse_metric_limits(map(str, file.sequence("metric_limits") or ()))
    except UserError as error:
        raise file.error("metric_limits", str(error)) from None
    for limit in limits:
        _check_measured(file, "metric_limits", limit.measured, workload)
    return limits


def _check_measured(file: Table, key: str, objective: Objective, workload: Workload) -> None:
    if objective.streams not in workload.streams:
        counts = ", ".join(map(str, workload.streams))
        raise file.error(key, f"{objective} is not measured; the stream counts are {counts}")


def _limits(table: Table) -> Limits:
    table.only(*(field.name for field in fields(Limits)))
    default = Limits()
    limits = Limits(
        startup_s=_or(table.number("startup_s"), default.startup_s),
        smoke_s=_or(table.number("smoke_s"), default.smoke_s),
        stop_grace_s=_or(table.number("stop_grace_s"), default.stop_grace_s),
        retries=_or(table.whole("retries"), default.retries),
        memory_floor_bytes=table.whole("memory_floor_bytes"),
        isolation_launches=_or(table.whole("isolation_launches"), default.isolation_launches),
        control_every=_or(table.whole("control_every"), default.control_every),
        finalists=_or(table.whole("finalists"), default.finalists),
        patience=_or(table.whole("patience"), default.patience),
        max_blocks=_or(table.whole("max_blocks"), default.max_blocks),
    )
    for name in ("startup_s", "smoke_s", "stop_grace_s"):
        if getattr(limits, name) <= 0:
            raise table.error(name, f"must be above 0 seconds, but is {getattr(limits, name)}")
    for name in ("retries", "isolation_launches", "control_every", "finalists", "patience"):
        if getattr(limits, name) < 0:
            raise table.error(name, f"must be 0 or more, but is {getattr(limits, name)}")
    if limits.max_blocks < 2:
        raise table.error("max_blocks", f"must be 2 or more, but is {limits.max_blocks}")
    if limits.memory_floor_bytes is not None and limits.memory_floor_bytes < 0:
        floor = limits.memory_floor_bytes
        raise table.error("memory_floor_bytes", f"must be 0 (no watch) or more bytes, but is {floor}")
    return limits


def _or(value: T | None, default: T) -> T:
    return default if value is None else value
