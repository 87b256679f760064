"""The one thing every wait looks at: may this invocation go on?"""

from collections.abc import Callable

from autotune.domain.trial import Interruption


class Interrupt:
    """Answers with the reason to stop, or None. Set from a signal handler, or by the clock at `deadline_s`.

    `clock` is monotonic seconds and `deadline_s` a time on it; both are shared by everything that waits.
    """

    def __init__(self, clock: Callable[[], float], deadline_s: float) -> None:
        self.clock = clock
        self.deadline_s = deadline_s
        self._requested: Interruption | None = None

    def request(self, reason: Interruption) -> None:
        """Ask for a stop; the first reason stays."""
        self._requested = self._requested or reason

    @property
    def reason(self) -> Interruption | None:
        """Why to stop now; None to go on."""
        if self._requested is None and self.clock() >= self.deadline_s:
            return Interruption.BUDGET
        return self._requested

    @property
    def left_s(self) -> float:
        """Seconds until the deadline, never below 0."""
        return max(0.0, self.deadline_s - self.clock())
