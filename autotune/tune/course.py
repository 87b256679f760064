"""What the search does next: learn from what failed, try again, ask what conflicts, or try something new."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autotune.decide.lessons.plan import Learner
from autotune.decide.schedule import control_due, due_retry, due_warm_retry, worth_isolating
from autotune.domain.lesson import Lesson
from autotune.domain.space import Configuration
from autotune.domain.trial import Origin, Proposal, TrialRecord
from autotune.tune.gatekeeper import Gatekeeper
from autotune.tune.ports import LessonShelf, MemoryModel, Observer, Refuses, Search, TrialStore, Validator


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """Chooses each trial of the search. Nothing that a lesson forbids is ever chosen.

    Without a `validator` vLLM is not asked before a launch, without `memory` none is estimated.
    """

    learner: Learner
    shelf: LessonShelf
    store: TrialStore
    search: Search
    observer: Observer
    validator: Validator | None = None
    memory: MemoryModel | None = None

    def next(
        self, records: Sequence[TrialRecord], lessons: Sequence[Lesson], left_s: float
    ) -> Proposal | None:
        """The next trial, when `left_s` seconds are left; None when all there is is refused."""
        keeper = self._gatekeeper(records, lessons)
        forbids = keeper.lessons.forbids
        space, retries = self.learner.space, self.learner.limits.retries
        retry = due_retry(records, retries, forbids) or due_warm_retry(records, space, retries, forbids)
        if retry is not None:
            return Proposal(configuration=retry, origin=Origin.RETRY if retry.values else Origin.BASELINE)
        probe = replace(self.learner, hopeless=keeper.hopeless).probe_due(records, lessons)
        if probe is not None and worth_isolating(records, probe.left, left_s):
            return Proposal(configuration=probe.configuration, origin=Origin.ISOLATION)
        if control_due(records, self.learner.limits.control_every) and worth_isolating(records, 1, left_s):
            return Proposal(configuration=Configuration(), origin=Origin.CONTROL)
        return self._something_new(keeper)

    def _something_new(self, keeper: Gatekeeper) -> Proposal | None:
        """From the search; where all is refused, of what only seems to lack memory the closest call."""
        proposal = self.search.propose(keeper.refuses)
        if proposal is None:
            closest = keeper.least_short()
            return None if closest is None else Proposal(configuration=closest, origin=Origin.AUDIT)
        if proposal.refused:
            self.store.count_refused(proposal.refused)
        audit = bool(proposal.configuration.values) and keeper.shortage(proposal.configuration) is not None
        return replace(proposal, origin=Origin.AUDIT) if audit else proposal

    def learn(self, records: Sequence[TrialRecord]) -> Sequence[Lesson]:
        """All lessons; those that `records` teach and that were not kept before are when it returns.

        The evidence is always written first, so that a kill in between loses no lesson.
        """
        lessons = self.shelf.all()
        learner = replace(self.learner, hopeless=self._gatekeeper(records, lessons).hopeless)
        while lesson := learner.lesson_due(records, lessons):
            self.shelf.add(lesson)
            self.observer.note(
                f"trial {lesson.trial} taught lesson {lesson.number}, never again: {lesson.finding}"
            )
            lessons = [*lessons, lesson]
        return lessons

    def refuses(self, records: Sequence[TrialRecord], lessons: Sequence[Lesson]) -> Refuses:
        """What refuses a configuration, by what is known now."""
        return self._gatekeeper(records, lessons).refuses

    def _gatekeeper(self, records: Sequence[TrialRecord], lessons: Sequence[Lesson]) -> Gatekeeper:
        return Gatekeeper(
            learner=self.learner,
            records=records,
            lessons=lessons,
            memory=self.memory,
            validator=self.validator,
        )
