"""Reads a rule file: how failures of vLLM are named. `docs/failures.md` says how to write a rule."""

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import autotune
from autotune.decide.failures.rulebook import FactSign, LogSigns, PhaseSigns, Rules
from autotune.decide.failures.signatures import Rule, RuleIndex, Versions, Weight, release_of
from autotune.decide.failures.template import names
from autotune.domain.expression import Expression
from autotune.domain.failure import Blame, FailureKind, Phase
from autotune.errors import ExpressionError
from autotune.files.toml import Table, read_toml

VLLM_RULES = Path(autotune.__file__).parent / "rules" / "vllm.toml"
"""The rules that come with autotune."""

_RULE_KEYS = (
    *(
        "id",
        "kind",
        "blame",
        "phase",
        "weight",
        "contains",
        "patterns",
        "like",
        "any_frames",
        "given",
        "missing",
    ),
    *(
        "when",
        "shares",
        "reached",
        "since",
        "before",
        "min_level",
        "fatal",
        "confidence",
        "why",
        "cure",
        "source",
    ),
)
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
# A pattern that can try one piece of a line in many ways takes time that grows with a power of its length.
_NESTED_REPEAT = re.compile(r"\((?:[^()\\]|\\.)*[*+}](?:[^()\\]|\\.)*\)[*+{]")
_OPEN_GAP = re.compile(r"(?<!\\)\.[*+]")
_MAX_GAPS = 3
_E = TypeVar("_E", bound=StrEnum)


def read_rules(path: Path, shown: str | None = None) -> Rules:
    """The rules in the file at `path`; raises FileError that names the rule, its key and the fault."""
    file = read_toml(path, shown or path.name)
    file.only("schema", "log", "phase", "fact", "rule")
    facts = tuple(read_fact(table) for table in file.tables("fact"))
    signs = _signs(file.table("log"))
    known = signs.settings.union(*(fact.names for fact in facts))
    rules: dict[str, Rule] = {}
    for table in file.tables("rule"):
        rule = _rule(table, rules, known)
        if rule.id in rules:
            raise table.error("id", f"{rule.id!r} is there twice")
        rules[rule.id] = rule
    return Rules(
        index=RuleIndex(rules.values()),
        phases=tuple(_phase(table) for table in file.tables("phase")),
        facts=facts,
        signs=signs,
    )


def _signs(table: Table) -> LogSigns:
    keys = ("run_starts", "stops", "fatal", "survived", "chained", "no_failures", "settings")
    table.only(*keys)
    signs = {key: texts(table, key) for key in keys}
    return LogSigns(
        run_starts=signs["run_starts"],
        stops=signs["stops"],
        fatal=signs["fatal"],
        survived=signs["survived"],
        chained=signs["chained"],
        no_failures=signs["no_failures"],
        settings=frozenset(signs["settings"]),
    )


def _phase(table: Table) -> PhaseSigns:
    table.only("name", "functions", "texts")
    return PhaseSigns(
        phase=member(table, "name", Phase),
        functions=frozenset(texts(table, "functions")),
        texts=texts(table, "texts"),
    )


def read_fact(table: Table) -> FactSign:
    """A line that holds facts; raises FileError unless it gives at least one."""
    table.only("contains", "pattern", "sets", "warning")
    sets = table.table("sets")
    fact = FactSign(
        contains=required(table, "contains"),
        pattern=_pattern(table, "pattern", table.text("pattern")) if "pattern" in table else None,
        sets={name: value for name in sets if isinstance(value := sets.json(name), bool | str)},
        warning=bool(table.truth("warning")),
    )
    if not fact.names:
        raise table.error(None, "gives no fact: name groups in `pattern`, or write `sets`")
    return fact


def _rule(table: Table, earlier: dict[str, Rule], known: frozenset[str]) -> Rule:
    table.only(*_RULE_KEYS)
    contains, patterns = _what_it_matches(table, earlier)
    phase, reached = table.text("phase"), table.text("reached")
    min_level = table.text("min_level") or "ERROR"
    if min_level not in _LEVELS:
        raise table.error("min_level", f"must be one of {', '.join(_LEVELS)}, but is {min_level!r}")
    rule = Rule(
        id=required(table, "id"),
        kind=member(table, "kind", FailureKind),
        blame=member(table, "blame", Blame),
        why=required(table, "why"),
        cure=table.text("cure") or "",
        source=required(table, "source"),
        weight=member(table, "weight", Weight) if "weight" in table else Weight.ROOT,
        phase=member(table, "phase", Phase) if phase else None,
        contains=contains,
        patterns=patterns,
        any_frames=frozenset(texts(table, "any_frames")),
        given=texts(table, "given"),
        missing=texts(table, "missing"),
        when=_expression(table, "when"),
        shares=_shares(table.table("shares")),
        reached=member(table, "reached", Phase) if reached else None,
        versions=Versions(since=release(table, "since"), before=release(table, "before")),
        min_level=min_level,
        fatal=table.truth("fatal"),
        confidence=_confidence(table),
    )
    _check_names(table, rule, known)
    return rule


