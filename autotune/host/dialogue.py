"""A process that is spoken to in lines: each wait for one is bounded, and its end ends all it started."""

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

# How often a reason to wait no longer is looked for while a line is waited for.
_LOOK_MS = 100
_CHUNK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """No line came; the process is to be ended, because one that comes later would answer nothing."""

    why: str


class Dialogue:
    """A process in a session of its own, which an interrupt typed at the terminal does not reach.

    Its stdin is closed when this process dies, however that happens. What it writes to stderr is not kept.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], give_up: Callable[[], bool]) -> None:
        """`give_up` says whether to wait no longer. Raises OSError when the process cannot be started."""
        self._give_up = give_up
        self._heard = b""
        its_stdin, self._say_fd = os.pipe()
        self._hear_fd, its_stdout = os.pipe()
        try:
            self._process = subprocess.Popen(
                argv,
                env=env,
                start_new_session=True,
                stdin=its_stdin,
                stdout=its_stdout,
                stderr=subprocess.DEVNULL,
            )
        except OSError:
            self._close_pipes()
            raise
        finally:
            os.close(its_stdin)
            os.close(its_stdout)
        self.begun_s = time.monotonic()

    def say(self, line: bytes) -> None:
        """Send a line. That nobody reads any more is heard as silence."""
        left = memoryview(line + b"\n")
        with suppress(BrokenPipeError):
            while left:
                left = left[os.write(self._say_fd, left) :]

    def hear(self, end_s: float) -> bytes | Silence:
        """The next line, waited for until `end_s` on the monotonic clock."""
        begun_s = time.monotonic()
        readable = select.poll()
        readable.register(self._hear_fd, select.POLLIN)
        while b"\n" not in self._heard:
            if self._give_up():
                return Silence(why="it was interrupted")
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                return Silence(why=f"it did not answer within {time.monotonic() - begun_s:.0f} s")
            if readable.poll(min(_LOOK_MS, 1000 * left_s)):
                chunk = os.read(self._hear_fd, _CHUNK_BYTES)
                if not chunk:
                    return Silence(why="it ended")
                self._heard += chunk
        line, _, self._heard = self._heard.partition(b"\n")
        return line

    def end(self) -> None:
        """It is gone, and all that it started in its session is killed."""
        # Not waited for until now: as long as it is not, its number is no other group's.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._close_pipes()

    def _close_pipes(self) -> None:
        os.close(self._say_fd)
        os.close(self._hear_fd)
