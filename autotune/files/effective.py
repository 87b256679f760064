"""Reads the file that says how a server is read back. `docs/effective.md` says how to add to it."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import autotune
from autotune.decide.effective import ASKED, DERIVED, Check, EffectiveBook
from autotune.decide.failures.signatures import Versions
from autotune.decide.failures.template import names
from autotune.domain.effective import DifferenceKind
from autotune.domain.expression import Expression
from autotune.domain.failure import Phase
from autotune.domain.machine import Device
from autotune.domain.measurement import ServerCounts
from autotune.errors import ExpressionError
from autotune.files.rules import member, read_fact, release, required, texts
from autotune.files.toml import Table, read_toml

VLLM_EFFECTIVE = Path(autotune.__file__).parent / "rules" / "effective.toml"
"""What comes with autotune."""

_COUNTERS = frozenset(f.name for f in fields(ServerCounts)) - {"out_tok_s"}
"""What the server counts or gauges; its rate follows from that."""
_CHECK_KEYS = (
    *("setting", "fact", "kind", "when", "given", "missing"),
    *("after", "device", "since", "before", "why", "source"),
)


def read_effective(path: Path, shown: str | None = None) -> EffectiveBook:
    """The book in the file at `path`; raises FileError that names the entry, its key and the fault."""
    file = read_toml(path, shown or path.name)
    file.only("schema", "labels", "counters", "fact", "check")
    facts = tuple(read_fact(table) for table in file.tables("fact"))
    labels = _labels(file.table("labels"))
    known = frozenset().union(DERIVED, labels.values(), *(fact.names for fact in facts))
    return EffectiveBook(
        facts=facts,
        labels=labels,
        counters=_counters(file.table("counters")),
        checks=tuple(_check(table, known) for table in file.tables("check")),
    )


def _labels(table: Table) -> Mapping[str, str]:
    return {label: required(table, label) for label in table}


def _counters(table: Table) -> Mapping[str, tuple[str, ...]]:
    table.only(*sorted(_COUNTERS))
    return {name: texts(table, name) for name in table}


def _check(table: Table, known: frozenset[str]) -> Check:
    table.only(*_CHECK_KEYS)
    setting = required(table, "setting")
    fact = table.text("fact")
    if fact is None and setting in known:
        fact = setting
    when = _when(table, setting, fact)
    check = Check(
        setting=setting,
        fact=fact,
        kind=member(table, "kind", DifferenceKind),
        when=when,
        given=texts(table, "given"),
        missing=texts(table, "missing"),
        after=member(table, "after", Phase) if "after" in table else None,
        device=member(table, "device", Device) if "device" in table else None,
        versions=Versions(since=release(table, "since"), before=release(table, "before")),
        why=required(table, "why"),
        source=required(table, "source"),
    )
    _check_names(table, check, known)
    return check


def _when(table: Table, setting: str, fact: str | None) -> Expression:
    """The condition; without one, that what was asked for is not the fact."""
    source = table.text("when")
    if source is None:
        if fact is None:
            raise table.error("when", f"is missing, and there is no fact {setting!r} to compare with")
        source = f"{ASKED}{setting} != {fact}"
    try:
        return Expression.parse(source)
    except ExpressionError as error:
        raise table.error("when", str(error)) from None


def _check_names(table: Table, check: Check, known: frozenset[str]) -> None:
    """Raise FileError for a name that nothing gives a value, or a text that may lack one."""
    outside, inside = names(check.why)
    used = {*check.when.names, *check.given, *check.missing, *outside, *inside}
    used |= {check.fact} if check.fact else set()
    for name in sorted(used):
        if not name.startswith(ASKED) and name not in known:
            raise table.error(None, f"nothing gives {name} a value")
    sure = {*check.when.names, *check.given}
    if outside - sure:
        raise table.error(
            "why", f"{{{min(outside - sure)}}} may have no value: put the words around it in brackets"
        )
