"""Reads what is learned from which failure. `docs/lessons.md` says how to write it."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import autotune
from autotune.decide.lessons.book import LessonBook, Region, Teaching
from autotune.domain.failure import FailureKind, Phase
from autotune.domain.lesson import LessonForm
from autotune.domain.space import Value
from autotune.files.toml import Table, read_toml

LESSONS = Path(autotune.__file__).parent / "rules" / "lessons.toml"
"""The knowledge that comes with autotune."""

_E = TypeVar("_E", bound=StrEnum)


def read_lessons(path: Path = LESSONS) -> LessonBook:
    """The knowledge in the file at `path`; raises FileError that names the entry, its key and the fault."""
    file = read_toml(path, path.name)
    file.only("schema", "region", "lesson")
    regions = file.table("region")
    known = {name: _region(regions.table(name)) for name in regions}
    return LessonBook(teachings=tuple(_teaching(table, known) for table in file.tables("lesson")))


def _region(table: Table) -> Region:
    table.only("at_most", "at_least", "same", "extra", "free")
    free = table.table("free")
    return Region(
        at_most=_texts(table, "at_most"),
        at_least=_texts(table, "at_least"),
        same=_texts(table, "same"),
        extra=_texts(table, "extra"),
        free={name: _values(free, name) for name in free},
    )


def _teaching(table: Table, regions: Mapping[str, Region]) -> Teaching:
    table.only(
        *("form", "rules", "kind", "phases", "when_set", "forbids", "same"),
        *("named_by", "valued_by", "any_value", "region"),
    )
    if ("rules" in table) == ("kind" in table):
        raise table.error(None, "needs either `rules` or `kind`")
    if not any(key in table for key in ("forbids", "same", "named_by", "valued_by", "region")):
        raise table.error(None, "forbids nothing: add `forbids`, `same`, `named_by`, `valued_by` or `region`")
    region = table.text("region")
    if region is not None and region not in regions:
        raise table.error("region", f"there is no region {region!r}")
    return Teaching(
        form=_member(table, "form", table.text("form"), LessonForm),
        rules=frozenset(_texts(table, "rules")),
        kind=_member(table, "kind", table.text("kind"), FailureKind) if "kind" in table else None,
        phases=frozenset(_member(table, "phases", text, Phase) for text in _texts(table, "phases")),
        when_set=_texts(table, "when_set"),
        forbids=_texts(table, "forbids"),
        same=_texts(table, "same"),
        named_by=table.text("named_by"),
        valued_by=table.text("valued_by"),
        any_value=table.truth("any_value") or False,
        region=regions[region] if region is not None else None,
    )


def _texts(table: Table, key: str) -> tuple[str, ...]:
    values = _values(table, key)
    texts = tuple(value for value in values if isinstance(value, str) and value)
    if len(texts) != len(values):
        raise table.error(key, "must be a list of texts that are not empty")
    return texts


def _values(table: Table, key: str) -> tuple[Value, ...]:
    items = table.sequence(key) or ()
    values = tuple(item for item in items if isinstance(item, bool | int | float | str))
    if len(values) != len(items):
        raise table.error(key, "must be a list of numbers, texts, true or false")
    return values


def _member(table: Table, key: str, text: str | None, of: type[_E]) -> _E:
    members: Iterable[_E] = of
    for member in members:
        if member.value == text:
            return member
    raise table.error(key, f"must be one of {', '.join(m.value for m in members)}, but is {text!r}")
