"""Whether what was measured of a configuration already rules it out, so that the rest need not be measured.

It is ruled out where one that was measured before is better by far in every objective, whatever is still to
be seen. What is not measured is bounded by two suppositions: with more streams no request becomes faster, and
throughput grows at most as fast as the streams, nor much faster than that of any configuration here has.
Neither is a law (sizes of captured graphs and data parallelism break them: vllm#23752), so it takes two
stream counts that say the same, and a wide margin.

The stream counts are measured in rising order: a point is planned by the time that a request took in the one
before, and a bound leads upwards only.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from autotune.decide.noise import decodes_speculatively
from autotune.decide.ranking import Candidate, candidates, luck, pareto
from autotune.domain.measurement import Point
from autotune.domain.metric import METRICS
from autotune.domain.metric_limit import MetricLimit
from autotune.domain.objective import Objective
from autotune.domain.trial import Measured, Origin, TrialRecord

WORSE = 1.15
"""By how many times the other has to be better in each objective, beside what noise explains."""
SEEN = 8
"""Configurations that must have been measured before any is given up."""
FASTER = 1.25
"""Throughput may grow by so many times more than that of any configuration did."""
WORTH_S = 10.0
"""What the rest of the ladder has to take for giving it up to be worth anything."""
FEW_STREAMS = 8
"""Below, speculative decoding varies too much for anything to be told from a point."""

_MAY_STOP = {Origin.SAMPLED, Origin.LOCAL}
"""Nothing else: the others are measured to be compared, or are the best that is known."""
_GROW = {"out_tok_s", "prompt_tok_s", "req_s"}
_TIMES = ("ttft_", "tpot_", "e2e_")


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderStop:
    """Judges the ladders of one study, by its trials so far."""

    records: Sequence[TrialRecord]
    objectives: Sequence[Objective]
    limits: Sequence[MetricLimit]
    streams: Sequence[int]
    """All that are measured, rising."""

    def why(self, running: TrialRecord, points: Sequence[Point]) -> str | None:
        """Why the rest of the ladder of a trial that is `running` is not worth it, with `points` measured.

        None if it may be.
        """
        if running.origin not in _MAY_STOP or len(points) < 2 or any(point.is_suspect for point in points):
            return None
        streams = points[-1].streams
        if streams < FEW_STREAMS and decodes_speculatively(running):
            return None
        known = candidates(self.records, self.objectives, self.limits)
        if len(known) < SEEN or self._left_s(streams) < WORTH_S:
            return None
        hopes = [self._hope(objective, points) for objective in self.objectives]
        for better in pareto(known, self.objectives):
            if self._least_lead(better, hopes) > self._margin(better.record, running):
                return _told(better, streams)
        return None

    def _hope(self, objective: Objective, points: Sequence[Point]) -> float | None:
        """The best value it can still have, supposing what this module does; None where that is not known."""
        if any(point.streams == objective.streams for point in points):
            return objective.value(tuple(points))
        metric = METRICS[objective.metric]
        bounds = [self._bound(objective, point) for point in points[-2:]]
        if None in bounds:
            return None
        known = [bound for bound in bounds if bound is not None]
        return max(known) if metric.higher_is_better else min(known)

    def _bound(self, objective: Objective, point: Point) -> float | None:
        """What `point` lets hope for at the greater stream count of `objective`."""
        value = METRICS[objective.metric].score(point)
        if value is None or objective.streams < point.streams:
            return None
        if objective.metric.startswith(_TIMES):
            return value
        if objective.metric not in _GROW:
            return None
        here = Objective(metric=objective.metric, streams=point.streams)
        grown = [
            more / less
            for record in self.records
            if isinstance(record.outcome, Measured)
            and (more := objective.value(record.points)) is not None
            and (less := here.value(record.points))
        ]
        linear = objective.streams / point.streams
        return value * min(linear, FASTER * max(grown, default=math.inf))

    def _least_lead(self, better: Candidate, hopes: Sequence[float | None]) -> float:
        """How many times better it is in the objective in which it leads by the least; 0 if not known."""
        leads: list[float] = []
        for theirs, hope, objective in zip(better.values, hopes, self.objectives, strict=True):
            if not hope or not theirs:
                return 0.0
            leads.append(theirs / hope if objective.maximize else hope / theirs)
        return min(leads)

    def _margin(self, *sides: TrialRecord) -> float:
        """`WORSE`, and two standard deviations of the difference of two launches."""
        sd_log = max(luck(self.records, self.objectives, side) for side in sides)
        return WORSE * math.exp(2 * math.sqrt(2) * sd_log)

    def _left_s(self, streams: int) -> float:
        """How long the points after `streams` take, by those of others: as long again to warm up."""
        windows = [
            [p.window_s for r in self.records for p in r.points if p.streams == count]
            for count in self.streams
            if count > streams
        ]
        return sum(2 * median(found) for found in windows if found)


def _told(better: Candidate, streams: int) -> str:
    return (
        f"given up after {streams} streams: trial {better.record.number} is better by more than "
        f"{100 * (WORSE - 1):.0f} % in every objective, whatever the rest of the ladder gives"
    )
