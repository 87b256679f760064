"""What the finals say: how much the finalists differ from the baseline and from each other.

A block launches the baseline and the finalists one after another. Logarithms of what they gave are taken as
configuration + block + noise: what changes from block to block is common to all in it and cancels out, so
configurations are compared within blocks only.

An interval holds at every look at once and for all finalists together: what may go wrong in 5 % of studies is
spread over the looks (`alpha_of`) and, in equal parts, over all that have ever been finalists (Bonferroni).
It can therefore be looked at again after more blocks, in a later round, and at the best of several, without
finding a winner by looking often.
"""

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from autotune.decide.noise import Noise, Read, neighbour_noise, pooled
from autotune.decide.student import t_cdf, t_quantile
from autotune.domain.difference import Basis, Difference
from autotune.domain.measurement import Interval
from autotune.domain.space import Configuration
from autotune.domain.trial import Measured, Origin, TrialRecord

LOOKS = (3, 5, 8)
"""After how many blocks the finals are looked at, and may end."""
_ALPHAS = (0.02, 0.015, 0.005)
_BEYOND = 0.005
CONFIDENCE = 0.95
"""The looks take 4 %, the last of them once more what it takes, because the winner of one round is looked at
in the next with 6 blocks and with 8, and all later ones `_BEYOND`."""
BASELINE = Configuration().digest

_ROUNDS = 500
_EXACT = 1e-12


