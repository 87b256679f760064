"""Where the time of a study went: every stretch of it as a segment, in a trial, between two, or in a pause.

Times are seconds on the study's own clock, which begins with the first invocation and stands still between
two of them: a study that was continued a week later is not a week long.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from typing import TypeVar

from autotune.domain.invocation import Invocation
from autotune.domain.trial import Abandoned, Failed, Interrupted, Measured, Origin, Step, TrialRecord

K = TypeVar("K", bound=StrEnum)


class Activity(StrEnum):
    """What was done; the first four are the steps of a trial."""

    LAUNCH = "launch"
    SMOKE = "smoke"
    MEASURE = "measure"
    STOP = "stop"
    OTHER = "other"
    """Within a trial, but in none of its steps: reading its log, looking at what is left of a server."""
    IDLE = "idle"
    """Between trials: choosing the next one, waiting until memory is free."""


class Purpose(StrEnum):
    """What the time was for, as it turned out."""

    MEASURED = "measured"
    """Trials of the search that were measured."""
    FINALS = "finals"
    CONTROL = "control"
    """The baseline measured once more."""
    ABANDONED = "abandoned"
    """Trials that work, but were given up: what was measured ruled them out."""
    FAILED = "failed"
    """Trials that failed, whatever their origin."""
    INTERRUPTED = "interrupted"
    RUNNING = "running"
    IDLE = "idle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A stretch in which one thing was done; `trial` is None between trials."""

    activity: Activity
    purpose: Purpose
    begin_s: float
    end_s: float
    trial: int | None = None

    @property
    def duration_s(self) -> float:
        """How long it took."""
        return self.end_s - self.begin_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Nothing ran from the end of one invocation to the beginning of the next; the clock stood at `at_s`."""

    at_s: float
    ended_at: datetime
    continued_at: datetime


@dataclass(frozen=True, slots=True)
class _Stretch:
    """One invocation, from `begin` to `end`, after `before_s` seconds of earlier ones."""

    begin: datetime
    end: datetime
    before_s: float

    def clock(self, moment: datetime) -> float:
        held = min(max(moment, self.begin), self.end)
        return self.before_s + (held - self.begin).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """All of the time in order, without gaps: the segments add up to `total_s`."""

    segments: tuple[Segment, ...]
    pauses: tuple[Pause, ...]
    total_s: float
    stretches: tuple[_Stretch, ...]

    def clock(self, moment: datetime) -> float:
        """What the study's own clock showed at `moment`."""
        if not self.stretches:
            return 0.0
        after = bisect_right([stretch.begin for stretch in self.stretches], moment)
        return self.stretches[max(0, after - 1)].clock(moment)

    def by_purpose(self) -> Mapping[Purpose, float]:
        """Seconds for each purpose that took any, in the order of `Purpose`."""
        return _totals(Purpose, ((segment.purpose, segment.duration_s) for segment in self.segments))

    def by_activity(self) -> Mapping[Activity, float]:
        """Seconds for each activity that took any, in the order of `Activity`."""
        return _totals(Activity, ((segment.activity, segment.duration_s) for segment in self.segments))

    @property
    def failed_share(self) -> float:
        """The part of all the time, from 0 to 1, that went into trials which failed."""
        return self.by_purpose().get(Purpose.FAILED, 0.0) / self.total_s if self.total_s else 0.0


def purpose_of(record: TrialRecord) -> Purpose:
    """What the time of a trial was for."""
    match record.outcome:
        case None:
            return Purpose.RUNNING
        case Failed():
            return Purpose.FAILED
        case Interrupted():
            return Purpose.INTERRUPTED
        case Abandoned():
            return Purpose.ABANDONED
        case Measured() if record.origin is Origin.FINAL:
            return Purpose.FINALS
        case Measured() if record.origin is Origin.CONTROL:
            return Purpose.CONTROL
        case Measured():
            return Purpose.MEASURED


