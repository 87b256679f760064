"""Which block of an ablation comes next: it follows from the trials alone, so any invocation can go on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from autotune.decide.ablation.findings import Ablation, Need, Reduction, Standing, Worth
from autotune.decide.blocks import LOOKS, launch_order
from autotune.decide.ranking import failed_by_itself
from autotune.decide.schedule import expected_launch_s
from autotune.domain.space import Configuration
from autotune.domain.trial import TrialRecord

MOST = 6
"""Variants in a block at most: what is compared should not lie hours apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationBlock:
    """One block: the winner, and beside it either variants of it (`settings`) or a reduction.

    `number` counts all blocks of the study from 0; `left` is how many are planned with this one before it is
    looked at what they tell.
    """

    number: int
    order: tuple[Configuration, ...]
    settings: tuple[str, ...]
    reduction: Reduction | None
    left: int
    expected_s: float
    """How long it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """Decides what is launched. Where time is short, the parameters with the larger `importance` go first."""

    seed: int
    importance: Mapping[str, float] = field(default_factory=dict)

    def next_block(
        self, ablation: Ablation, records: Sequence[TrialRecord], left_s: float
    ) -> AblationBlock | None:
        """The next block that brings something to an end in `left_s`; None where nothing is left, or no time.

        First every setting comes to three blocks, then what could be dropped together does, up to eight as
        long as it is open: where it is as good as the winner, its settings are settled. Where nothing can be
        dropped together, the settings that are still open come to five blocks, and to eight.
        """
        if ablation.winner.configuration.digest in failed_by_itself(records):
            return None
        for look in LOOKS:
            kinds = (self._of_variants, self._of_reduction)
            for kind in kinds if look == LOOKS[0] else reversed(kinds):
                if block := kind(ablation, look, records, left_s):
                    return block
        return None

    def shortest_s(self, ablation: Ablation, records: Sequence[TrialRecord]) -> float:
        """How long it takes to tell anything: three blocks of the winner and one other."""
        other = ablation.worths[0].variant.configuration
        return LOOKS[0] * _launches_s(records, [ablation.winner.configuration, other])

    def _of_variants(
        self, ablation: Ablation, look: int, records: Sequence[TrialRecord], left_s: float
    ) -> AblationBlock | None:
        """With as many variants as come to `look` blocks in time; those begun go first."""
        among = [worth for worth in ablation.worths if _is_open(worth, ablation) and worth.blocks < look]
        # Stable: what is alike stays in the order of the space.
        among.sort(key=lambda w: (-w.blocks, -self.importance.get(w.variant.setting, 0.0)))
        counts = range(min(MOST, len(among)), 0, -1)
        for reserve_s, count in product(_reserves_s(ablation, records), counts):
            chosen = among[:count]
            blocks = look - chosen[-1].blocks
            block = self._block(ablation, [w.variant.configuration for w in chosen], records, blocks, chosen)
            if blocks * block.expected_s <= left_s - reserve_s:
                return block
        return None

    def _of_reduction(
        self, ablation: Ablation, look: int, records: Sequence[TrialRecord], left_s: float
    ) -> AblationBlock | None:
        last = ablation.tried[-1] if ablation.tried else None
        if last is None or last.standing is not Standing.OPEN or last.blocks >= look:
            return None
        blocks = look - last.blocks
        block = self._block(ablation, [last.configuration], records, blocks, reduction=last)
        return block if blocks * block.expected_s <= left_s else None

    def _block(
        self,
        ablation: Ablation,
        beside: Sequence[Configuration],
        records: Sequence[TrialRecord],
        left: int,
        worths: Sequence[Worth] = (),
        reduction: Reduction | None = None,
    ) -> AblationBlock:
        launches = [ablation.winner.configuration, *beside]
        number = max((r.block for r in records if r.block is not None), default=-1) + 1
        return AblationBlock(
            number=number,
            order=launch_order(launches, number, self.seed),
            settings=tuple(worth.variant.setting for worth in worths),
            reduction=reduction,
            left=left,
            expected_s=_launches_s(records, launches),
        )


def _is_open(worth: Worth, ablation: Ablation) -> bool:
    """Whether blocks with this setting put back are worth their time."""
    settled = ablation.reduced is not None and worth.need is not Need.NOT_MEASURED
    # Some launches may end without a value: not forever.
    return not worth.decided and not settled and worth.launches <= LOOKS[-1]


def _reserves_s(ablation: Ablation, records: Sequence[TrialRecord]) -> Sequence[float]:
    """What variants may leave for a reduction: enough for one; nothing once one was measured.

    Nothing, too, where that leaves no time for a single variant and nothing can be dropped yet.
    """
    if ablation.tried and ablation.tried[-1].blocks >= LOOKS[0]:
        return [0.0]
    reserve_s = LOOKS[0] * _launches_s(records, [ablation.winner.configuration] * 2)
    return [reserve_s] if ablation.tried else [reserve_s, 0.0]


def _launches_s(records: Sequence[TrialRecord], configurations: Sequence[Configuration]) -> float:
    return sum(expected_launch_s(records, each) or 0.0 for each in configurations)
