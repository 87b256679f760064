"""The registry of every number that is measured: its unit, its definition, its interval, its floor.

Code, `--help`, tables and `docs/measurement.md` all take them from `METRICS`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from autotune.domain.measurement import Interval, Point, Quantiles

FLOORS: Mapping[str, int] = MappingProxyType({"p50": 11, "p90": 64, "p95": 130, "p99": 662})
"""The smallest sample from which a quantile is scored.

With fewer, the chance that not even two of the sample lie above the true quantile is more than 1 %: the
sample says too little about it. These are the floors of MLPerf LoadGen's early stopping at a confidence of
0.99 (https://github.com/mlcommons/endpoints/pull/417).
"""


class IntervalBy(StrEnum):
    """How the interval of a number is found, as words for a reader."""

    ORDER_STATISTICS = "order statistics"
    """Two values of the sample between which the true quantile lies: exact, whatever the distribution."""
    WILSON = "Wilson"
    """Of a share."""
    REPEATS = "repeats"
    """Only other launches tell it: the requests of one window are not independent in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One number of a point, None where the point does not have it.

    `sample` is how many `counted` it rests on; below the `floor` it is shown but not scored.
    """

    name: str
    unit: str
    higher_is_better: bool
    meaning: str
    """Its definition, in one sentence."""
    interval_by: IntervalBy
    read: Callable[[Point], float | None]
    interval: Callable[[Point], Interval | None] = lambda _: None
    sample: Callable[[Point], int] = lambda point: point.done
    counted: str = "requests"
    floor: int = 0
    needs_slo: bool = False
    """Whether it is only defined in a workload with service-level objectives."""

    def score(self, point: Point) -> float | None:
        """What the search may go by: the number, None where it rests on too little."""
        return self.read(point) if self.sample(point) >= self.floor else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTime:
    """A time of which a point has quantiles."""

    label: str
    meaning: str
    pick: Callable[[Point], Quantiles | None]
    counted: str = "requests"
    interval_by: IntervalBy = IntervalBy.ORDER_STATISTICS


LATENCIES: Mapping[str, RequestTime] = MappingProxyType(
    {
        "ttft": RequestTime(
            label="TTFT",
            meaning="the time from sending a request to its first output, over the requests whose first "
            "output arrived in the window",
            pick=lambda point: point.ttft_s,
        ),
        "tpot": RequestTime(
            label="TPOT",
            meaning="a request's time for each output token after the first, (last output - first output) / "
            "(output tokens - 1), over the requests that finished in the window",
            pick=lambda point: point.tpot_s,
        ),
        "chunk_gap": RequestTime(
            label="gap",
            meaning="the time between two chunks of output of one request, however many tokens they carry, "
            "over the gaps that ended in the window",
            pick=lambda point: point.chunk_gap_s,
            counted="gaps",
            # One step of the server gives a gap to every stream at once, and all are as long as the step.
            interval_by=IntervalBy.REPEATS,
        ),
        "e2e": RequestTime(
            label="e2e",
            meaning="the time from sending a request to its last output, over the requests of full length "
            "that finished in the window",
            pick=lambda point: point.e2e_s,
        ),
    }
)
"""The times of a request, by the name their metrics begin with."""


_NAMES = {
    "p50": "the median",
    "p90": "the 90th percentile",
    "p95": "the 95th percentile",
    "p99": "the 99th percentile",
}


def _quantile_metric(name: str, latency: RequestTime, quantile: str) -> Metric:
    def read(point: Point) -> float | None:
        sample = latency.pick(point)
        return None if sample is None else sample.at(quantile)

    def interval(point: Point) -> Interval | None:
        sample = latency.pick(point)
        return None if sample is None else sample.intervals.get(quantile)

    def count(point: Point) -> int:
        sample = latency.pick(point)
        return 0 if sample is None else sample.n

    return Metric(
        name=f"{name}_{quantile}",
        unit="s",
        higher_is_better=False,
        meaning=f"{_NAMES[quantile]} of {latency.meaning}",
        interval_by=latency.interval_by,
        read=read,
        interval=interval,
        sample=count,
        counted=latency.counted,
        floor=FLOORS[quantile],
    )


_RATES = (
    Metric(
        name="out_tok_s",
        unit="tok/s",
        higher_is_better=True,
        meaning="output tokens that arrived in the window, per second; the server's own count of a request "
        "is spread evenly over its chunks",
        interval_by=IntervalBy.REPEATS,
        read=lambda point: point.out_tok_s,
    ),
    Metric(
        name="prompt_tok_s",
        unit="tok/s",
        higher_is_better=True,
        meaning="prompt tokens of the requests whose first output arrived in the window, per second; coarse "
        "below some 30 requests, since a prompt counts whole or not at all",
        interval_by=IntervalBy.REPEATS,
        read=lambda point: point.prompt_tok_s,
    ),
    Metric(
        name="req_s",
        unit="req/s",
        higher_is_better=True,
        meaning="requests that finished in the window, per second",
        interval_by=IntervalBy.REPEATS,
        read=lambda point: point.req_s,
    ),
    Metric(
        name="goodput_req_s",
        unit="req/s",
        higher_is_better=True,
        meaning="requests that finished in the window and kept the limit of every SLO, per second",
        interval_by=IntervalBy.REPEATS,
        read=lambda point: point.goodput_req_s,
        needs_slo=True,
    ),
    Metric(
        name="slo_attainment",
        unit="share",
        higher_is_better=True,
        meaning="share of requests that kept the limit of every SLO, of those that finished or failed in the "
        "window or had waited at its end for their first output longer than an SLO allows",
        interval_by=IntervalBy.WILSON,
        read=lambda point: point.slo.share if point.slo else None,
        interval=lambda point: point.slo.interval if point.slo else None,
        sample=lambda point: point.slo.of if point.slo else 0,
        floor=FLOORS["p50"],
        needs_slo=True,
    ),
)

METRICS: Mapping[str, Metric] = MappingProxyType(
    {metric.name: metric for metric in _RATES}
    | {
        metric.name: metric
        for name, latency in LATENCIES.items()
        for quantile in FLOORS
        for metric in [_quantile_metric(name, latency, quantile)]
    }
)
"""Every metric, by the name it is written with."""


def metric_names() -> str:
    """All names on one line, those of the quantiles in short: `ttft_p50|p90|p95|p99`."""
    quantiles = "|".join(FLOORS)
    return ", ".join([*(metric.name for metric in _RATES), *(f"{name}_{quantiles}" for name in LATENCIES)])
