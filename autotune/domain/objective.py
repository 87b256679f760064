"""What the search maximises or minimises: a metric at a stream count, written `out_tok_s@8`."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from autotune.domain.measurement import Point
from autotune.domain.metric import METRICS, metric_names
from autotune.domain.slo import Slo
from autotune.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """`metric` at `streams` concurrent streams, better when higher or lower as the metric says."""

    metric: str
    streams: int

    @classmethod
    def parse(cls, text: str, within: str | None = None) -> "Objective":
        """Read `out_tok_s@8`. Raises UserError naming what is allowed, and what it was `within`."""
        within = within or f"objective {text!r}"
        metric, at, streams = text.partition("@")
        if metric not in METRICS:
            raise UserError(f"{within}: {metric!r} is no metric; choose from {metric_names()}")
        if not at or not re.fullmatch(r"[1-9][0-9]{0,5}", streams):
            raise UserError(f"{within}: write METRIC@STREAMS, for example {metric}@8")
        return cls(metric=metric, streams=int(streams))

    def __str__(self) -> str:
        return f"{self.metric}@{self.streams}"

    @property
    def maximize(self) -> bool:
        """Whether more is better."""
        return METRICS[self.metric].higher_is_better

    @property
    def floor(self) -> int:
        """The smallest sample it is scored from; 0 for a rate."""
        return METRICS[self.metric].floor

    def value(self, points: tuple[Point, ...]) -> float | None:
        """Its value in a measured ladder; None where that was not measured, or rests on too little."""
        point = self._point(points)
        return None if point is None else METRICS[self.metric].score(point)

    def shortage(self, points: tuple[Point, ...]) -> str | None:
        """Why the ladder gives it no value although its stream count was measured; None otherwise.

        `too few requests for ttft_p95@4: 40 of 130`.
        """
        point, metric = self._point(points), METRICS[self.metric]
        if point is None or metric.sample(point) >= metric.floor:
            return None
        return f"too few {metric.counted} for {self}: {metric.sample(point)} of {metric.floor}"

    def _point(self, points: tuple[Point, ...]) -> Point | None:
        return next((point for point in points if point.streams == self.streams), None)


def default_objectives(streams: tuple[int, ...]) -> tuple[Objective, ...]:
    """Throughput at the largest of the rising `streams`, and at a single stream where that is measured."""
    counts = [streams[-1], 1] if streams[0] == 1 and len(streams) > 1 else [streams[-1]]
    return tuple(Objective(metric="out_tok_s", streams=count) for count in counts)


def check_slos(objectives: Iterable[Objective], slos: tuple[Slo, ...], what: str = "objective") -> None:
    """Raise UserError when an objective counts requests that keep SLOs, and there are none.

    `what` is what the objectives are called in it.
    """
    for objective in objectives:
        if METRICS[objective.metric].needs_slo and not slos:
            raise UserError(
                f"{what} {objective}: the workload has no service-level objective to keep; "
                "add one, for example --slo ttft_p95=2s"
            )


def check_streams(objectives: Iterable[Objective], streams: tuple[int, ...], what: str = "objective") -> None:
    """Raise UserError when an objective is of a stream count that is not among the measured `streams`."""
    for objective in objectives:
        if objective.streams not in streams:
            counts = ", ".join(map(str, streams))
            raise UserError(f"{what} {objective}: measured are {counts} streams; choose one of these counts")


def wanted_requests(objectives: Iterable[Objective]) -> Mapping[int, int]:
    """By stream count, how many requests a point needs so that each objective there has a value.

    Stream counts at which any number will do are left out. So are chunk gaps: a request brings many of them.
    """
    wanted: dict[int, int] = {}
    for objective in objectives:
        if objective.floor and METRICS[objective.metric].counted == "requests":
            wanted[objective.streams] = max(objective.floor, wanted.get(objective.streams, 0))
    return wanted
