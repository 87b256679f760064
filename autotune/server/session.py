"""One spawned server: its mark, its log, whether it is ready, its end, and what else was seen of it."""

import os
import subprocess
import time
from pathlib import Path

from autotune.domain.aftermath import Aftermath
from autotune.domain.interrupt import Interrupt
from autotune.domain.server import Readiness, ServerMark
from autotune.server.outside import Outside
from autotune.server.readiness import wait_ready
from autotune.server.stopping import Clock, end_processes, prove_port_free, remove_scratch

# The first lines hold the settings and the root cause of a failed start, the last ones the end; a server that
# floods its log writes gigabytes between.
LOG_HEAD_BYTES = 256 * 1024
LOG_TAIL_BYTES = 1024 * 1024
_POLL_S = 0.1


class LocalServer:
    """A server on this machine. Its first process is waited for only in `stop`.

    Until then its number, and with it the number of its group and session, cannot be used again.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        mark: ServerMark,
        outside: Outside,
        clock: Clock = time.monotonic,
    ) -> None:
        self._process = process
        self._mark = mark
        self._outside = outside
        self._clock = clock
        self._listened = False

    @property
    def mark(self) -> ServerMark:
        """How its processes are found again; `pid` and `pid_started_s` are set."""
        return self._mark

    @property
    def exit_code(self) -> int | None:
        """None while the first process lives; negative for a signal."""
        if self._process.returncode is not None:
            return self._process.returncode
        try:
            ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # SIGCHLD is ignored in this process, and the kernel kept nothing
            return self._process.poll()
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def wait_ready(self, startup_s: float, interrupt: Interrupt) -> Readiness:
        """Block until it is ready, has ended, or may not be waited for any longer."""
        readiness = wait_ready(self._mark, self._ended_soon, startup_s, interrupt)
        self._listened |= readiness is Readiness.READY
        return readiness

    def read_log(self) -> str:
        """What it has written so far; of more than 1.25 MiB the beginning and the end.

        A line between them says how many bytes were left out; bytes that are no UTF-8 are replaced.
        """
        path = Path(self._mark.log_path)
        try:
            with path.open("rb") as log:
                size = os.fstat(log.fileno()).st_size
                if size <= LOG_HEAD_BYTES + LOG_TAIL_BYTES:
                    return log.read(size).decode(errors="replace")
                head = log.read(LOG_HEAD_BYTES)
                log.seek(size - LOG_TAIL_BYTES)
                tail = log.read(LOG_TAIL_BYTES)
        except FileNotFoundError:
            return f"[autotune: {path.name} was removed]\n"
        left_out = size - LOG_HEAD_BYTES - LOG_TAIL_BYTES
        marker = f"\n[autotune: {left_out} bytes left out]\n"
        return head.decode(errors="replace") + marker + tail.decode(errors="replace")

    def aftermath(self, interrupt: Interrupt, *, hung: bool = False) -> Aftermath:
        """What was seen of it from outside. Of one that is `hung` also what its processes do at this moment.

        That takes a second, and up to 30 s more when py-spy is there; less when interrupted.
        """
        log = self.read_log()
        if hung and self.exit_code is None:
            return self._outside.hang(self._mark, log, interrupt)
        return self._outside.aftermath(self._mark, log)

    def stop(self, grace_s: float) -> None:
        """End all its processes and prove that they, and the port it had, are gone. Can be called twice.

        Raises ProcessStillAlive when that cannot be proved. A port it never listened on is not looked at:
        then whoever listens there is somebody else.
        """
        self._outside.close()
        end_processes(self._mark, grace_s, self._clock)
        self._process.wait()
        if self._listened:
            prove_port_free(self._mark.port, self._clock)
        remove_scratch(self._mark)

    def _ended_soon(self) -> bool:
        """Whether the first process is gone, after a pause of `_POLL_S` if it is not."""
        if self.exit_code is None:
            time.sleep(_POLL_S)
        return self.exit_code is not None
