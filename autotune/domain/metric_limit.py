"""A limit that a configuration must keep to be chosen, written `ttft_p95@4<=2s` or `out_tok_s@1>=50`."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from autotune.domain.measurement import Point
from autotune.domain.metric import METRICS
from autotune.domain.objective import Objective
from autotune.errors import UserError
from autotune.units import format_exact_time, parse_time

_FORM = "write METRIC@STREAMS<=NUMBER or METRIC@STREAMS>=NUMBER, for example ttft_p95@4<=2s"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricLimit:
    """`measured`, an objective's metric at its stream count, must not be worse than `bound`.

    Worse is more for a latency and less for a rate; `bound` has the metric's unit.
    """

    measured: Objective
    bound: float

    def __post_init__(self) -> None:
        if not 0 < self.bound < float("inf"):
            raise ValueError(f"the limit must be above 0 and finite, but is {self.bound}")

    @classmethod
    def parse(cls, text: str) -> "MetricLimit":
        """Read `ttft_p95@4<=2s`. Raises UserError naming what is allowed."""
        match = re.fullmatch(r"\s*([^<>=\s]+)\s*(<=|>=)\s*(\S+(?:\s*\S+)?)\s*", text)
        if match is None:
            raise UserError(f"limit {text!r}: {_FORM}")
        try:
            measured = Objective.parse(match[1])
        except UserError as error:
            raise UserError(f"limit {text!r}: {str(error).partition(': ')[2]}") from None
        if (match[2] == ">=") is not measured.maximize:
            better = "higher" if measured.maximize else "lower"
            other = ">=" if measured.maximize else "<="
            raise UserError(f"limit {text!r}: {measured.metric} is better {better}, so write {other}")
        in_seconds = METRICS[measured.metric].unit == "s"
        try:
            return cls(measured=measured, bound=parse_time(match[3]) if in_seconds else float(match[3]))
        except ValueError as error:
            raise UserError(f"limit {text!r}: {error}") from None

    def __str__(self) -> str:
        """As `parse` reads it, to the last digit."""
        sign = ">=" if self.measured.maximize else "<="
        in_seconds = METRICS[self.measured.metric].unit == "s"
        return f"{self.measured}{sign}{format_exact_time(self.bound) if in_seconds else repr(self.bound)}"

    def violation(self, points: tuple[Point, ...]) -> float | None:
        """By what share of the bound the ladder breaks it; at most 0 where it keeps it, None if unknown."""
        value = self.measured.value(points)
        if value is None:
            return None
        excess = value / self.bound - 1
        return -excess if self.measured.maximize else excess


def parse_metric_limits(texts: Iterable[str]) -> tuple[MetricLimit, ...]:
    """All of them. Raises UserError for one that cannot be read, and when two are about the same."""
    limits: list[MetricLimit] = []
    for text in texts:
        limit = MetricLimit.parse(text)
        if any(limit.measured == other.measured for other in limits):
            raise UserError(f"limit {text!r}: there is a second limit for {limit.measured}; keep one of them")
        limits.append(limit)
    return tuple(limits)
