"""The finals: which configurations are measured again, beside the baseline, for how long, and in what order.

Finals end each round of an invocation. They go on block after block: each launches the baseline and the
finalists that are still in the race once, each on a fresh server. In a later round the best of the earlier
ones is launched beside the new ones.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.decide.blocks import BASELINE, LOOKS, BlockModel, block_model, launch_order
from autotune.decide.noise import Read, decodes_speculatively
from autotune.decide.race import is_decided, is_look, leader_of, least_blocks, not_worse, still_open
from autotune.decide.ranking import Candidate, candidates, failed_by_itself, gain, luck, pareto, score
from autotune.decide.schedule import expected_launch_s
from autotune.domain.metric_limit import MetricLimit
from autotune.domain.objective import Objective
from autotune.domain.space import Configuration
from autotune.domain.study import Limits
from autotune.domain.trial import Origin, TrialRecord

SHARE = 1 / 3
"""Of a budget, kept for finals."""
LEAST_BLOCKS = 2
"""The smallest finals: the baseline and one finalist, twice."""
MARGIN = 1.1
"""Finals may take so many times what is expected and still fit in what was kept for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block of the finals; `order` is that of its launches, the baseline among them.

    `number` counts all blocks of the study from 0, `index` those of this round; `until` is how many there
    will be before the next look, unless something fails.
    """

    number: int
    index: int
    until: int
    finalists: tuple[Configuration, ...]
    order: tuple[Configuration, ...]
    expected_s: float
    """How long it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finals:
    """Decides on the finals of one study."""

    objectives: tuple[Objective, ...]
    limits: Limits
    seed: int
    metric_limits: tuple[MetricLimit, ...] = ()

    def reserve_s(self, records: Sequence[TrialRecord], budget_s: float) -> float:
        """What the search has to leave of a round's budget; 0 while there is nothing to be decided.

        A third, if that is enough for the smallest finals and no more than 5 blocks take; of a budget that
        has twice the smallest finals in it, those; of one still shorter nothing.
        """
        finalists = self.in_question(records)
        if not finalists:
            return 0.0
        least_s = shortest_budget_s(records, finalists[0]) / 2
        return reserved_s(budget_s, least_s, block_s(records, finalists))

    def first_block(self, records: Sequence[TrialRecord], left_s: float) -> Block | None:
        """The block that begins the finals of a round: with as many finalists as fit three times.

        None when there is nothing to be decided, or no time even for the smallest finals.
        """
        finalists = self.in_question(records)
        number = max((r.block for r in records if r.block is not None), default=-1) + 1
        wanted = min(LOOKS[0], self.limits.max_blocks)
        for count, blocks in [*((n, wanted) for n in range(len(finalists), 0, -1)), (1, LEAST_BLOCKS)]:
            if finalists and blocks * block_s(records, finalists[:count]) <= left_s:
                return self.block(number, 0, blocks, finalists[:count], records)
        return None

    def next_block(self, block: Block, records: Sequence[TrialRecord], left_s: float) -> Block | None:
        """The block after `block`, without the finalists that failed in it, and after a look, the slow ones.

        None when all is decided, when the baseline fails, or when the time or the number of blocks is up.
        """
        failed = failed_by_itself([record for record in records if record.origin is Origin.FINAL])
        racing = [c for c in block.finalists if c.digest not in failed]
        index = block.index + 1
        if not racing or BASELINE in failed or index >= self.limits.max_blocks:
            return None
        model = block_model(records, self.read)
        at_look = least_blocks(model, racing) in LOOKS
        if at_look:
            racing = self._keeping(records, not_worse(model, racing))
        if not racing or block_s(records, racing) > left_s:
            return None
        if self._is_settled(model, racing, is_look=at_look):
            return None
        blocks = least_blocks(model, racing)
        target = min(next((n for n in LOOKS if n > blocks), self.limits.max_blocks), self.limits.max_blocks)
        return self.block(block.number + 1, index, index + max(1, target - blocks), racing, records)

    def in_question(self, records: Sequence[TrialRecord]) -> Sequence[Configuration]:
        """The configurations that finals would be about, best first; none when those held have settled it.

        After finals those are what these have left open, and what looks better than the best of them: that is
        launched beside the new ones, if there is room for two.
        """
        model = block_model(records, self.read)
        racing = self.eligible(records)
        leader = leader_of(model, [c.digest for c in racing])
        if leader is not None:
            racing = still_open(model, not_worse(model, racing), self.limits.max_blocks)
            racing = self._promising(records, model, racing, leader)
        best = racing[: self.limits.finalists]
        if len(best) > 1 and leader not in {None, *(c.digest for c in best)}:
            best[-1] = next(c for c in racing if c.digest == leader)
        if not best or self._is_settled(model, best, is_look=is_look(least_blocks(model, best))):
            return []
        return best

    def _promising(
        self, records: Sequence[TrialRecord], model: BlockModel, racing: Sequence[Configuration], leader: str
    ) -> list[Configuration]:
        """Those that were in finals, and those that look better than the leader of these.

        And better than the baseline, where that is a choice.
        """
        known = candidates(records, self.objectives, self.metric_limits)
        able = {c.record.configuration.digest: c.values for c in known if c.keeps_limits}
        to_beat = [able[name] for name in (BASELINE, leader) if name in able]

        def is_better(name: str) -> bool:
            return all(gain(able[name], values, self.objectives) > 1 for values in to_beat)

        return [c for c in racing if c.digest in model.finalists or is_better(c.digest)]

    @property
    def read(self) -> Read:
        """The score that finals decide on."""
        return lambda record: score(record, self.objectives)

    def eligible(self, records: Sequence[TrialRecord]) -> list[Configuration]:
        """Those that always worked, keep the limits and are not slower than the baseline beyond noise.

        Where the baseline is no choice, not slower than the best of them. The front comes first.
        """
        base = next(
            (c for c in candidates(records, self.objectives) if not c.record.configuration.values), None
        )
        if base is None:
            return []
        failed = failed_by_itself(records)
        among = [c for c in candidates(records, self.objectives, self.metric_limits) if c.keeps_limits]
        others = [c for c in among if c.record.configuration.digest not in {*failed, BASELINE}]
        gains = {c.record.number: gain(c.values, base.values, self.objectives) for c in others}
        to_beat = base
        if others and not any(c.record.number == base.record.number for c in among):
            to_beat = max(others, key=lambda c: gains[c.record.number])
        lead = gains.get(to_beat.record.number, 1.0)

        sd_logs: dict[bool, float] = {}

        def is_able(candidate: Candidate) -> bool:
            kind = decodes_speculatively(candidate.record)  # it is all of a record that luck depends on
            if kind not in sd_logs:
                sd_logs[kind] = luck(records, self.objectives, candidate.record)
            sd_log = sd_logs[kind]
            error = sd_log * math.sqrt(1 / candidate.launches + 1 / to_beat.launches)
            return gains[candidate.record.number] >= lead * math.exp(-2 * error)

        able = [candidate for candidate in others if is_able(candidate)]
        best = {c.record.number for c in pareto(able, self.objectives)}
        able.sort(key=lambda c: (c.record.number not in best, -gains[c.record.number], c.record.number))
        return [candidate.record.configuration for candidate in able]

    def _keeping(
        self, records: Sequence[TrialRecord], racing: Sequence[Configuration]
    ) -> list[Configuration]:
        """Those whose mean over the finals keeps the limits."""
        known = candidates(records, self.objectives, self.metric_limits)
        keeping = {candidate.record.configuration.digest for candidate in known if candidate.keeps_limits}
        return [configuration for configuration in racing if configuration.digest in keeping]

    def _is_settled(self, model: BlockModel, racing: Sequence[Configuration], *, is_look: bool) -> bool:
        """Whether more blocks would tell nothing new, or may not be run. Decided is only at a look."""
        if least_blocks(model, racing) >= self.limits.max_blocks:
            return True
        leader = leader_of(model, [c.digest for c in racing])
        if not is_look or leader is None:
            return False
        others = [BASELINE, *(c.digest for c in racing if c.digest != leader)]
        return all(is_decided(model.difference(other, leader)) for other in others)

    def block(
        self,
        number: int,
        index: int,
        until: int,
        finalists: Sequence[Configuration],
        records: Sequence[TrialRecord],
    ) -> Block:
        """Block `number` of the study, in the order of its launches."""
        return Block(
            number=number,
            index=index,
            until=until,
            finalists=tuple(finalists),
            order=launch_order([Configuration(), *finalists], number, self.seed),
            expected_s=block_s(records, finalists),
        )


def reserved_s(budget_s: float, least_s: float, one_block_s: float) -> float:
    """What is kept of a budget for finals that take at least `least_s`, with blocks of `one_block_s`."""
    if SHARE * budget_s >= least_s:
        return min(SHARE * budget_s, MARGIN * LOOKS[1] * one_block_s)
    return least_s if budget_s >= 2 * least_s else 0.0


def block_s(records: Sequence[TrialRecord], finalists: Sequence[Configuration]) -> float:
    """How long a block of these takes, by how long their launches took so far: all have been measured."""
    return sum(expected_launch_s(records, each) or 0.0 for each in (Configuration(), *finalists))


def shortest_budget_s(records: Sequence[TrialRecord], finalist: Configuration) -> float:
    """The budget from which on an invocation holds finals of this configuration: half of it is kept."""
    return 2 * MARGIN * LEAST_BLOCKS * block_s(records, [finalist])
