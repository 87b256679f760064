"""Who is still in the race: what the blocks so far say of finalists beside each other and the baseline."""

from collections.abc import Sequence

from autotune.decide.blocks import BASELINE, LOOKS, BlockModel
from autotune.domain.difference import Difference
from autotune.domain.space import Configuration

EQUIVALENT = 0.01
"""What differs by less than this is the same for all practical purposes."""
DROP_P = 0.02
"""A finalist is out of the race when it would look this bad beside the leader by this chance, or less."""


def leader_of(model: BlockModel, among: Sequence[str]) -> str | None:
    """The one of these digests that is furthest ahead of the baseline; None before the second block."""
    ahead = {
        name: ratio
        for name in among
        if model.count(BASELINE, name) >= 2 and (ratio := model.log_ratio(BASELINE, name)) is not None
    }
    return max(ahead, key=lambda name: ahead[name]) if ahead else None


def least_blocks(model: BlockModel, racing: Sequence[Configuration]) -> int:
    """How many blocks the one has that was in the fewest beside the baseline."""
    return min(model.count(BASELINE, configuration.digest) for configuration in racing)


def not_worse(model: BlockModel, racing: Sequence[Configuration]) -> list[Configuration]:
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


def still_open(model: BlockModel, racing: Sequence[Configuration], most_blocks: int) -> list[Configuration]:
    """The leader, and those of which more blocks beside it, at most `most_blocks`, may tell something new."""
    leader = leader_of(model, [c.digest for c in racing])

    def is_open(name: str) -> bool:
        blocks = model.count(name, leader) if leader else 0
        if leader is None or name == leader or not blocks:
            return True
        is_done = is_look(blocks) and is_decided(model.difference(name, leader))
        return not is_done and blocks < most_blocks

    return [configuration for configuration in racing if is_open(configuration.digest)]


def is_look(blocks: int) -> bool:
    """Whether something may be taken as decided by so many blocks, at the beginning of a round.

    Besides the looks that is every number after the second: there was a look in an earlier round, at which
    others had fewer blocks.
    """
    return blocks in LOOKS or blocks > LOOKS[1]


def is_decided(difference: Difference | None) -> bool:
    """Whether it is known which of the two is better, or that it makes no difference."""
    return difference is not None and (difference.is_distinguishable or is_equivalent(difference))


def is_equivalent(difference: Difference) -> bool:
    """Whether the two are the same for all practical purposes, as surely as the interval says."""
    return difference.interval.low > 1 - EQUIVALENT and difference.interval.high < 1 + EQUIVALENT
