"""How much two things that were measured differ, and how sure that is."""

from dataclasses import dataclass
from enum import StrEnum

from autotune.domain.measurement import Interval


class Basis(StrEnum):
    """What the interval of a difference rests on, from the best to the weakest."""

    BLOCKS = "blocks"
    """Both were measured in the same blocks, each time on a fresh server: what changes slowly cancels out."""
    REPEATS = "repeats"
    """Both were measured several times, at different times."""
    NOISE = "noise"
    """One of them was measured once; the noise is that of other repeats in the study."""
    PRIOR = "prior"
    """Nothing was measured twice: the noise is what is usual, not what was seen here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """`ratio` of the second to the first (geometric mean over repeats); 1 means equal.

    `interval` holds the true ratio with probability `confidence`. `n_first` and `n_second` are how many
    launches each side rests on.
    """

    ratio: float
    interval: Interval
    confidence: float
    basis: Basis
    n_first: int
    n_second: int

    @property
    def is_distinguishable(self) -> bool:
        """Whether the two differ by more than chance explains, at that confidence."""
        return not self.interval.low <= 1.0 <= self.interval.high
