"""Reads a search space from TOML. The format is described in docs/search-spaces.md."""

import keyword
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from autotune.domain.expression import Expression
from autotune.domain.expression_kinds import Kind, check_kinds, kind_of
from autotune.domain.space import (
    CategoricalDomain,
    Configuration,
    Constraint,
    Domain,
    FloatDomain,
    IntDomain,
    OwnStart,
    Parameter,
    SearchSpace,
    Value,
)
from autotune.errors import ExpressionError
from autotune.files.settings import check_choices, check_keys, read_fixed, read_target
from autotune.files.shipped import SEARCH_SPACES, find, shown
from autotune.files.toml import Table, read_toml

_COMMON = ("type", "flag", "env", "json", "when", "omit")
_DOMAIN_KEYS = {
    "int": ("low", "high", "step", "log"),
    "float": ("low", "high", "step", "log"),
    "categorical": ("choices",),
    "bool": (),
}


def load_space(ref: str, cwd: Path) -> SearchSpace:
    """The search space that `ref` means: a path or a name, see `autotune.files.shipped.find`.

    Raises FileError for the first thing in the file that is not allowed, UserError for an unknown name.
    """
    path = find(SEARCH_SPACES, ref, cwd)
    return read_space(read_toml(path, shown(path, cwd)), path.stem)


def read_space(file: Table, name: str) -> SearchSpace:
    """The search space that `file` holds, called `name` unless it says another. Raises FileError."""
    file.only("schema", "name", "parameters", "constraints", "fixed", "start")
    parameters: dict[str, Parameter] = {}
    for parameter in file.table("parameters"):
        parameters[parameter] = _parameter(file.table("parameters"), parameter, parameters)
    if not parameters:
        raise file.error("parameters", "is missing or empty: there is nothing to search")
    fixed = read_fixed(file.table("fixed"))
    check_keys(file.table("parameters"), parameters, fixed)
    kinds = _kinds(parameters)
    space = SearchSpace(
        name=file.text("name") or name,
        parameters=tuple(parameters.values()),
        constraints=tuple(_constraint(table, kinds) for table in file.tables("constraints")),
        fixed=fixed,
    )
    return replace(space, starts=tuple(_start(table, space) for table in file.tables("start")))


