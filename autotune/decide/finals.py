"""The finals: which configurations are measured again, beside the baseline, for how long, and in what order.

Finals come at the end of an invocation's budget. They go on block after block: each launches the baseline and
the finalists that are still in the race once, each on a fresh server.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.decide.blocks import BASELINE, LOOKS, BlockModel, block_model
from autotune.decide.noise import Read
from autotune.decide.ranking import candidates, failed_by_itself, gain, luck, pareto, score
from autotune.decide.schedule import expected_launch_s
from autotune.domain.difference import Difference
from autotune.domain.objective import Objective
from autotune.domain.space import Configuration
from autotune.domain.study import Limits
from autotune.domain.trial import Origin, TrialRecord

EQUIVALENT = 0.01
"""What differs by less than this is the same for all practical purposes."""
DROP_P = 0.02
"""A finalist is out of the race when it would look this bad beside the leader by this chance, or less."""
SHARE = 1 / 3
"""Of a budget, kept for finals."""
LEAST_BLOCKS = 2
"""The smallest finals: the baseline and one finalist, twice."""
MARGIN = 1.1
"""Finals may take so many times what is expected and still fit in what was kept for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block of the finals; `order` is that of its launches, the baseline among them.

    `number` counts all blocks of the study from 0, `index` those of this invocation; `until` is how many
    there will be before the next look, unless something fails.
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

    def reserve_s(self, records: Sequence[TrialRecord], budget_s: float) -> float:
        """What the search has to leave of a budget; 0 while there is nothing to be decided.

        A third, if that is enough for the smallest finals and no more than 5 blocks take; of a budget that
        has twice the smallest finals in it, those; of one still shorter nothing.
        """
        finalists = self.in_question(records)
        if not finalists:
            return 0.0
        least_s = shortest_budget_s(records, finalists[0]) / 2
        if SHARE * budget_s >= least_s:
            return min(SHARE * budget_s, MARGIN * LOOKS[1] * block_s(records, finalists))
        return least_s if budget_s >= 2 * least_s else 0.0

    def first_block(self, records: Sequence[TrialRecord], left_s: float) -> Block | None:
        """The block that begins the finals of this invocation: with as many finalists as fit three times.

        None when there is nothing to be decided, or no time even for the smallest finals.
        """
        finalists = self.in_question(records)
        number = max((r.block for r in records if r.block is not None), default=-1) + 1
        wanted = min(LOOKS[0], self.limits.max_blocks)
        for count, blocks in [*((n, wanted) for n in range(len(finalists), 0, -1)), (1, LEAST_BLOCKS)]:
            if finalists and blocks * block_s(records, finalists[:count]) <= left_s:
                return self._block(number, 0, blocks, finalists[:count], records)
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
        blocks = _least_blocks(model, racing)
        if blocks in LOOKS:
            racing = _not_worse(model, racing)
        if block_s(records, racing) > left_s or self._is_settled(model, racing):
            return None
        target = min(next((n for n in LOOKS if n > blocks), self.limits.max_blocks), self.limits.max_blocks)
        return self._block(block.number + 1, index, index + max(1, target - blocks), racing, records)

    def in_question(self, records: Sequence[TrialRecord]) -> Sequence[Configuration]:
        """The configurations that finals would be about, best first; none when those held have settled it."""
        model = block_model(records, self.read)
        racing = self._eligible(records)
        if model.blocks:
            racing = _not_worse(model, racing)
        racing = racing[: self.limits.finalists]
        return [] if not racing or self._is_settled(model, racing) else racing

    @property
    def read(self) -> Read:
        """The score that finals decide on."""
        return lambda record: score(record, self.objectives)

    def _eligible(self, records: Sequence[TrialRecord]) -> list[Configuration]:
        """Those that always worked and are not slower than the baseline beyond noise; the front first."""
        among = candidates(records, self.objectives)
        base = next((c for c in among if not c.record.configuration.values), None)
        if base is None:
            return []
        failed = failed_by_itself(records)
        able = []
        for candidate in among:
            sd_log = luck(records, self.objectives, candidate.record)
            error = sd_log * math.sqrt(1 / candidate.launches + 1 / base.launches)
            times = gain(candidate.values, base.values, self.objectives)
            if candidate is base or candidate.record.configuration.digest in failed:
                continue
            if times >= math.exp(-2 * error):
                able.append((candidate, times))
        best = {c.record.number for c in pareto([candidate for candidate, _ in able], self.objectives)}
        able.sort(key=lambda pair: (pair[0].record.number not in best, -pair[1], pair[0].record.number))
        return [candidate.record.configuration for candidate, _ in able]

    def _is_settled(self, model: BlockModel, racing: Sequence[Configuration]) -> bool:
        """Whether more blocks would tell nothing new, or may not be run. Decided is only at a look."""
        blocks = _least_blocks(model, racing)
        if blocks >= self.limits.max_blocks:
            return True
        leader = leader_of(model, [c.digest for c in racing])
        if blocks not in LOOKS or leader is None:
            return False
        others = [BASELINE, *(c.digest for c in racing if c.digest != leader)]
        return all(_is_decided(model.difference(other, leader)) for other in others)

    def _block(
        self,
        number: int,
        index: int,
        until: int,
        finalists: Sequence[Configuration],
        records: Sequence[TrialRecord],
    ) -> Block:
        """In an order drawn for each two blocks, and the other way round in the second of them.

        What changes evenly in the course of a block then cancels out over the two.
        """

        def place(configuration: Configuration) -> float:
            key = f"{self.seed}:{number // 2}:{configuration.digest}"
            return random.Random(key).random()  # noqa: S311 - reproducible on purpose

        order = sorted([Configuration(), *finalists], key=place, reverse=number % 2 == 1)
        return Block(
            number=number,
            index=index,
            until=until,
            finalists=tuple(finalists),
            order=tuple(order),
            expected_s=block_s(records, finalists),
        )