def alpha_of(blocks: int) -> float:
    """The chance of a wrong interval that a look after so many blocks may take; finals cut short included.

    Beyond the last look it is halved with each doubling of the blocks, so that no number of rounds spends
    more than 5 %.
    """
    for look, alpha in zip(LOOKS, _ALPHAS, strict=True):
        if blocks <= look:
            return alpha
    return math.ldexp(_BEYOND, -math.ceil(math.log2(blocks / LOOKS[-1])))


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Differences of logarithms, second less first, over the blocks that have both."""

    logs: tuple[float, ...]

    @property
    def mean(self) -> float:
        return fmean(self.logs)

    @property
    def own_error(self) -> float:
        """Standard error of the mean by these differences alone."""
        return math.sqrt(variance(self.logs) / len(self.logs))


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockModel:
    """The values of one metric in all blocks; configurations are named by their digests.

    `noise` is that of one launch within a block, None when nothing tells it. `reference` is in every block.
    """

    blocks: tuple[Mapping[str, float], ...]
    noise: Noise | None
    reference: str = BASELINE

    @property
    def finalists(self) -> set[str]:
        """All that have been in a block with the reference."""
        return {name for block in self.blocks for name in block} - {self.reference}

    def count(self, first: str, second: str) -> int:
        """How many blocks have both."""
        return sum(first in block and second in block for block in self.blocks)

    def log_ratio(self, first: str, second: str) -> float | None:
        """Logarithm of second to first, over the blocks that have both; None where there is none."""
        pairs = self._pairs(first, second)
        return pairs.mean if pairs.logs else None

    def difference(self, first: str, second: str) -> Difference | None:
        """How `second` differs from `first`; None with fewer than 2 blocks that have both.

        It is never surer than the paired t test of these two alone at this look: where one of them varies
        more than the others (speculative decoding does), the noise of all would flatter it. Simulated with
        one finalist at 10 % and controls at 1 %, 15 % of the studies would have had a false winner.
        """
        pairs = self._pairs(first, second)
        n = len(pairs.logs)
        if n < 2 or self.noise is None:
            return None
        alpha = alpha_of(n)
        shared = self.noise.sd_log * math.sqrt(2 / n)
        reach = max(
            shared * t_quantile(1 - alpha / len(self.finalists) / 2, self.noise.df),
            pairs.own_error * t_quantile(1 - alpha / 2, n - 1),
        )
        return Difference(
            ratio=math.exp(pairs.mean),
            interval=Interval(low=math.exp(pairs.mean - reach), high=math.exp(pairs.mean + reach)),
            confidence=CONFIDENCE,
            basis=Basis.BLOCKS,
            n_first=n,
            n_second=n,
        )

    def chance_of_no_worse(self, leader: str, other: str) -> float | None:
        """One-sided p of `other` being as good as `leader`; None where there is too little to tell."""
        pairs = self._pairs(other, leader)
        if len(pairs.logs) < 2 or self.noise is None or self.noise.sd_log == 0:
            return None
        error = max(self.noise.sd_log * math.sqrt(2 / len(pairs.logs)), pairs.own_error)
        return 1 - t_cdf(pairs.mean / error, self.noise.df)

    def _pairs(self, first: str, second: str) -> _Pairs:
        common = [block for block in self.blocks if first in block and second in block]
        return _Pairs(tuple(block[second] - block[first] for block in common))


def block_model(records: Sequence[TrialRecord], read: Read) -> BlockModel:
    """The blocks of all finals in `records`, whichever invocation ran them, by the logarithm of `read`.

    A block without a measured baseline, or with nothing beside it, has nothing to compare. The noise is what
    the blocks leave unexplained, together with that of neighbouring launches outside all blocks.
    """
    return _model(records, [record for record in records if record.origin is Origin.FINAL], read, BASELINE)


def blocks_with(records: Sequence[TrialRecord], read: Read, reference: str) -> BlockModel:
    """The same of every block, of finals or of an ablation, in which `reference` was measured."""
    return _model(records, records, read, reference)


def _model(
    records: Sequence[TrialRecord], within: Sequence[TrialRecord], read: Read, reference: str
) -> BlockModel:
    found: dict[int, dict[str, float]] = defaultdict(dict)
    for record in within:
        if record.block is not None and isinstance(record.outcome, Measured):
            value = read(record)
            if value is not None and value > 0:
                found[record.block][record.configuration.digest] = math.log(value)
    blocks = tuple(block for _, block in sorted(found.items()) if reference in block and len(block) > 1)
    noise = pooled(_residual(blocks), neighbour_noise(records, read))
    return BlockModel(blocks=blocks, noise=noise, reference=reference)


def launch_order(among: Iterable[Configuration], block: int, seed: int) -> tuple[Configuration, ...]:
    """The order of a block's launches: drawn for each two blocks, and the other way round in the second.

    What changes evenly in the course of a block then cancels out over the two.
    """

    def place(configuration: Configuration) -> float:
        key = f"{seed}:{block // 2}:{configuration.digest}"
        return random.Random(key).random()  # noqa: S311 - reproducible on purpose

    return tuple(sorted(among, key=place, reverse=block % 2 == 1))


def _residual(blocks: Sequence[Mapping[str, float]]) -> Noise | None:
    """What the least-squares fit of configuration + block leaves.

    All blocks have the reference, so that the fit has one parameter for each configuration and each block but
    one. It is found by fitting the two in turn, which for blocks without gaps is exact at once.
    """
    names = {name for block in blocks for name in block}
    df = sum(map(len, blocks)) - len(names) - len(blocks) + 1
    if not blocks or df < 1:
        return None
    effects = dict.fromkeys(names, 0.0)
    for _ in range(_ROUNDS):
        left = [_less_mean({name: y - effects[name] for name, y in block.items()}) for block in blocks]
        steps = {name: fmean(block[name] for block in left if name in block) for name in names}
        effects = {name: effect + steps[name] for name, effect in effects.items()}
        if max(map(abs, steps.values())) < _EXACT:
            break
    left = [_less_mean({name: y - effects[name] for name, y in block.items()}) for block in blocks]
    return Noise(sd_log=math.sqrt(_squares(r for block in left for r in block.values()) / df), df=df)


def _less_mean(values: Mapping[str, float]) -> Mapping[str, float]:
    mean = fmean(values.values())
    return {name: value - mean for name, value in values.items()}


def _squares(values: Iterable[float]) -> float:
    return math.fsum(value * value for value in values)
