"""The line at the foot of a terminal that tells what is being done; in a pipe there is none."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from rich.live import Live
from rich.text import Text

from autotune.cli.console import err


class LiveLine(ABC):
    """A context manager that shows `parts` while it is entered, looked up twice a second."""

    _live: Live | None = None

    @abstractmethod
    def parts(self) -> list[str]:
        """What to tell now. Called while load is measured, so it must cost nothing."""

    def __enter__(self) -> Self:
        if err.is_terminal:
            self._live = Live(console=err, get_renderable=self._line, refresh_per_second=2, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def _line(self) -> Text:
        first, *further = self.parts()
        said = [first]
        # Part of a number says something else than the number: what does not fit is left out.
        for part in further:
            if len(" | ".join([*said, part])) > err.width:
                break
            said.append(part)
        return Text(" | ".join(said), style="cyan", overflow="ellipsis", no_wrap=True)
