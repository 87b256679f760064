"""Intervals that assume no distribution: of a quantile by order statistics, of a share by Wilson.

Both suppose independent observations.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import exp, lgamma, log, sqrt
from statistics import NormalDist

from autotune.domain.measurement import Interval

CONFIDENCE = 0.95
"""The probability with which an interval holds the true value, at least."""

_NEGLIGIBLE = 1e-15


def order_statistic_ranks(n: int, quantile: float, confidence: float = CONFIDENCE) -> tuple[int, int] | None:
    """The ranks, from 1, of the two values of `n` that bound `quantile`; None when `n` is too small.

    How many values lie below the true quantile is binomial. It lies below the value of rank r when fewer than
    r do, and above it when r or more do; each of the two may happen with half of what `confidence` leaves.
    """
    tail = (1 - confidence) / 2
    chances = list(_binomial(n, quantile))
    low = _last_below(chances, tail)
    high = _last_below([(n - k, chance) for k, chance in reversed(chances)], tail)
    return (low, n + 1 - high) if low and high else None


def _last_below(chances: Sequence[tuple[int, float]], tail: float) -> int:
    """The largest r for which fewer than r come with a chance of at most `tail`; 0 when there is none."""
    totals = accumulate(chance for _, chance in chances)
    return next(k for (k, _), total in zip(chances, totals, strict=True) if total > tail)


def _binomial(n: int, p: float) -> Iterator[tuple[int, float]]:
    """How many of `n` succeed with which chance, rising; those that are next to impossible are left out.

    From the most likely number outwards: a million observations take a few thousand steps.
    """
    middle = min(n, int((n + 1) * p))
    peak = exp(
        lgamma(n + 1) - lgamma(middle + 1) - lgamma(n - middle + 1)
        + middle * log(p) + (n - middle) * log(1 - p)
    )  # fmt: skip
    below, chance, k = [], peak, middle
    while k > 0 and chance > _NEGLIGIBLE:
        chance *= k * (1 - p) / ((n - k + 1) * p)
        k -= 1
        below.append((k, chance))
    yield from reversed(below)
    chance, k = peak, middle
    while k <= n and chance > _NEGLIGIBLE:
        yield k, chance
        chance *= (n - k) * p / ((k + 1) * (1 - p))
        k += 1


def wilson_interval(met: int, of: int, confidence: float = CONFIDENCE) -> Interval:
    """Where the true share lies when `met` of `of` kept it. Raises ValueError for no observation."""
    if not 0 <= met <= of or of < 1:
        raise ValueError(f"{met} of {of} is no share")
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share = met / of
    centre = share + z * z / (2 * of)
    spread = z * sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    scale = 1 + z * z / of
    # Rounding may lead past the ends, and past a share of exactly 0 or 1.
    low = 0.0 if met == 0 else (centre - spread) / scale
    high = 1.0 if met == of else (centre + spread) / scale
    return Interval(low=max(0.0, low), high=min(1.0, high))
