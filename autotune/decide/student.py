"""Student's t distribution, which says how far a mean of few values may be from the truth."""

from functools import lru_cache

from mpmath import betainc


def t_cdf(t: float, df: float) -> float:
    """The probability that Student's t with `df` degrees of freedom is at most `t`."""
    if df <= 0:
        raise ValueError(f"there must be degrees of freedom, but there are {df}")
    beyond = float(betainc(df / 2, 0.5, 0, df / (df + t * t), regularized=True)) / 2
    return beyond if t < 0 else 1 - beyond


@lru_cache(maxsize=1024)
def t_quantile(probability: float, df: float) -> float:
    """The value that Student's t with `df` degrees of freedom is below with this probability.

    Raises ValueError unless `probability` is between 0 and 1, both excluded.
    """
    if not 0 < probability < 1:
        raise ValueError(f"a probability between 0 and 1 is needed, not {probability}")
    if probability < 0.5:
        return -t_quantile(1 - probability, df)
    low, high = 0.0, 1.0
    while t_cdf(high, df) < probability:
        low, high = high, 2 * high
    # Halved until nothing is left between the two but rounding: some 50 times, which the cache pays for.
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if t_cdf(middle, df) < probability else (low, middle)
    return high