def block_s(records: Sequence[TrialRecord], finalists: Sequence[Configuration]) -> float:
    """How long a block of these takes, by how long their launches took so far: all have been measured."""
    return sum(expected_launch_s(records, each) or 0.0 for each in (Configuration(), *finalists))


def shortest_budget_s(records: Sequence[TrialRecord], finalist: Configuration) -> float:
    """The budget from which on an invocation holds finals of this configuration: half of it is kept."""
    return 2 * MARGIN * LEAST_BLOCKS * block_s(records, [finalist])


def leader_of(model: BlockModel, among: Sequence[str]) -> str | None:
    """The one of these digests that is furthest ahead of the baseline; None before the second block."""
    ahead = {
        name: ratio
        for name in among
        if model.count(BASELINE, name) >= 2 and (ratio := model.log_ratio(BASELINE, name)) is not None
    }
    return max(ahead, key=lambda name: ahead[name]) if ahead else None


def _least_blocks(model: BlockModel, racing: Sequence[Configuration]) -> int:
    return min(model.count(BASELINE, configuration.digest) for configuration in racing)


def _not_worse(model: BlockModel, racing: Sequence[Configuration]) -> list[Configuration]:
    """Those that could still be as good as the leader; only three blocks together can tell they could not."""
    leader = leader_of(model, [c.digest for c in racing])
    if leader is None:
        return list(racing)

    def is_worse(name: str) -> bool:
        if name == leader or model.count(name, leader) < LOOKS[0]:
            return False
        chance = model.chance_of_no_worse(leader, name)
        return chance is not None and chance < DROP_P

    return [configuration for configuration in racing if not is_worse(configuration.digest)]


def _is_decided(difference: Difference | None) -> bool:
    """Whether it is known which of the two is better, or that it makes no difference."""
    return difference is not None and (difference.is_distinguishable or is_equivalent(difference))


def is_equivalent(difference: Difference) -> bool:
    """Whether the two are the same for all practical purposes, as surely as the interval says."""
    return difference.interval.low > 1 - EQUIVALENT and difference.interval.high < 1 + EQUIVALENT
