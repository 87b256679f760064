"""The loop of an ablation: block after block of the winner and what it is compared with."""

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.decide.ablation.examine import Examiner
from autotune.decide.ablation.findings import Ablation
from autotune.decide.ablation.plan import AblationBlock, Planner
from autotune.decide.ablation.variants import Variant
from autotune.decide.schedule import stopping_failure, worth_starting
from autotune.domain.trial import Interruption, Origin, Proposal, TrialRecord
from autotune.tune.study import Ending, StudyEnd, StudyLoop
from autotune.units import format_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationLoop:
    """One invocation. `loop` launches, measures and keeps; `variants` are those of `winner`."""

    loop: StudyLoop
    examiner: Examiner
    planner: Planner
    winner: TrialRecord
    variants: Sequence[Variant]

    def run(self) -> StudyEnd:
        """Go on until all is decided, the budget is used, or the user stops it; everything measured is kept.

        Raises EnvironmentFault when a server cannot be started at all, ProcessStillAlive when one would not
        go.
        """
        self.loop.reconcile()
        before = self.loop.store.records()
        self.loop.observer.study_opened(before)
        told = ""
        while block := self._next():
            if (said := _announcement(block)) != told:
                told = said
                self.loop.observer.note(f"{said}, {_extent(block)}")
            if end := self._hold(block, len(before)):
                return end
        return self._stop(len(before)) or StudyEnd(ending=Ending.BUDGET)

    def examine(self) -> Ablation:
        """What is known now."""
        return self.examiner.examine(self.loop.store.records(), self.winner, self.variants)

    def _next(self) -> AblationBlock | None:
        return self.planner.next_block(self.examine(), self.loop.store.records(), self.loop.interrupt.left_s)

    def _hold(self, block: AblationBlock, begun: int) -> StudyEnd | None:
        """Launch all of a block, one after another; why to end there, None where it can go on."""
        interrupt, observer = self.loop.interrupt, self.loop.observer
        for configuration in block.order:
            if end := self._stop(begun):
                return end
            if not worth_starting(self.loop.store.records(), interrupt.left_s, configuration):
                return StudyEnd(ending=Ending.BUDGET)
            if self.loop.memory.settle(interrupt, observer.note):
                self.loop.trial(
                    Proposal(configuration=configuration, origin=Origin.ABLATION, block=block.number)
                )
        return self._stop(begun)

    def _stop(self, begun: int) -> StudyEnd | None:
        """Why this invocation has to end at once; its trials are those from `begun` on."""
        if failed := stopping_failure(self.loop.store.records()[begun:]):
            return StudyEnd(ending=Ending.FAILURE, failure=failed.failure)
        if self.loop.interrupt.reason is Interruption.USER:
            return StudyEnd(ending=Ending.USER)
        return None


def _announcement(block: AblationBlock) -> str:
    if block.reduction is not None:
        return f"ablation: the winner beside itself without {', '.join(block.reduction.dropped)}"
    return f"ablation: the winner beside itself without {', or without '.join(block.settings)}"


def _extent(block: AblationBlock) -> str:
    took = format_duration(block.left * block.expected_s)
    return f"{block.left} blocks of {len(block.order)} launches, about {took}"
