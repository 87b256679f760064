"""A search space as the content of its own file format, so that a study can keep the space it was begun with.

A space that was derived from machine and model is not in any file, and what it was derived from changes: a
model that had to be downloaded for the first trial is known at the second start.
"""

from collections.abc import Mapping

from autotune.domain.space import (
    CategoricalDomain,
    Domain,
    FloatDomain,
    IntDomain,
    Json,
    OwnStart,
    Parameter,
    SearchSpace,
    TargetKind,
    Value,
)
from autotune.files.spaces import read_space
from autotune.files.toml import SCHEMA, Table


def space_document(space: SearchSpace) -> dict[str, Json]:
    """What a file with this space would hold; `read_document` makes the same space of it."""
    flags = {f.target.name: f.value for f in space.fixed if f.target.kind is TargetKind.FLAG}
    env = {f.target.name: f.value for f in space.fixed if f.target.kind is TargetKind.ENV}
    constraints: list[Json] = [{"require": c.require.source, "why": c.why} for c in space.constraints]
    starts: list[Json] = [_start(start) for start in space.starts]
    return {
        "schema": SCHEMA,
        "name": space.name,
        "parameters": {parameter.name: _parameter(parameter) for parameter in space.parameters},
        "constraints": constraints,
        "fixed": {"flags": flags, "env": env},
        **({"start": starts} if starts else {}),
    }


def read_document(document: Mapping[str, Json], where: str) -> SearchSpace:
    """The space that `space_document` described. Raises FileError, naming `where` it was kept."""
    content = {key: value for key, value in document.items() if key != "schema"}
    return read_space(Table(where, "", content), "kept")


def _parameter(parameter: Parameter) -> dict[str, Json]:
    spec = _domain(parameter.domain)
    target = parameter.target
    spec[target.kind.value] = ".".join((target.name, *target.keys))
    if parameter.when is not None:
        spec["when"] = parameter.when.source
    if parameter.omit:
        omit: list[Json] = [*parameter.omit]
        spec["omit"] = omit
    return spec


def _start(start: OwnStart) -> dict[str, Json]:
    spec: dict[str, Json] = {"name": start.name, "values": dict(start.configuration.values)}
    return spec if start.why is None else {**spec, "why": start.why}


def _domain(domain: Domain) -> dict[str, Json]:
    match domain:
        case CategoricalDomain(choices=(False, True)):
            return {"type": "bool"}
        case CategoricalDomain(choices=choices):
            listed: list[Json] = [*choices]
            return {"type": "categorical", "choices": listed}
        case IntDomain(low=low, high=high, step=step, log=log):
            return _numeric("int", low, high, step, log)
        case FloatDomain(low=low, high=high, step=step, log=log):
            return _numeric("float", low, high, step, log)


def _numeric(kind: str, low: Value, high: Value, step: Value | None, log: bool) -> dict[str, Json]:
    spec: dict[str, Json] = {"type": kind, "low": low, "high": high, "log": log}
    return spec if step is None else {**spec, "step": step}