def timeline(
    records: Sequence[TrialRecord], invocations: Sequence[Invocation], seen_at: datetime
) -> Timeline:
    """The time of a study as it was at `seen_at`. Without `invocations` all trials count as of one.

    The end of a trial that was killed with its autotune is not known, since it is only noted when the study
    goes on: it counts for as long as its points were measured, and what follows as idle.
    """
    records = sorted(records, key=lambda record: (record.started_at, record.number))
    stretches = tuple(_stretches(records, invocations, seen_at))
    segments: list[Segment] = []
    begins = [stretch.begin for stretch in stretches]
    for position, stretch in enumerate(stretches):
        own = [r for r in records if bisect_right(begins, r.started_at) == position + 1]
        segments += _segments(stretch, own)
    pauses = tuple(
        Pause(at_s=after.before_s, ended_at=before.end, continued_at=after.begin)
        for before, after in pairwise(stretches)
    )
    last = stretches[-1] if stretches else None
    return Timeline(
        segments=tuple(segments),
        pauses=pauses,
        total_s=last.clock(last.end) if last else 0.0,
        stretches=stretches,
    )


def _stretches(
    records: Sequence[TrialRecord], invocations: Sequence[Invocation], seen_at: datetime
) -> Iterator[_Stretch]:
    """Invocations as stretches that do not overlap; a killed one ends with what is known of its trials."""
    begins = [invocation.began_at for invocation in invocations] or [r.started_at for r in records[:1]]
    before_s = 0.0
    for position, begin in enumerate(begins):
        last = position == len(begins) - 1
        limit = max(seen_at, begin) if last else begins[position + 1]
        own = [r for r in records if begin <= r.started_at and (last or r.started_at < limit)]
        ends = [end for r in own if (end := _end_of(r))]
        if invocations:
            invocation = invocations[position]
            if invocation.spent_s is not None:
                ends.append(begin + timedelta(seconds=invocation.spent_s))
            elif last:
                ends.append(min(limit, begin + timedelta(seconds=invocation.budget_s)))
        elif any(record.outcome is None for record in own):
            ends.append(limit)
        end = max([begin, *ends])
        stretch = _Stretch(begin, end if last else min(end, limit), before_s)
        before_s = stretch.clock(stretch.end)
        yield stretch


def _end_of(record: TrialRecord) -> datetime | None:
    """When a trial ended, as far as it is known; None while it runs."""
    if record.outcome is None or record.finished_at is None:
        return None
    if record.step_s or not isinstance(record.outcome, Interrupted):
        return record.finished_at
    return record.started_at + timedelta(seconds=sum(point.window_s for point in record.points))


def _segments(stretch: _Stretch, records: Sequence[TrialRecord]) -> Iterator[Segment]:
    """All of a stretch, without gaps and overlaps."""
    at_s = stretch.before_s
    for record in records:
        begin_s = max(at_s, stretch.clock(record.started_at))
        end_s = max(begin_s, stretch.clock(_end_of(record) or stretch.end))
        if begin_s > at_s:
            yield Segment(activity=Activity.IDLE, purpose=Purpose.IDLE, begin_s=at_s, end_s=begin_s)
        yield from _of_trial(record, begin_s, end_s)
        at_s = end_s
    end_s = stretch.clock(stretch.end)
    if end_s > at_s:
        yield Segment(activity=Activity.IDLE, purpose=Purpose.IDLE, begin_s=at_s, end_s=end_s)


def _of_trial(record: TrialRecord, begin_s: float, end_s: float) -> Iterator[Segment]:
    """The steps one after the other; what no step accounts for lies before the server is stopped."""
    steps = dict(record.step_s)
    rest_s = end_s - begin_s - sum(steps.values())
    order = [(Activity(step.value), steps[step]) for step in Step if step in steps and step is not Step.STOP]
    order.append((Activity.OTHER, rest_s))
    if Step.STOP in steps:
        order.append((Activity.STOP, steps[Step.STOP]))
    at_s = begin_s
    for activity, duration_s in order:
        until_s = min(at_s + max(0.0, duration_s), end_s)
        if until_s > at_s:
            yield Segment(
                activity=activity,
                purpose=purpose_of(record),
                begin_s=at_s,
                end_s=until_s,
                trial=record.number,
            )
        at_s = until_s


def _totals(kinds: type[K], parts: Iterable[tuple[K, float]]) -> Mapping[K, float]:
    totals: dict[K, float] = {}
    for kind, duration_s in parts:
        totals[kind] = totals.get(kind, 0.0) + duration_s
    return {kind: totals[kind] for kind in kinds if kind in totals}
