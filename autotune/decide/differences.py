"""How much two things that were measured several times, or once, differ.

Values are compared by the logarithm of their ratio, because noise is a share of what is measured. Where both
were measured more than once their own spread tells the noise (Welch's t, which does not ask the two to vary
alike), else what is known of it from elsewhere. A spread of exactly 0 is no estimate, and is passed over.
"""

import math
from collections.abc import Sequence
from statistics import fmean, variance

from autotune.decide.intervals import CONFIDENCE
from autotune.decide.noise import Noise
from autotune.decide.student import t_quantile
from autotune.domain.difference import Basis, Difference
from autotune.domain.measurement import Interval


def difference(
    first: Sequence[float], second: Sequence[float], noise: tuple[Noise, Basis] | None
) -> Difference | None:
    """How the values of `second` differ from those of `first`, all positive, of each at least one.

    `noise` is that of one measurement of either, and what it comes from. None where neither that nor the
    values tell how much they vary.
    """
    a, b = [[math.log(value) for value in values] for values in (first, second)]
    found = _welch(a, b)
    if found is not None or noise is None:
        return found
    error = noise[0].sd_log * math.sqrt(1 / len(a) + 1 / len(b))
    return _within(a, b, error, noise[0].df, noise[1])


def level(values: Sequence[float]) -> tuple[float, Interval | None]:
    """Geometric mean of positive values, and where the true one lies; None where they do not tell."""
    logs = [math.log(value) for value in values]
    if len(logs) < 2 or (spread := variance(logs)) == 0:
        return math.exp(fmean(logs)), None
    reach = t_quantile((1 + CONFIDENCE) / 2, len(logs) - 1) * math.sqrt(spread / len(logs))
    middle = fmean(logs)
    return math.exp(middle), Interval(low=math.exp(middle - reach), high=math.exp(middle + reach))


def _welch(a: Sequence[float], b: Sequence[float]) -> Difference | None:
    if len(a) < 2 or len(b) < 2:
        return None
    shares = [(variance(logs) / len(logs), len(logs) - 1) for logs in (a, b)]
    spread = sum(share for share, _ in shares)
    if spread == 0:
        return None
    df = spread**2 / sum(share**2 / n for share, n in shares)
    return _within(a, b, math.sqrt(spread), df, Basis.REPEATS)


def _within(a: Sequence[float], b: Sequence[float], error: float, df: float, basis: Basis) -> Difference:
    """The difference whose logarithm has this standard error, of so many degrees of freedom."""
    log_ratio = fmean(b) - fmean(a)
    reach = t_quantile((1 + CONFIDENCE) / 2, df) * error
    return Difference(
        ratio=math.exp(log_ratio),
        interval=Interval(low=math.exp(log_ratio - reach), high=math.exp(log_ratio + reach)),
        confidence=CONFIDENCE,
        basis=basis,
        n_first=len(a),
        n_second=len(b),
    )
