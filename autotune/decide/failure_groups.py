"""The failed trials of a study by what was wrong: how often, how much time it took, what was learned."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.domain.failure import Failure
from autotune.domain.lesson import Lesson
from autotune.domain.trial import TrialRecord

_VARIES = re.compile(r"0x[0-9a-f]+|\d+(?:[.,]\d+)*", re.IGNORECASE)
"""What differs between two root lines of one cause: addresses, process ids, sizes, times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """Trials that failed for the same cause, the first of them as the example.

    `lost_s` is all the time that these trials took. `lessons` are those that they taught.
    """

    trials: tuple[int, ...]
    example: Failure
    lost_s: float
    lessons: tuple[Lesson, ...]


def failure_groups(
    records: Sequence[TrialRecord], lessons: Sequence[Lesson], study: str
) -> tuple[FailureGroup, ...]:
    """Groups by kind and root cause, those that took the most time first; `study` tells whose lessons count.

    Two failures have one cause when the same rule named them; where none did, when their root lines are the
    same but for numbers, and of those without a root line, when the server had come equally far.
    """
    groups: dict[tuple[str, str], list[tuple[TrialRecord, Failure]]] = {}
    for record in records:
        if record.failure is not None:
            groups.setdefault(_cause(record.failure), []).append((record, record.failure))
    found = [_group(group, lessons, study) for group in groups.values()]
    return tuple(sorted(found, key=lambda group: (-group.lost_s, group.trials)))


def _cause(failure: Failure) -> tuple[str, str]:
    if failure.rule is not None:
        return failure.kind, failure.rule
    if failure.root_line is not None:
        return failure.kind, _VARIES.sub("#", failure.root_line.strip())
    return failure.kind, f"at {failure.phase}"


def _group(
    group: Sequence[tuple[TrialRecord, Failure]], lessons: Sequence[Lesson], study: str
) -> FailureGroup:
    trials = tuple(record.number for record, _ in group)
    return FailureGroup(
        trials=trials,
        example=group[0][1],
        lost_s=sum(_took_s(record) for record, _ in group),
        lessons=tuple(lesson for lesson in lessons if lesson.study == study and lesson.trial in trials),
    )


def _took_s(record: TrialRecord) -> float:
    if record.finished_at is None:
        return sum(record.step_s.values())
    return (record.finished_at - record.started_at).total_seconds()
