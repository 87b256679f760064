"""What is seen while a bench runs: a line for each point, and below them a live line on a terminal."""

from rich.text import Text

from autotune.cli.console import err
from autotune.cli.live import LiveLine
from autotune.domain.bench import BenchResult
from autotune.domain.interrupt import Interrupt
from autotune.domain.measurement import Point
from autotune.report.bench import headline, point_line
from autotune.units import format_duration
from autotune.wiring.bench import BenchRequest


class BenchView(LiveLine):
    """The `BenchObserver` of a terminal or a pipe: a line for each point, and below them a live line."""

    def __init__(self, request: BenchRequest, interrupt: Interrupt) -> None:
        self._plan = list(request.workload.streams) * request.repeats
        self._repeats = request.repeats
        self._interrupt = interrupt
        self._begun_s = interrupt.clock()
        self._took_s: dict[int, float] = {}
        self._done = 0
        self._doing = ""

    def found(self, result: BenchResult) -> None:
        """Say what is measured, and what is not exact about it."""
        err.print(Text(headline(result)), soft_wrap=True)
        for note in result.dialect.notes:
            self.note(note)

    def step(self, doing: str) -> None:
        """Show it in the live line."""
        self._doing = doing

    def point_measured(self, repeat: int, point: Point, took_s: float) -> None:
        """Say it, and how much time is left."""
        self._done += 1
        self._took_s[point.streams] = took_s
        of = f"repeat {repeat + 1}, " if self._repeats > 1 else ""
        line = Text(f"  {of}{point_line(point)}")
        line.append(f"  [{self._done} of {len(self._plan)}, {self._left()}]", style="dim")
        err.print(line, soft_wrap=True)

    def note(self, text: str) -> None:
        """Say something the user should know."""
        err.print(Text(f"  {text}", style="yellow"), soft_wrap=True)

    def _left(self) -> str:
        """What is left to do should take as long as it did at the same stream count, or at the last one."""
        last_s = next(reversed(self._took_s.values()), None)
        if last_s is None:
            return f"{len(self._plan)} points to measure"
        left_s = sum(self._took_s.get(streams, last_s) for streams in self._plan[self._done :])
        return f"about {format_duration(min(left_s, self._interrupt.left_s))} left"

    def parts(self) -> list[str]:
        """Step, time so far, time left."""
        took = format_duration(self._interrupt.clock() - self._begun_s)
        return [self._doing or "preparing", f"{took} so far", self._left()]
