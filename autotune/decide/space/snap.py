"""The value of a domain that comes nearest to a wish: expert knowledge is not written for one range."""

import math

from autotune.decide.space.sampling import nearest
from autotune.domain.space import CategoricalDomain, Domain, FloatDomain, IntDomain, Value

FAR = 0.25
"""A value further from the wish than this share of it would be something else under the same name."""


def snapped(domain: Domain, wish: Value) -> Value | None:
    """The nearest value of `domain`, of whole numbers the next one above; None where nothing compares.

    Above, because a wish is most often a need: room for so many tokens, or for all streams.
    """
    match domain:
        case CategoricalDomain(choices=choices):
            return _choice(choices, wish)
        case _ if isinstance(wish, bool | str):
            return None
        case IntDomain(low=low, step=step):
            return nearest(domain, low + step * math.ceil((wish - low) / step - 1e-9))
        case FloatDomain():
            return nearest(domain, wish)
        case _:
            raise TypeError(f"{domain!r} is no domain")


def close(domain: Domain, wish: Value) -> Value | None:
    """As `snapped`, but None where the wish is outside the range, or no choice, and that is `FAR` from it."""
    value = snapped(domain, wish)
    if value is None or isinstance(value, bool | str) or isinstance(wish, bool | str):
        return value
    if not isinstance(domain, CategoricalDomain) and domain.low <= wish <= domain.high:
        return value
    return value if abs(value - wish) <= FAR * abs(wish) else None


def ends(domain: Domain) -> tuple[float, float] | None:
    """The lowest and the highest value; None for choices that are no numbers."""
    if not isinstance(domain, CategoricalDomain):
        return domain.low, domain.high
    numbers = _numbers(domain.choices)
    return (min(numbers), max(numbers)) if numbers else None


def _choice(choices: tuple[Value, ...], wish: Value) -> Value | None:
    for choice in choices:
        # As text as well: that is how vLLM's parser tells its defaults.
        if (type(choice) is type(wish) and choice == wish) or (isinstance(wish, str) and str(choice) == wish):
            return choice
    if isinstance(wish, bool | str):
        return None
    return min(_numbers(choices), key=lambda number: abs(number - wish), default=None)


def _numbers(choices: tuple[Value, ...]) -> list[int | float]:
    """Of choices that are all numbers; none of others."""
    numbers = [c for c in choices if isinstance(c, int | float) and not isinstance(c, bool)]
    return numbers if len(numbers) == len(choices) else []
