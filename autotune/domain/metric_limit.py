"""A limit that a configuration must keep to be chosen, written `ttft_p95@4<=2s` or `out_tok_s@1>=50`."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from autotune.domain.measurement import Point
from autotune.domain.metric import METRICS
from autotune.domain.objective import Objective
from autotune.errors import UserError
from autotune.units import format_exact_time, parse_time

FORM = (
    "METRIC@STREAMS<=VALUE where less is better, else METRIC@STREAMS>=VALUE, for example 'ttft_p95@4<=2s' or "
    "'out_tok_s@1>=50'; with the quotes, since a shell takes < and > for itself"
)
"""How one is written on a command line, as words for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricLimit:
    """`measured`, an objective's metric at its stream count, must not be worse than `bound`.

    Worse is more for a latency and less for a rate; `bound` has the metric's unit. Raises ValueError for a
    bound that says nothing, or that nothing can keep.
    """

    measured: Objective
    bound: float

    def __post_init__(self) -> None:
        if not 0 < self.bound < float("inf"):
            raise ValueError(f"a limit must be above 0 and finite, but is {self.bound}")
        if METRICS[self.measured.metric].unit == "share" and self.bound > 1:
            raise ValueError(f"{self.measured.metric} is a share, at most 1, but the limit is {self.bound}")

    @classmethod
    def parse(cls, text: str) -> "MetricLimit":
        """Read `ttft_p95@4<=2s`. Raises UserError naming what is allowed."""
        match = re.fullmatch(r"\s*([^<>=\s]+)\s*(<=|>=)\s*([^<>=]*[^<>=\s])\s*", text)
        if match is None:
            raise UserError(f"limit {text!r}: write {FORM}")
        measured = Objective.parse(match[1], within=f"limit {text!r}")
        if match[2] != _sign(measured):
            better = "higher" if measured.maximize else "lower"
            raise UserError(
                f"limit {text!r}: {measured.metric} is better {better}, so write {_sign(measured)}"
            )
        try:
            return cls(measured=measured, bound=_bound(match[3], measured))
        except ValueError as error:
            raise UserError(f"limit {text!r}: {error}") from None

    def __str__(self) -> str:
        """As `parse` reads it, to the last digit."""
        bound = format_exact_time(self.bound) if _is_time(self.measured) else f"{self.bound!r}"
        return f"{self.measured}{_sign(self.measured)}{bound.removesuffix('.0')}"

    def excess(self, value: float) -> float:
        """By what share of the bound `value` is worse than it; at most 0 where it is kept."""
        excess = value / self.bound - 1
        return -excess if self.measured.maximize else excess

    def keeps(self, value: float) -> bool:
        """Whether `value` is within the limit, which itself is."""
        return self.excess(value) <= 0

    def violation(self, points: tuple[Point, ...]) -> float | None:
        """The `excess` of a measured ladder; None where it has no value, or rests on too little."""
        value = self.measured.value(points)
        return None if value is None else self.excess(value)


def _sign(measured: Objective) -> str:
    return ">=" if measured.maximize else "<="


def _is_time(measured: Objective) -> bool:
    return METRICS[measured.metric].unit == "s"


def _bound(text: str, measured: Objective) -> float:
    """The number in `text`, seconds for a time. Raises ValueError with a sentence for the user."""
    if _is_time(measured):
        return parse_time(text)
    # Narrower than `float`, which also reads 1_000, infinity and digits of other scripts.
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?", text):
        unit = METRICS[measured.metric].unit
        raise ValueError(f"{text!r} is no number; write it without its unit ({unit}), for example 50 or 0.95")
    return float(text)


def parse_metric_limits(texts: Iterable[str]) -> tuple[MetricLimit, ...]:
    """All of them. Raises UserError for one that cannot be read, and when two are about the same."""
    limits: list[MetricLimit] = []
    for text in texts:
        limit = MetricLimit.parse(text)
        if any(limit.measured == other.measured for other in limits):
            raise UserError(f"limit {text!r}: there is a second limit for {limit.measured}; keep one of them")
        limits.append(limit)
    return tuple(limits)


def instead(kept: Iterable[MetricLimit], asked: Iterable[MetricLimit]) -> tuple[MetricLimit, ...]:
    """`asked`, and those of `kept` that are about something else: what is asked for now goes first."""
    asked = tuple(asked)
    about = {limit.measured for limit in asked}
    return (*asked, *(limit for limit in kept if limit.measured not in about))
