"""How a configuration stands to the limits that it has to keep to be chosen.

What counts is the geometric mean over its launches; of one that was in finals over those alone, since it may
have come into them by one lucky measurement.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.decide.ladder import estimate
from autotune.domain.measurement import Interval
from autotune.domain.metric_limit import MetricLimit
from autotune.domain.trial import Origin, TrialRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A configuration held against one limit: its `value` over `launches`, and where the true one lies."""

    limit: MetricLimit
    value: float
    interval: Interval | None
    """None where the launches do not tell."""
    launches: int
    of_finals: bool

    @property
    def keeps(self) -> bool:
        """Whether the value is within the limit."""
        return self.limit.keeps(self.value)

    @property
    def straddles(self) -> bool:
        """Whether the limit lies within the interval, so that the true value may be on either side of it."""
        if self.interval is None:
            return False
        return self.limit.keeps(self.interval.low) is not self.limit.keeps(self.interval.high)


def held(launches: Sequence[TrialRecord], limits: Sequence[MetricLimit]) -> tuple[Held, ...] | None:
    """How the configuration of these measured `launches` stands to the limits; None where one is unknown."""
    finals = [record for record in launches if record.origin is Origin.FINAL]
    found = [_held(finals or launches, limit, of_finals=bool(finals)) for limit in limits]
    return None if None in found else tuple(each for each in found if each is not None)


def _held(launches: Sequence[TrialRecord], limit: MetricLimit, *, of_finals: bool) -> Held | None:
    """By the launches that have a value; None where none has."""
    of = limit.measured
    points = [point for record in launches for point in record.points if of.value((point,)) is not None]
    if not points:
        return None
    # A mean of logarithms has no place for a 0.
    mean = None if any(of.value((point,)) == 0 for point in points) else estimate(points, of.metric)
    return Held(
        limit=limit,
        value=mean.value if mean else 0.0,
        interval=mean.interval if mean else None,
        launches=len(points),
        of_finals=of_finals,
    )
