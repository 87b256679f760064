"""What the search does next: learn from what failed, try again, ask what conflicts, or try something new."""

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.decide.lessons.plan import Learner
from autotune.decide.schedule import control_due, due_retry, due_warm_retry, worth_isolating
from autotune.domain.lesson import Lesson
from autotune.domain.space import Configuration
from autotune.domain.trial import Origin, Proposal, TrialRecord
from autotune.tune.ports import LessonShelf, Observer, Search, TrialStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """Chooses each trial of the search. Nothing that a lesson forbids is ever chosen."""

    learner: Learner
    shelf: LessonShelf
    store: TrialStore
    search: Search
    observer: Observer

    def next(
        self, records: Sequence[TrialRecord], lessons: Sequence[Lesson], left_s: float
    ) -> Proposal | None:
        """The next trial, when `left_s` seconds are left; None when lessons forbid all there is."""
        gate = self.learner.gate(records, lessons)
        forbids = gate.forbids
        space, retries = self.learner.space, self.learner.limits.retries
        retry = due_retry(records, retries, forbids) or due_warm_retry(records, space, retries, forbids)
        if retry is not None:
            return Proposal(configuration=retry, origin=Origin.RETRY if retry.values else Origin.BASELINE)
        probe = self.learner.probe_due(records, lessons)
        if probe is not None and worth_isolating(records, probe.left, left_s):
            return Proposal(configuration=probe.configuration, origin=Origin.ISOLATION)
        if control_due(records, self.learner.limits.control_every) and worth_isolating(records, 1, left_s):
            return Proposal(configuration=Configuration(), origin=Origin.CONTROL)
        proposal = self.search.propose(gate.refuses)
        if proposal is not None and proposal.refused:
            self.store.count_refused(proposal.refused)
        return proposal

    def learn(self, records: Sequence[TrialRecord]) -> Sequence[Lesson]:
        """All lessons; those that `records` teach and that were not kept before are when it returns.

        The evidence is always written first, so that a kill in between loses no lesson.
        """
        lessons = self.shelf.all()
        while lesson := self.learner.lesson_due(records, lessons):
            self.shelf.add(lesson)
            self.observer.note(
                f"trial {lesson.trial} taught lesson {lesson.number}, never again: {lesson.finding}"
            )
            lessons = [*lessons, lesson]
        return lessons
