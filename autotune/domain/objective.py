"""What the search maximises or minimises: a metric at a stream count, written `out_tok_s@8`."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from autotune.domain.measurement import Point, Quantiles
from autotune.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A number every point has: its unit, whether more of it is better, and how it is read."""

    unit: str
    higher_is_better: bool
    meaning: str
    read: Callable[[Point], float | None]


def _quantile(pick: Callable[[Point], Quantiles | None], q: str) -> Callable[[Point], float | None]:
    def read(point: Point) -> float | None:
        sample = pick(point)
        return None if sample is None else (sample.p50 if q == "p50" else sample.p95)

    return read


_LATENCIES: dict[str, tuple[str, Callable[[Point], Quantiles | None]]] = {
    "ttft": ("time from sending a request to its first output", lambda p: p.ttft_s),
    "tpot": ("time for each output token after the first", lambda p: p.tpot_s),
    "e2e": ("time from sending a request to its last token", lambda p: p.e2e_s),
}

METRICS: dict[str, Metric] = {
    "out_tok_s": Metric(
        unit="tok/s",
        higher_is_better=True,
        meaning="output tokens that arrived in the window, by second",
        read=lambda p: p.out_tok_s,
    ),
    "prompt_tok_s": Metric(
        unit="tok/s",
        higher_is_better=True,
        meaning="prompt tokens whose first output arrived in the window, by second",
        read=lambda p: p.prompt_tok_s,
    ),
    "req_s": Metric(
        unit="req/s",
        higher_is_better=True,
        meaning="requests finished in the window, by second",
        read=lambda p: p.req_s,
    ),
} | {
    f"{name}_{q}": Metric(
        unit="s", higher_is_better=False, meaning=f"{meaning}, {q}", read=_quantile(pick, q)
    )
    for name, (meaning, pick) in _LATENCIES.items()
    for q in ("p50", "p95")
}
"""Every metric that can be an objective, by the name it is written with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """`metric` at `streams` concurrent streams, better when higher or lower as the metric says."""

    metric: str
    streams: int

    @classmethod
    def parse(cls, text: str) -> "Objective":
        """Read `out_tok_s@8`. Raises UserError naming what is allowed."""
        metric, at, streams = text.partition("@")
        if metric not in METRICS:
            raise UserError(f"objective {text!r}: {metric!r} is no metric; choose from {', '.join(METRICS)}")
        if not at or not re.fullmatch(r"[1-9][0-9]{0,5}", streams):
            raise UserError(f"objective {text!r}: write METRIC@STREAMS, for example {metric}@8")
        return cls(metric=metric, streams=int(streams))

    def __str__(self) -> str:
        return f"{self.metric}@{self.streams}"

    @property
    def maximize(self) -> bool:
        """Whether more is better."""
        return METRICS[self.metric].higher_is_better

    def value(self, points: tuple[Point, ...]) -> float | None:
        """Its value in a measured ladder; None where that stream count or latency was not measured."""
        for point in points:
            if point.streams == self.streams:
                return METRICS[self.metric].read(point)
        return None


def default_objectives(streams: tuple[int, ...]) -> tuple[Objective, ...]:
    """Throughput at the largest of the rising `streams`, and at a single stream where that is measured."""
    counts = [streams[-1], 1] if streams[0] == 1 and len(streams) > 1 else [streams[-1]]
    return tuple(Objective(metric="out_tok_s", streams=count) for count in counts)
