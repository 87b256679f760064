"""The evidence of one simulated study, in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from autotune.decide.plan import Plan
from autotune.domain.effective import Effective
from autotune.domain.fill import Fill
from autotune.domain.lesson import Lesson
from autotune.domain.measurement import MeasuredPoint, Point
from autotune.domain.output import Output
from autotune.domain.refusal import Grounds, Refusal
from autotune.domain.server import ServerMark
from autotune.domain.space import Configuration
from autotune.domain.trial import Origin, Outcome, Step, TrialRecord

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
"""When every simulated study begins."""


@dataclass
class Kept:
    """The `TrialStore` of the loop."""

    trials: list[TrialRecord] = field(default_factory=list)
    refused: dict[Grounds, int] = field(default_factory=dict)
    _points: dict[int, list[Point]] = field(default_factory=dict)

    def begin(self, record: TrialRecord, mark: ServerMark | None) -> None:
        """Keep a trial that is about to be launched."""
        self.trials.append(record)

    def finish(
        self, number: int, outcome: Outcome, step_s: Mapping[Step, float], finished_at: datetime
    ) -> None:
        """Keep how it ended."""
        self.trials[number] = replace(
            self.trials[number], outcome=outcome, step_s=dict(step_s), finished_at=finished_at
        )

    def count_refused(self, refused: Sequence[Refusal]) -> None:
        """Add to those that were not launched."""
        for refusal in refused:
            self.refused[refusal.grounds] = self.refused.get(refusal.grounds, 0) + 1

    def points(self, number: int) -> tuple[Point, ...]:
        """The points kept of a trial."""
        return tuple(self._points.get(number, ()))

    def records(self) -> Sequence[TrialRecord]:
        """All trials in the order of their numbers."""
        return tuple(self.trials)

    def unfinished(self) -> Sequence[tuple[TrialRecord, ServerMark | None]]:
        """None: a simulated run is never killed."""
        return ()

    def set_mark(self, number: int, mark: ServerMark) -> None:
        """Nothing has to be found again."""

    def add_point(self, number: int, measured: MeasuredPoint) -> None:
        """Keep a point."""
        self._points.setdefault(number, []).append(measured.point)

    def set_effective(self, number: int, effective: Effective) -> None:
        """Add what the server made of its settings."""
        self.trials[number] = replace(self.trials[number], effective=effective)

    def set_outputs(self, number: int, outputs: Sequence[Output]) -> None:
        """Add its answers to the fixed prompts."""
        self.trials[number] = replace(self.trials[number], outputs=tuple(outputs))

    def set_fills(self, number: int, fills: Sequence[Fill]) -> None:
        """Add what of its context it was seen to serve."""
        self.trials[number] = replace(self.trials[number], fills=tuple(fills))


@dataclass
class Shelf:
    """The `LessonShelf` of the loop."""

    lessons: list[Lesson] = field(default_factory=list)

    def all(self) -> Sequence[Lesson]:
        """All of them."""
        return tuple(self.lessons)

    def add(self, lesson: Lesson) -> None:
        """Keep a lesson."""
        self.lessons.append(lesson)


class Silence:
    """An `Observer` that does nothing."""

    def study_opened(self, records: Sequence[TrialRecord]) -> None:
        """Not shown."""

    def planned(self, plan: Plan) -> None:
        """Not shown."""

    def trial_started(self, number: int, origin: Origin, configuration: Configuration) -> None:
        """Not shown."""

    def step_started(self, number: int, step: Step) -> None:
        """Not shown."""

    def point_measured(self, number: int, point: Point) -> None:
        """Not shown."""

    def trial_finished(self, record: TrialRecord) -> None:
        """Not shown."""

    def note(self, text: str) -> None:
        """Not shown."""
