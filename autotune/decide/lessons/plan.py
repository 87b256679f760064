"""What is still to be learned from the trials of a study: a lesson to be kept, or a launch that will tell.

Both follow from the trials and the lessons kept so far, and from nothing else: a study that was killed
between keeping an outcome and keeping its lesson comes to the same lesson when it goes on.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from autotune.decide.lessons.book import LessonBook
from autotune.decide.lessons.gate import Gate, gate, measured_settings
from autotune.decide.lessons.isolation import Conflict, Probe, isolate, same_way
from autotune.decide.lessons.learning import NEVER, conflict, learn
from autotune.decide.schedule import awaits_retry
from autotune.domain.failure import Blame, Failure, FailureKind
from autotune.domain.launch import setting_name, settings
from autotune.domain.lesson import Finding, Lesson, Scope
from autotune.domain.space import Configuration, SearchSpace
from autotune.domain.study import Limits
from autotune.domain.trial import Origin, TrialRecord

ISOLATED = frozenset(
    {
        FailureKind.BAD_FLAG,
        FailureKind.INCOMPATIBLE,
        FailureKind.UNSUPPORTED,
        FailureKind.ENGINE_CRASH,
        FailureKind.UNKNOWN,
    }
)
"""Kinds whose guilty settings can be found by switching settings off. What a lack of memory depends on is a
matter of degree, and known."""


_NOT_ISOLATED = (Origin.BASELINE, Origin.ISOLATION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Learner:
    """Learns in one study."""

    study: str
    space: SearchSpace
    scope: Scope
    book: LessonBook
    limits: Limits
    hopeless: Callable[[Configuration], bool] = lambda _: False
    """What need not be launched, lessons aside, to know that it does not work: never a probe."""

    def gate(self, records: Sequence[TrialRecord], lessons: Sequence[Lesson]) -> Gate:
        """What the lessons forbid now."""
        return gate(self.space, self.scope, lessons, records)

    def lesson_due(self, records: Sequence[TrialRecord], lessons: Sequence[Lesson]) -> Lesson | None:
        """The next lesson that the trials teach and that is not among `lessons`."""
        measured, gate = measured_settings(self.space, records), self.gate(records, lessons)
        for record, failure in self._open(records, lessons, gate):
            given = settings(self.space, record.configuration)
            finding, why = learn(failure, given, self.book, measured), failure.why
            if finding is None:
                outcome = self._isolation(record, failure, records, gate)
                if not isinstance(outcome, Conflict):
                    continue
                finding, why = self._of_conflict(outcome, records), _conflict_why(failure, outcome)
            if finding is not None:
                return Lesson(
                    number=max((lesson.number for lesson in lessons), default=0) + 1,
                    finding=finding,
                    why=why,
                    kind=failure.kind,
                    trial=record.number,
                    study=self.study,
                    scope=self.scope,
                )
        return None

    def probe_due(self, records: Sequence[TrialRecord], lessons: Sequence[Lesson]) -> Probe | None:
        """The launch that the earliest failure not yet understood calls for."""
        gate = self.gate(records, lessons)
        for record, failure in self._open(records, lessons, gate):
            outcome = self._isolation(record, failure, records, gate)
            if isinstance(outcome, Probe):
                return outcome
        return None

    def _open(
        self, records: Sequence[TrialRecord], lessons: Sequence[Lesson], gate: Gate
    ) -> Iterator[tuple[TrialRecord, Failure]]:
        """Failures that may teach, have not yet, and are not what a lesson would have told."""
        taught = {lesson.trial for lesson in lessons if lesson.study == self.study}
        worked = [r.configuration for r in records if r.works]
        forgotten = tuple(lesson for lesson in lessons if lesson.forgotten)
        told = Gate(space=self.space, lessons=(*gate.lessons, *forgotten))
        for record in records:
            failure = record.failure
            if failure is None or failure.kind in NEVER or record.number in taught:
                continue
            if failure.blame not in (Blame.CONFIGURATION, Blame.UNKNOWN):
                continue
            if record.configuration in worked or told.forbids(record.configuration):
                continue
            if not awaits_retry(record, records, self.space, self.limits.retries):
                yield record, failure

    def _isolation(
        self, record: TrialRecord, failure: Failure, records: Sequence[TrialRecord], gate: Gate
    ) -> Probe | Conflict | None:
        """Of a failure that is no part of another's isolation, and of something other than the baseline.

        Of several in the same way only the first: what its isolation did not find, another would hardly.
        """
        if failure.kind not in ISOLATED or record.origin in _NOT_ISOLATED:
            return None
        before = records[: records.index(record)]
        worked = [r.configuration for r in records if r.works]
        if any(_is_like(r, failure) and r.configuration not in worked for r in before):
            return None

        def forbids(configuration: Configuration) -> bool:
            return gate.forbids(configuration) or self.hopeless(configuration)

        return isolate(record, records, self.space, forbids, self.limits.isolation_launches)

    def _of_conflict(self, found: Conflict, records: Sequence[TrialRecord]) -> Finding | None:
        """Without the fixed settings, the same in every trial; with all of them if the few have worked."""
        measured = measured_settings(self.space, records)
        given = settings(self.space, found.configuration)
        names = [setting_name(self.space.parameter(name).target) for name in found.parameters]
        few = {name: given[name] for name in names if name in given}
        return conflict(few, measured) or conflict(given, measured)


def _is_like(record: TrialRecord, failure: Failure) -> bool:
    """Whether it was for `record` to have the same failure isolated."""
    own = record.failure
    return own is not None and record.origin not in _NOT_ISOLATED and same_way(own, failure)


def _conflict_why(failure: Failure, found: Conflict) -> str:
    """The failure in words, and how the conflict was found."""
    parameters = ", ".join(found.parameters)
    if found.untested:
        how = f"{', '.join(found.untested)} could not be tried without"
    elif len(found.parameters) == 1:
        how = f"it goes away without {parameters}"
    else:
        how = f"it goes away without any one of {parameters}"
    return f"{failure.why.rstrip('.')}. Found with launches of its own ({found.launches}): {how}."
