"""What is seen while a study runs: a line for each event, and below them a live line on a terminal.

Piped, or without colour, the same lines come out plain.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from rich.text import Text

from autotune.cli.console import err
from autotune.cli.live import LiveLine
from autotune.decide.plan import Plan
from autotune.decide.ranking import baseline, gain_between, incumbent
from autotune.domain.interrupt import Interrupt
from autotune.domain.measurement import Point
from autotune.domain.metric_limit import MetricLimit
from autotune.domain.objective import Objective
from autotune.domain.space import Configuration
from autotune.domain.trial import Failed, Measured, Origin, Step, TrialRecord
from autotune.report import words
from autotune.report.tables import STYLES
from autotune.units import format_duration

_DOING = {
    Step.LAUNCH: "starting the server",
    Step.SMOKE: "first request",
    Step.MEASURE: "measuring",
    Step.STOP: "stopping the server",
}


class RunView(LiveLine):
    """The `Observer` of a run in a terminal or a pipe; a context manager that shows the live line."""

    def __init__(
        self,
        objectives: tuple[Objective, ...],
        interrupt: Interrupt,
        metric_limits: tuple[MetricLimit, ...] = (),
    ) -> None:
        self._objectives = objectives
        self._metric_limits = metric_limits
        self._interrupt = interrupt
        self._records: list[TrialRecord] = []
        self._standing = self._so_far()
        self._doing = ""
        self._plan: Plan | None = None
        self._told: Plan | None = None

    def study_opened(self, records: Sequence[TrialRecord]) -> None:
        """Count what earlier invocations did to the incumbent and the failures so far."""
        self._records.extend(records)
        self._standing = self._so_far()

    def planned(self, plan: Plan) -> None:
        """Show it in the live line, and say it when it is not what was said last."""
        self._plan = plan
        if self._told is None or not plan.is_like(self._told):
            self._told = plan
            self._print(Text(f"plan: {words.plan(plan)}, {self._ends()}", style="dim"))

    def trial_started(self, number: int, origin: Origin, configuration: Configuration) -> None:
        """Say what is tried."""
        self._doing = f"trial {number}"
        what = words.configuration(configuration) + words.purpose(origin)
        self._print(Text(f"trial {number:>3}  {what}"))

    def step_started(self, number: int, step: Step) -> None:
        """Show the step in the live line."""
        self._doing = f"trial {number}: {_DOING[step]}"

    def point_measured(self, number: int, point: Point) -> None:
        """Show in the live line how far the ladder has come."""
        rate = words.number(point.out_tok_s)
        self._doing = f"trial {number}: measuring, {rate} tok/s at {point.streams} streams"

    def trial_finished(self, record: TrialRecord) -> None:
        """Say how it ended, how long it took and how much time is left."""
        self._records.append(record)
        self._standing = self._so_far()
        state = words.state(record)
        took = format_duration(sum(record.step_s.values()))
        line = Text(f"           {state}", style=STYLES[state])
        line.append(f"  {words.outcome(record, self._objectives, self._metric_limits)}", style="default")
        line.append(f"  [took {took}, {format_duration(self._interrupt.left_s)} left]", style="dim")
        self._print(line)

    def note(self, text: str) -> None:
        """Say something the user should know."""
        self._print(Text(text, style="yellow"))

    def _print(self, text: Text) -> None:
        err.print(text, soft_wrap=True)

    def parts(self) -> list[str]:
        """Phase, time left, incumbent and failures so far, and what is planned."""
        left = f"{format_duration(self._interrupt.left_s)} left"
        plan = [f"plan: {words.plan(self._plan)}"] if self._plan else []
        return [self._doing or "preparing", left, *self._standing, *plan]

    def _ends(self) -> str:
        """When the budget ends, by the clock on the wall."""
        end = datetime.now().astimezone() + timedelta(seconds=self._interrupt.left_s)
        return f"ends {end:%H:%M}"

    def _so_far(self) -> tuple[str, str]:
        """Incumbent and failures, which only a finished trial changes."""
        failed = sum(isinstance(record.outcome, Failed) for record in self._records)
        return self._incumbent(), f"{failed} of {len(self._records)} failed"

    def _incumbent(self) -> str:
        best = incumbent(self._records, self._objectives, limits=self._metric_limits)
        base = baseline(self._records)
        if best is None:
            worked = any(isinstance(record.outcome, Measured) for record in self._records)
            return f"nothing {'keeps the limits' if worked and self._metric_limits else 'measured'} yet"
        times = gain_between(self._records, base, best, self._objectives) if base else None
        looks = "" if times is None else f", looks like {times:.2f}x baseline"
        return f"best: trial {best.number}{looks}"