def _parameter(table: Table, name: str, earlier: Mapping[str, Parameter]) -> Parameter:
    """The parameter called `name`; `earlier` are those before it in the file."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name) or name in ("true", "false"):
        raise table.error(
            name, "a parameter is named with a to z, 0 to 9 and _, and by no word of expressions"
        )
    spec = table.table(name)
    kind = spec.text("type")
    if kind not in _DOMAIN_KEYS:
        problem = "is missing" if kind is None else f"{kind!r} is no type"
        raise spec.error("type", f"{problem}; allowed are {', '.join(_DOMAIN_KEYS)}")
    spec.only(*_COMMON, *_DOMAIN_KEYS[kind])
    domain, target = _domain(spec, kind), read_target(spec, name)
    if isinstance(domain, CategoricalDomain):
        check_choices(spec, target, domain.choices)
    when = _expression(spec, "when", _kinds(earlier))
    parameter = Parameter(name=name, domain=domain, target=target, when=when, omit=_omit(spec, domain))
    _check_same_target(spec, parameter, earlier)
    return parameter


def _check_same_target(spec: Table, parameter: Parameter, earlier: Mapping[str, Parameter]) -> None:
    """Raise FileError when an earlier one sets the same, unless both are conditional.

    Such two may exclude each other (draft tokens of two methods); `autotune check` tells whether they do.
    """
    for other in earlier.values():
        if other.target == parameter.target and (other.when is None or parameter.when is None):
            raise spec.error(
                None, f"{parameter.target} is set by {other.name} already; allowed only with a `when` on both"
            )


def _domain(spec: Table, kind: str) -> Domain:
    try:
        match kind:
            case "bool":
                return CategoricalDomain(choices=(False, True))
            case "categorical":
                return CategoricalDomain(choices=_values(spec, "choices"))
            case "int":
                low, high = spec.whole("low"), spec.whole("high")
                if low is not None and high is not None:
                    step = spec.whole("step")
                    log = spec.truth("log") or False
                    return IntDomain(low=low, high=high, step=1 if step is None else step, log=log)
            case _:
                bottom, top = spec.number("low"), spec.number("high")
                if bottom is not None and top is not None:
                    log = spec.truth("log") or False
                    return FloatDomain(low=bottom, high=top, step=spec.number("step"), log=log)
    except ValueError as error:
        raise spec.error(None, str(error)) from None
    raise spec.error("high" if "low" in spec else "low", f"is missing; type {kind!r} needs `low` and `high`")


def _values(spec: Table, name: str) -> tuple[Value, ...]:
    """The scalars of a list that must be there."""
    spec.sequence(name)
    items = spec.json(name) if name in spec else None
    if not isinstance(items, list):
        raise spec.error(name, "is missing: it lists the values to choose from")
    values = tuple(item for item in items if isinstance(item, bool | int | float | str))
    if len(values) != len(items):
        raise spec.error(name, "lists text, numbers, true and false only")
    return values


def _omit(spec: Table, domain: Domain) -> tuple[Value, ...]:
    """The values that put nothing on the command line; all are values the parameter can have."""
    if "omit" not in spec:
        return ()
    value = spec.json("omit")
    values = _values(spec, "omit") if isinstance(value, list) else (value,)
    checked: list[Value] = []
    for item in values:
        if isinstance(item, dict | list | None) or item not in domain:
            raise spec.error("omit", f"{item!r} is not among the values of this parameter")
        checked.append(item)
    return tuple(checked)


def _kinds(parameters: Mapping[str, Parameter]) -> dict[str, Kind | None]:
    return {name: kind_of(parameter.domain) for name, parameter in parameters.items()}


def _expression(table: Table, key: str, kinds: Mapping[str, Kind | None]) -> Expression | None:
    """The expression at `key` over the parameters in `kinds`; None where the key is missing."""
    source = table.text(key)
    if source is None:
        return None
    try:
        expression = Expression.parse(source)
        unknown = sorted(expression.names - kinds.keys())
        if unknown:
            among = ", ".join(kinds) or "none"
            what = "no parameter before this one" if key == "when" else "no parameter"
            raise table.error(key, f"`{unknown[0]}` is {what}; allowed are {among}")
        check_kinds(expression, kinds)
    except ExpressionError as error:
        raise table.error(key, str(error)) from None
    return expression


def _constraint(table: Table, kinds: Mapping[str, Kind | None]) -> Constraint:
    table.only("require", "why")
    require, why = _expression(table, "require", kinds), table.text("why")
    if require is None:
        raise table.error("require", "is missing: it is the expression that must hold")
    if why is None:
        raise table.error("why", "is missing: it tells the reason to whoever finds a trial refused")
    return Constraint(require=require, why=why)


def _start(table: Table, space: SearchSpace) -> OwnStart:
    """A start point of the author, every value of which `space` has and would try."""
    table.only("name", "why", "values")
    name, spec = table.text("name"), table.table("values")
    if name is None:
        raise table.error("name", "is missing: it is what the start point is called")
    spec.only(*(parameter.name for parameter in space.parameters))
    values: dict[str, Value] = {}
    for parameter in space.parameters:
        if parameter.name not in spec:
            continue
        if not space.is_active(parameter, values):
            needs = parameter.when.source if parameter.when else ""
            raise spec.error(parameter.name, f"takes no part here: `{needs}` does not hold for these values")
        values[parameter.name] = _value_of(spec, parameter)
    if not values:
        raise table.error("values", "is missing or empty: it gives parameters their values")
    configuration = Configuration(values=values)
    if (broken := space.violated(configuration)) is not None:
        raise table.error("values", f"break `{broken.require.source}`: {broken.why}")
    return OwnStart(name=name, configuration=configuration, why=table.text("why"))


def _value_of(spec: Table, parameter: Parameter) -> Value:
    """The value that `spec` gives `parameter`; for one of type float a whole number will do."""
    value = spec.number(parameter.name) if isinstance(parameter.domain, FloatDomain) else None
    given = spec.json(parameter.name) if value is None else value
    if isinstance(given, dict | list | None) or given not in parameter.domain:
        raise spec.error(parameter.name, f"{given!r} is not among the values of this parameter")
    return given