def _what_it_matches(
    table: Table, earlier: dict[str, Rule]
) -> tuple[tuple[str, ...], tuple[re.Pattern[str], ...]]:
    """Literals and patterns of a rule: its own, or those of the rule it is `like`."""
    like = table.text("like")
    if like is not None:
        if like not in earlier:
            raise table.error("like", f"there is no rule {like!r} before this one")
        if "contains" in table or "patterns" in table:
            raise table.error("like", "cannot be combined with `contains` or `patterns`")
        return earlier[like].contains, earlier[like].patterns
    contains = texts(table, "contains")
    for literal in contains:
        if not re.search(r"\w", literal):
            raise table.error("contains", f"{literal!r} holds no word")
    if not contains and not ("given" in table or "when" in table):
        raise table.error(
            None, "needs `contains`, `like`, or conditions (`given`, `when`) to be judged by at the end"
        )
    return contains, tuple(_pattern(table, "patterns", text) for text in texts(table, "patterns"))


def _check_names(table: Table, rule: Rule, known: frozenset[str]) -> None:
    """Raise FileError for a template or a condition that asks for a value nobody gives."""
    groups = [set(pattern.groupindex) for pattern in rule.patterns]
    always: set[str] = set.intersection(*groups) if groups else set()
    always |= {name for name, pair in rule.shares.items() if always.issuperset(pair)}
    possible: set[str] = set(known).union(rule.shares, *groups)
    for key, template in (("why", rule.why), ("cure", rule.cure)):
        needed, optional = names(template)
        if unsure := needed - always - set(rule.given):
            raise table.error(
                key, f"{{{min(unsure)}}} may have no value: put the words around it in brackets"
            )
        if optional - possible:
            raise table.error(key, f"nothing gives {{{min(optional - possible)}}} a value")
    asked = {*(rule.when.names if rule.when else ()), *rule.given, *rule.missing}
    if asked - possible:
        raise table.error("when", f"nothing gives {min(asked - possible)} a value")
    if missing := {name for pair in rule.shares.values() for name in pair} - possible:
        raise table.error("shares", f"nothing gives {min(missing)} a value")


def _pattern(table: Table, key: str, text: str | None) -> re.Pattern[str]:
    if text is None:
        raise table.error(key, "is missing")
    if _NESTED_REPEAT.search(text) or _OPEN_GAP.search(text) or text.count(".{") > _MAX_GAPS:
        rule = f"write gaps as `.{{0,80}}`, at most {_MAX_GAPS} of them, and nest no repeats"
        raise table.error(key, f"{text!r} can take very long: {rule}")
    try:
        return re.compile(text)
    except re.error as error:
        raise table.error(key, f"{text!r} is no regular expression: {error}") from None


def _expression(table: Table, key: str) -> Expression | None:
    source = table.text(key)
    try:
        return Expression.parse(source) if source is not None else None
    except ExpressionError as error:
        raise table.error(key, str(error)) from None


def _shares(table: Table) -> dict[str, tuple[str, str]]:
    shares = {}
    for name in table:
        match texts(table, name):
            case (part, whole):
                shares[name] = (part, whole)
            case _:
                raise table.error(name, "must be two names: what is divided, and by what")
    return shares


def release(table: Table, key: str) -> tuple[int, ...] | None:
    """A version of vLLM as numbers; raises FileError for anything else."""
    text = table.text(key)
    if text is None:
        return None
    if not (release := release_of(text)):
        raise table.error(key, f"must be a release such as 0.24, but is {text!r}")
    return release


def _confidence(table: Table) -> float:
    confidence = table.number("confidence")
    if confidence is not None and not 0 < confidence <= 1:
        raise table.error("confidence", f"must be above 0 and at most 1, but is {confidence}")
    return 1.0 if confidence is None else confidence


def texts(table: Table, key: str) -> tuple[str, ...]:
    """A list of texts that are not empty; raises FileError for anything else."""
    items: Sequence[object] = table.sequence(key) or ()
    found = tuple(item for item in items if isinstance(item, str) and item)
    if len(found) != len(items):
        raise table.error(key, "must be a list of texts that are not empty")
    return found


def required(table: Table, key: str) -> str:
    """A text that must be there; raises FileError without it."""
    text = table.text(key)
    if text is None:
        raise table.error(key, "is missing")
    return text


def member(table: Table, key: str, of: type[_E]) -> _E:
    """A member of the enumeration `of`; raises FileError that lists them for anything else."""
    text = required(table, key)
    members: Iterable[_E] = of
    for member in members:
        if member.value == text:
            return member
    raise table.error(key, f"must be one of {', '.join(m.value for m in members)}, but is {text!r}")
