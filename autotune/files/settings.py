"""Reads what a setting of a search space goes to, and the settings that are the same in every trial."""

from collections.abc import Mapping

from autotune.domain.launch import flag_words
from autotune.domain.space import Fixed, Parameter, Target, TargetKind, Value
from autotune.files.refused import refused_env, refused_flag
from autotune.files.toml import Table


def read_target(spec: Table, name: str) -> Target:
    """What the parameter called `name` sets: its `flag`, `env` or `json`, or else the flag of its name."""
    given = [key for key in ("flag", "env", "json") if key in spec]
    if len(given) > 1:
        raise spec.error(given[1], f"cannot be combined with `{given[0]}`: a parameter sets one thing")
    key = given[0] if given else None
    try:
        match key:
            case "env":
                target = Target(kind=TargetKind.ENV, name=spec.text("env") or "")
            case "json":
                flag, *keys = (spec.text("json") or "").split(".")
                if not keys:
                    raise spec.error(key, "must be FLAG.KEY, for example speculative_config.method")
                target = Target(kind=TargetKind.JSON, name=_flag_name(flag), keys=tuple(keys))
            case _:
                target = Target(kind=TargetKind.FLAG, name=_flag_name(spec.text("flag") or name))
    except ValueError as error:
        raise spec.error(key, str(error)) from None
    _refuse(spec, key, target)
    return target


def check_choices(spec: Table, target: Target, choices: tuple[Value, ...]) -> None:
    """Raise FileError for a choice that cannot be written on a command line."""
    if target.kind is TargetKind.FLAG:
        for choice in choices:
            try:
                flag_words(target.name, choice)
            except ValueError as error:
                raise spec.error("choices", str(error)) from None


def _flag_name(name: str) -> str:
    """The flag as vLLM lists it: it reads `--max_num_seqs` as `--max-num-seqs`."""
    return "--" + name.removeprefix("--").replace("_", "-")


def _refuse(table: Table, key: str | None, target: Target) -> None:
    is_env = target.kind is TargetKind.ENV
    reason = refused_env(target.name) if is_env else refused_flag(target.name)
    if reason is not None:
        raise table.error(key, f"{target.name} cannot be set here: {reason}")


def read_fixed(table: Table) -> tuple[Fixed, ...]:
    """The settings under `fixed.flags` and `fixed.env`, none of them twice."""
    table.only("flags", "env")
    settings: dict[Target, Fixed] = {}
    for section, kind in (("flags", TargetKind.FLAG), ("env", TargetKind.ENV)):
        for name in table.table(section):
            fixed = _fixed(table.table(section), name, kind)
            if fixed.target in settings:
                raise table.table(section).error(name, f"{fixed.target} is set twice")
            settings[fixed.target] = fixed
    return tuple(settings.values())


def _fixed(settings: Table, name: str, kind: TargetKind) -> Fixed:
    try:
        target = Target(kind=kind, name=name if kind is TargetKind.ENV else _flag_name(name))
        _refuse(settings, name, target)  # before the value is read, so that no error can show a secret
        value = settings.json(name)
        if kind is TargetKind.FLAG:
            flag_words(target.name, value)
    except ValueError as error:
        raise settings.error(name, str(error)) from None
    if kind is TargetKind.ENV and isinstance(value, dict | list):
        raise settings.error(name, "a variable is a text, a number, true or false")
    return Fixed(target=target, value=value)


def check_keys(table: Table, parameters: Mapping[str, Parameter], fixed: tuple[Fixed, ...]) -> None:
    """Raise FileError where a JSON key would lead into something that is no object."""
    values = {setting.target.name: setting.value for setting in fixed}
    for name, parameter in parameters.items():
        target = parameter.target
        if target.kind is not TargetKind.JSON:
            continue
        for other in parameters.values():
            if other.target.name == target.name and _leads_into(other.target.keys, target.keys):
                raise table.error(
                    name, f"{target} is inside {other.target}, which {other.name} sets as a whole"
                )
        node = values.get(target.name)
        for key in target.keys:
            if node is not None and not isinstance(node, dict):
                raise table.error(name, f"{target} leads into {node!r}, which is fixed and no JSON object")
            node = node.get(key) if node else None


def _leads_into(outer: tuple[str, ...], inner: tuple[str, ...]) -> bool:
    return len(outer) < len(inner) and inner[: len(outer)] == outer
