"""Uniform random configurations of a search space: for checking it, and for tests."""

import math
from random import Random

from autotune.domain.space import (
    CategoricalDomain,
    Configuration,
    Domain,
    FloatDomain,
    IntDomain,
    SearchSpace,
    Value,
)


def draw(space: SearchSpace, rng: Random) -> Configuration:
    """One random value for each active parameter, whatever the constraints say.

    Raises ExpressionError when a `when` cannot be evaluated.
    """
    values: dict[str, Value] = {}
    for parameter in space.parameters:
        if space.is_active(parameter, values):
            values[parameter.name] = draw_value(parameter.domain, rng)
    return Configuration(values=values)


def sample(space: SearchSpace, rng: Random, attempts: int = 1000) -> Configuration | None:
    """A random configuration that keeps all constraints; None when none of `attempts` draws does.

    Raises ExpressionError when a `when` or a constraint cannot be evaluated.
    """
    for _ in range(attempts):
        configuration = draw(space, rng)
        if space.violated(configuration) is None:
            return configuration
    return None


def draw_value(domain: Domain, rng: Random) -> Value:
    """One of its values, each equally likely; of a `log` domain each on the logarithmic scale."""
    match domain:
        case CategoricalDomain(choices=choices):
            return rng.choice(choices)
        case IntDomain(low=low, high=high, log=True):
            # Half a unit on both sides, so that the bounds are drawn as often as their neighbours.
            return round(min(high, max(low, _log_uniform(low - 0.5, high + 0.5, rng))))
        case IntDomain(low=low, high=high, step=step):
            return low + step * rng.randint(0, (high - low) // step)
        case FloatDomain(low=low, high=high, log=True):
            return min(high, max(low, _log_uniform(low, high, rng)))
        case FloatDomain(low=low, high=high, step=None):
            return rng.uniform(low, high)
        case FloatDomain(low=low, high=high, step=float(step)):
            return nearest(domain, low + step * rng.randint(0, round((high - low) / step)))
        case _:
            raise TypeError(f"{domain!r} is no domain")


def nearest(domain: IntDomain | FloatDomain, wish: float) -> int | float:
    """The value of `domain` closest to `wish`; a decimal one as it is written.

    0.8 and three steps of 0.01 are 0.83, not 0.8300000000000001: the same setting has to have the same words.
    """
    match domain:
        case IntDomain(low=low, high=high, step=step):
            return min(high, max(low, low + step * round((wish - low) / step)))
        case FloatDomain(low=low, high=high, step=float(step)):
            return min(high, max(low, round(low + step * round((wish - low) / step), 12)))
        case FloatDomain(low=low, high=high):
            return min(high, max(low, float(wish)))


def _log_uniform(low: float, high: float, rng: Random) -> float:
    return math.exp(rng.uniform(math.log(low), math.log(high)))
