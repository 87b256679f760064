"""What a configuration gives at each stream count, over all its launches, and how sure that is."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autotune.decide.differences import level
from autotune.domain.measurement import Interval, Point
from autotune.domain.metric import METRICS
from autotune.domain.trial import Measured, TrialRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Geometric mean over launches, with its interval at `autotune.decide.intervals.CONFIDENCE`.

    Of several launches the interval is theirs (Student's t of the logarithms). Of a single one it is that of
    the metric itself, by the requests in the window, and None where the metric has none.
    """

    value: float
    interval: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One stream count; a latency is None where no request fit a window."""

    streams: int
    launches: int
    out_tok_s: Estimate | None
    ttft_s: Estimate | None
    tpot_s: Estimate | None


def launches_by_configuration(records: Iterable[TrialRecord]) -> dict[str, list[TrialRecord]]:
    """The measured trials of each configuration, by its digest."""
    found: dict[str, list[TrialRecord]] = {}
    for record in records:
        if isinstance(record.outcome, Measured):
            found.setdefault(record.configuration.digest, []).append(record)
    return found


def ladder(launches: Sequence[TrialRecord]) -> tuple[Level, ...]:
    """A level for each stream count that any of `launches`, all of one configuration, has a point of."""
    points: dict[int, list[Point]] = {}
    for record in launches:
        for point in record.points:
            points.setdefault(point.streams, []).append(point)
    return tuple(
        Level(
            streams=streams,
            launches=len(found),
            out_tok_s=estimate(found, "out_tok_s"),
            ttft_s=estimate(found, "ttft_p50"),
            tpot_s=estimate(found, "tpot_p50"),
        )
        for streams, found in sorted(points.items())
    )


def estimate(points: Sequence[Point], name: str) -> Estimate | None:
    """The metric called `name` over points of one stream count; None where no point has it above 0."""
    metric = METRICS[name]
    having = [(point, value) for point in points if (value := metric.read(point)) is not None and value > 0]
    if len(having) == 1:
        point, value = having[0]
        return Estimate(value=value, interval=metric.interval(point))
    if not having:
        return None
    mean, interval = level([value for _, value in having])
    return Estimate(value=mean, interval=interval)
