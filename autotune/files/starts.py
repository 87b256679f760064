"""Reads what is known of good settings, from which start points are made. `docs/search-spaces.md` says how to
write it.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import autotune
from autotune.decide.start_book import FACTS, OF_THE_SETTING, Expert, Flip, StartBook, Usual, Wish
from autotune.domain.expression import Expression
from autotune.domain.expression_kinds import Kind, check_kinds
from autotune.domain.space import Json
from autotune.errors import ExpressionError
from autotune.files.rules import required, texts
from autotune.files.toml import Table, read_toml

STARTS = Path(autotune.__file__).parent / "rules" / "starts.toml"
"""The knowledge that comes with autotune."""

_SETTING = re.compile(r"[A-Za-z][A-Za-z0-9]*(_{1,2}[A-Za-z0-9]+)*")


def read_starts(path: Path = STARTS) -> StartBook:
    """The knowledge in the file at `path`; raises FileError that names the entry, its key and the fault."""
    file = read_toml(path, path.name)
    file.only("schema", "default", "base", "expert", "flip")
    return StartBook(
        defaults=tuple(_usual(table) for table in file.tables("default")),
        base=tuple(_usual(table) for table in file.tables("base")),
        experts=tuple(_expert(table) for table in file.tables("expert")),
        flips=tuple(_flip(table) for table in file.tables("flip")),
    )


def _usual(table: Table) -> Usual:
    table.only("setting", "value", "when", "source")
    required(table, "source")
    if "value" not in table:
        raise table.error("value", "is missing")
    value = _wish(table, "value", table.json("value"))
    return Usual(setting=_setting(table), value=value, when=_when(table))


def _expert(table: Table) -> Expert:
    table.only("name", "settings", "needs", "when", "why", "source")
    required(table, "source")
    settings = _wishes(table, "settings")
    if not settings:
        raise table.error("settings", "is missing or empty: it gives settings their values")
    needs = frozenset(texts(table, "needs"))
    if needs - settings.keys():
        raise table.error("needs", f"{min(needs - settings.keys())} is not among its settings")
    return Expert(
        name=required(table, "name"),
        settings=settings,
        why=required(table, "why"),
        needs=needs,
        when=_when(table),
    )


def _flip(table: Table) -> Flip:
    table.only("setting", "values", "also", "when", "why", "source")
    required(table, "source")
    setting, also = _setting(table), _wishes(table, "also")
    if setting in also:
        raise table.error("also", f"{setting} is what is flipped")
    table.sequence("values")
    values = table.json("values") if "values" in table else None
    if not isinstance(values, list):
        raise table.error("values", "is missing: it lists the values to try, each alone")
    return Flip(
        setting=setting,
        values=tuple(_wish(table, "values", value) for value in values),
        why=required(table, "why"),
        also=also,
        when=_when(table),
    )


def _setting(table: Table) -> str:
    return _checked(table, "setting", required(table, "setting"))


def _checked(table: Table, key: str, setting: str) -> str:
    """`setting` as vLLM's name of one: not `--max-num-seqs`, which would match no parameter."""
    if not _SETTING.fullmatch(setting):
        written = setting.lstrip("-").replace("-", "_").replace(".", "__")
        hint = f": write {written}" if _SETTING.fullmatch(written) else ""
        raise table.error(key, f"{setting!r} is not how a setting is written here{hint}")
    return setting


def _wishes(table: Table, key: str) -> Mapping[str, Wish]:
    """Values by setting."""
    inner = table.table(key)
    return {_checked(inner, name, name): _wish(inner, name, inner.json(name)) for name in inner}


def _wish(table: Table, key: str, value: Json) -> Wish:
    """A value as it stands, or what a text that begins with `=` is worked out to be."""
    if isinstance(value, str) and value.startswith("="):
        return _expression(table, key, value[1:].strip(), {**FACTS, **OF_THE_SETTING}, None)
    if isinstance(value, dict | list | None):
        raise table.error(key, f"must be a number, a text, true or false, but is {value!r}")
    return value


def _when(table: Table) -> Expression | None:
    source = table.text("when")
    return None if source is None else _expression(table, "when", source, FACTS, Kind.BOOL)


def _expression(
    table: Table, key: str, source: str, kinds: Mapping[str, Kind | None], wanted: Kind | None
) -> Expression:
    try:
        expression = Expression.parse(source)
        unknown = sorted(expression.names - kinds.keys())
        if unknown:
            raise table.error(key, f"nothing is known as `{unknown[0]}`; there are {', '.join(kinds)}")
        check_kinds(expression, kinds, wanted)
    except ExpressionError as error:
        raise table.error(key, str(error)) from None
    return expression
