"""What one failure teaches at once, by its rule, its numbers and the settings it happened under."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from autotune.decide.lessons.book import LessonBook, Region, Teaching
from autotune.domain.expression import Expression
from autotune.domain.failure import Blame, Failure, FailureKind
from autotune.domain.lesson import Finding, LessonForm
from autotune.domain.space import Value
from autotune.errors import ExpressionError

MIN_CONFIDENCE = 0.7
"""Below this the name of a failure is a guess, and a guess forbids nothing."""

NEVER = frozenset(
    {
        FailureKind.MEMORY_BUSY,
        FailureKind.MODEL_ACCESS,
        FailureKind.ENVIRONMENT,
        FailureKind.STALL,
        FailureKind.CLIENT,
        FailureKind.SILENT,
    }
)
"""Kinds that say nothing of the settings, or nothing for sure: nothing is ever learned from them."""

Settings = Mapping[str, Value]

_NUMBER = re.compile(r"\{(\w+)\}")


def learn(
    failure: Failure, settings: Settings, book: LessonBook, measured: Sequence[Settings]
) -> Finding | None:
    """What the failure of a configuration with these settings forbids; None when that cannot be said at once.

    `measured` are the settings of configurations that worked. None of them is ever forbidden: a finding that
    would is narrowed to exactly these settings, or dropped.
    """
    if failure.blame is not Blame.CONFIGURATION or failure.confidence < MIN_CONFIDENCE:
        return None
    if failure.kind in NEVER:
        return None
    for teaching in book.teachings:
        finding = _teach(teaching, failure, settings) if teaching.fits(failure, settings) else None
        if finding is not None:
            return _without_successes(finding, settings, measured)
    return None


def conflict(settings: Settings, measured: Sequence[Settings]) -> Finding | None:
    """That these settings do not go together; None when they did, or are too many to be written down."""
    finding = _finding(LessonForm.NO_GOOD, [_equals(*item) for item in settings.items()], frozenset())
    refuted = finding is not None and any(finding.rejects(worked) for worked in measured)
    return None if refuted else finding


def literal(value: Value) -> str:
    """`value` as the language of expressions writes it."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    return json.dumps(value, ensure_ascii=False)


def _without_successes(finding: Finding, settings: Settings, measured: Sequence[Settings]) -> Finding | None:
    if not any(finding.rejects(worked) for worked in measured):
        return finding
    return conflict(settings, measured)


def _teach(teaching: Teaching, failure: Failure, settings: Settings) -> Finding | None:
    """The finding by this entry; None when the failure or the settings lack something it needs."""
    parts: list[str | None] = []
    if teaching.forbids:
        parts.append(_first_true(teaching.forbids, failure, settings))
    parts += [_equals(name, settings[name]) if name in settings else None for name in teaching.same]
    if teaching.named_by or teaching.valued_by:
        parts.append(_blamed(teaching, failure, settings))
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    unset: frozenset[str] = frozenset()
    if teaching.region is not None:
        named = {name for part in known for name in Expression.parse(part).names}
        known += [text for name, text in _within(teaching.region, settings) if name not in named]
        unset = teaching.region.decisive - settings.keys() - named
    finding = _finding(teaching.form, known, unset)
    return finding if finding is not None and finding.rejects(settings) else None


def _first_true(templates: Iterable[str], failure: Failure, settings: Settings) -> str | None:
    """The first of the expressions that is true of `settings`; None when none can be said to be."""
    for template in templates:
        if not set(_NUMBER.findall(template)) <= failure.numbers.keys():
            continue
        text = _NUMBER.sub(lambda name: literal(failure.numbers[name[1]]), template)
        try:
            if Expression.parse(text).holds(settings, absent=False):
                return text
        except ExpressionError:  # the log gave a word where a number was meant
            continue
    return None


def _blamed(teaching: Teaching, failure: Failure, settings: Settings) -> str | None:
    """The condition on the one setting that the failure itself names; None unless it is exactly one."""
    if teaching.named_by:
        words = str(failure.numbers.get(teaching.named_by, "")).replace("=", " ").split()
        names = {word.removeprefix("--").removeprefix("no-").replace("-", "_") for word in words}
        blamed = [name for name in settings if name in names or name.split("__")[0] in names]
    else:
        value = failure.numbers.get(teaching.valued_by or "")
        blamed = [name for name in settings if value is not None and _text(settings[name]) == _text(value)]
    if len(blamed) != 1:
        return None
    (name,) = blamed
    # A name without a value makes any comparison untrue, so that this one says "is set at all".
    return f"{name} == {name}" if teaching.any_value else _equals(name, settings[name])


def _within(region: Region, settings: Settings) -> Iterable[tuple[str, str]]:
    """The conditions of being at least as bad as these settings, each with the setting it is about."""
    for operator, names in (("<=", region.at_most), (">=", region.at_least), ("==", region.same)):
        for name in names:
            if name in settings:
                yield name, _compare(name, operator, settings[name])
    for name in region.extra:
        if name in settings and settings[name] not in region.free.get(name, ()):
            yield name, _compare(name, ">=", settings[name])


def _compare(name: str, operator: str, value: Value) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{name} {operator} {literal(value)}" if is_number else _equals(name, value)


def _equals(name: str, value: Value) -> str:
    return f"{name} == {literal(value)}"


def _finding(form: LessonForm, parts: Sequence[str], unset: frozenset[str]) -> Finding | None:
    try:
        return Finding(form=form, forbids=Expression.parse(" and ".join(parts)), while_unset=unset)
    except ExpressionError:  # nothing, or more than fits into an expression
        return None


def _text(value: Value) -> str:
    return literal(value) if not isinstance(value, str) else value
