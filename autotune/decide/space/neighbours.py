"""Configurations close to a good one: one or two settings changed, all others as they are."""

import math
from random import Random

from autotune.decide.space.sampling import draw_value, nearest
from autotune.domain.space import (
    CategoricalDomain,
    Configuration,
    Domain,
    FloatDomain,
    IntDomain,
    Parameter,
    SearchSpace,
    Value,
)

ATTEMPTS = 50
"""Draws before there is said to be no neighbour: with all but a few broken by constraints it takes some."""


def neighbour(
    space: SearchSpace, configuration: Configuration, rng: Random, step: float
) -> Configuration | None:
    """`configuration` with one or two of its active parameters changed; None where no draw finds such a one.

    It keeps the constraints and has values of the domains only. Numbers move by `step` of their range (one
    standard deviation), on the logarithmic scale where the domain has one, and at least to the next value.
    An active parameter without a value, left to vLLM, may get any; one that becomes active gets one, and one
    that no longer is loses its own. Raises ExpressionError as `draw` does.
    """
    active = [p for p in space.parameters if space.is_active(p, configuration.values) and _is_free(p.domain)]
    for _ in range(ATTEMPTS if active else 0):
        changed = {p.name for p in rng.sample(active, min(len(active), rng.choice((1, 2))))}
        candidate = Configuration(values=_changed(space, configuration, changed, rng, step))
        if candidate != configuration and space.violated(candidate) is None:
            return candidate
    return None


def _changed(
    space: SearchSpace, old: Configuration, changed: set[str], rng: Random, step: float
) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for parameter in space.parameters:
        name = parameter.name
        if not space.is_active(parameter, values):
            continue
        if name in changed and name in old.values:
            values[name] = _moved(parameter, old.values[name], rng, step)
        elif name in old.values:
            values[name] = old.values[name]
        elif name in changed or not space.is_active(parameter, old.values):
            values[name] = draw_value(parameter.domain, rng)
    return values


def _moved(parameter: Parameter, value: Value, rng: Random, step: float) -> Value:
    """Another value of the parameter, close to `value` if it is a number."""
    domain = parameter.domain
    if isinstance(domain, CategoricalDomain):
        return rng.choice([other for other in domain.choices if other != value])
    if isinstance(value, str):
        raise TypeError(f"{parameter.name} is a number, and {value!r} is none")
    distance = rng.gauss(0, step) * _width(domain)
    if not domain.low <= _shifted(domain, value, distance) <= domain.high:
        distance = -distance  # there is nothing on that side
    moved = nearest(domain, _shifted(domain, value, distance))
    if moved != value or domain.step is None:
        return moved
    return nearest(domain, value + (domain.step if distance > 0 else -domain.step))


def _width(domain: IntDomain | FloatDomain) -> float:
    return math.log(domain.high / domain.low) if domain.log else domain.high - domain.low


def _shifted(domain: IntDomain | FloatDomain, value: float, distance: float) -> float:
    return value * math.exp(distance) if domain.log else value + distance


def _is_free(domain: Domain) -> bool:
    """Whether it has more than one value."""
    if isinstance(domain, CategoricalDomain):
        return len(domain.choices) > 1
    return domain.low < domain.high
