"""The loop of a study: bring order into what a killed run left, then rounds of trials and finals."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from autotune.decide.finals import Block, Finals
from autotune.decide.patience import is_spent
from autotune.decide.plan import plan
from autotune.decide.rounds import following, more_block, round_s, standing
from autotune.decide.schedule import stopping_failure, worth_starting
from autotune.domain.failure import Failure
from autotune.domain.interrupt import Interrupt
from autotune.domain.launch import server_args
from autotune.domain.space import Configuration
from autotune.domain.trial import Interruption, Origin, Proposal, TrialRecord
from autotune.tune.course import Course
from autotune.tune.keeping import TrialKeeper
from autotune.tune.ports import Memory
from autotune.units import format_duration


class Ending(StrEnum):
    """Why an invocation ended."""

    BUDGET = "budget"
    USER = "user"
    FAILURE = "failure"
    """A failure that no other configuration can avoid."""
    EXHAUSTED = "exhausted"
    """Lessons forbid all that is left of the search space."""
    PATIENCE = "patience"
    """The last trials brought no gain, and `Limits.patience` says that it is enough."""


_FINALS_FOLLOW = (Ending.BUDGET, Ending.EXHAUSTED, Ending.PATIENCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyEnd:
    """`failure` is the one that ended it, for `Ending.FAILURE`."""

    ending: Ending
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyLoop(TrialKeeper):
    """One invocation of a study."""

    memory: Memory
    course: Course
    interrupt: Interrupt

    def run(self) -> StudyEnd:
        """Search and hold finals, in rounds, until the budget is used, the user stops it, or nothing is left.

        Raises EnvironmentFault when a server cannot be started at all, ProcessStillAlive when one would not
        go; what happened until then is kept.
        """
        self.reconcile()
        before = self.store.records()
        self.observer.study_opened(before)
        begun = len(before)
        if stop := self._go_on_with_finals(begun):
            return stop
        while True:
            end = self._search(begun)
            if end.ending not in _FINALS_FOLLOW:
                return end
            records = self.store.records()
            block = self._first_block(records, end)
            stop = self._finals(begun, block, block.order) if block else None
            if stop:
                return stop
            if len(self.store.records()) == len(records):
                break
        # What was kept for finals is too little for any.
        return self._search(begun, keeps_reserve=False) if end.ending is Ending.BUDGET else end

    def _search(self, begun: int, *, keeps_reserve: bool = True) -> StudyEnd:
        """Try configurations for as long as the budget leaves enough for the finals."""
        while True:
            records = self.store.records()
            lessons = self.course.learn(records)
            if stop := self._stop(records[begun:]):
                return stop
            if self._is_spent(records):
                return StudyEnd(ending=Ending.PATIENCE)
            left_s = self.interrupt.left_s
            if keeps_reserve:
                left_s -= self._decide.reserve_s(records, round_s(records, left_s))
            if not worth_starting(records, left_s):
                return StudyEnd(ending=Ending.BUDGET)
            if not self.memory.settle(self.interrupt, self.observer.note):
                continue
            proposal = self.course.next(records, lessons, left_s)
            if proposal is None:
                return StudyEnd(ending=Ending.EXHAUSTED)
            configuration = proposal.configuration
            flags = server_args(self.spec.space, configuration).flags
            if not worth_starting(records, left_s, configuration, flags):
                return StudyEnd(ending=Ending.BUDGET)
            if found := plan(records, self.interrupt.left_s, self.spec.limits):
                self.observer.planned(found)
            self.trial(proposal)

    def _first_block(self, records: Sequence[TrialRecord], end: StudyEnd) -> Block | None:
        """The block that ends a round's search; where there is no time for finals, one more of the best."""
        block = self._decide.first_block(records, self.interrupt.left_s)
        if block is None and end.ending is Ending.BUDGET:
            return more_block(records, self._decide, self.interrupt.left_s)
        return block

    def _finals(self, begun: int, block: Block | None, launches: Sequence[Configuration]) -> StudyEnd | None:
        """Measure the finalists beside the baseline, beginning with the `launches` of `block` that are left.

        None when that has come to its end.
        """
        while block is not None:
            self.observer.note(_announcement(block, self.store.records()))
            for configuration in launches:
                records = self.store.records()
                if stop := self._stop(records[begun:]):
                    return stop
                if not worth_starting(records, self.interrupt.left_s, configuration):
                    return None
                if self.memory.settle(self.interrupt, self.observer.note):
                    final = Proposal(configuration=configuration, origin=Origin.FINAL, block=block.number)
                    self.trial(final)
            records = self.store.records()
            may_add = not self._is_spent(records)
            block = following(block, records, self._decide, self.interrupt.left_s, may_add=may_add)
            launches = block.order if block else ()
        return self._stop(self.store.records()[begun:])

    def _go_on_with_finals(self, begun: int) -> StudyEnd | None:
        """Go on with finals that were cut off, unless that is longer ago than a block of them takes.

        What is launched in one block has to be launched within a short time of each other.
        """
        records = self.store.records()
        may_add = not self._is_spent(records)
        cut = standing(records, self._decide, self.interrupt.left_s, may_add=may_add)
        if cut is None or (self.now() - records[-1].started_at).total_seconds() > cut.block.expected_s:
            return None
        return self._finals(begun, cut.block, cut.launches)

    def _is_spent(self, records: Sequence[TrialRecord]) -> bool:
        spec = self.spec
        return is_spent(records, spec.objectives, spec.metric_limits, spec.limits.patience)

    def _stop(self, own: Sequence[TrialRecord]) -> StudyEnd | None:
        """Why this invocation, whose trials are `own`, has to end at once; None if it may go on."""
        if failed := stopping_failure(own):
            return StudyEnd(ending=Ending.FAILURE, failure=failed.failure)
        return StudyEnd(ending=Ending.USER) if self.interrupt.reason is Interruption.USER else None

    @property
    def _decide(self) -> Finals:
        spec = self.spec
        return Finals(
            objectives=spec.objectives, limits=spec.limits, seed=spec.seed, metric_limits=spec.metric_limits
        )


def _announcement(block: Block, records: Sequence[TrialRecord]) -> str:
    """What a block is about to do; the first one tells how much is planned."""
    numbers = [
        str(next(record.number for record in records if record.configuration == finalist))
        for finalist in block.finalists
    ]
    which = f"trial{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"
    if block.index:
        return f"finals, block {block.index + 1} of {block.until}: {which}"
    return (
        f"finals: {which} beside vLLM's defaults, {block.until} blocks of {len(block.order)} launches, "
        f"about {format_duration(block.until * block.expected_s)}"
    )
