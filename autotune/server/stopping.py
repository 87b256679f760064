"""Ends all processes of a server and proves it: SIGTERM, grace, SIGKILL, sweep, scan again.

Signals go to each process by itself, after a look at its start time, never to a group number: what is not
the server's cannot be hit.
"""

import logging
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from autotune.domain.server import ServerMark
from autotune.errors import ProcessStillAlive
from autotune.server.ports import listeners
from autotune.server.processes import Process, find, is_alive, is_resource_tracker

Clock = Callable[[], float]

# Between SIGKILL and the end lies the kernel's release of memory, up to hundreds of GB pinned or on a GPU.
KILL_S = 30.0
# multiprocessing's resource tracker ends when the last process that uses it has, and only then removes what
# they left in /dev/shm; killed with them it leaks two segments and a semaphore of every vLLM 0.32 server.
_TRACKER_S = 3.0
_PORT_S = 5.0
_POLL_S = 0.05

_log = logging.getLogger(__name__)


def end_processes(mark: ServerMark, grace_s: float, clock: Clock = time.monotonic) -> tuple[int, ...]:
    """Nothing of the server runs any more; returns the pids that had to be ended.

    What is in the first process's group is asked to go (SIGTERM) and has `grace_s` for it; then everything
    is killed, resource trackers last. Raises ProcessStillAlive when something is left `KILL_S` after that.
    """
    seen: set[Process] = set()

    def left() -> list[Process]:
        seen.update(find(mark))
        return [process for process in seen if is_alive(process)]

    asked = [process for process in left() if mark.pid in (None, process.group)]
    _send(asked, signal.SIGTERM)
    _wait(lambda: not any(map(is_alive, asked)), grace_s, clock)
    killed_s = clock()
    while alive := left():
        waited_s = clock() - killed_s
        if waited_s >= KILL_S:
            raise ProcessStillAlive(tuple(sorted(process.pid for process in alive)), mark.port)
        spare_trackers = waited_s < _TRACKER_S
        _send((p for p in alive if not (spare_trackers and is_resource_tracker(p))), signal.SIGKILL)
        _wait(lambda: not any(map(is_alive, alive)), 1.0, clock)
    return tuple(sorted(process.pid for process in seen))


def kill(processes: Iterable[Process]) -> None:
    """SIGKILL is sent to those that still run, resource trackers excepted; nothing is waited for."""
    _send((process for process in processes if not is_resource_tracker(process)), signal.SIGKILL)


def prove_port_free(port: int, clock: Clock = time.monotonic) -> None:
    """Nobody listens on the port. Raises ProcessStillAlive when that stays untrue for `_PORT_S`."""
    if not _wait(lambda: not listeners(port), _PORT_S, clock):
        raise ProcessStillAlive((), port)


def remove_scratch(mark: ServerMark) -> None:
    """The scratch directory is gone; one that cannot be removed is logged, for it does no harm."""
    path = Path(mark.tmp_dir)
    if not path.name.startswith(scratch_prefix(mark.token)):
        _log.warning("scratch directory %s was not made for this server; it is left alone", path)
        return
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except OSError as error:
        _log.warning("scratch directory %s cannot be removed: %s", path, error)


def scratch_prefix(token: str) -> str:
    """How the name of a server's scratch directory begins, so that no other directory is ever removed."""
    return f"at-{token[:8]}-"


def _send(processes: Iterable[Process], signum: signal.Signals) -> None:
    for process in processes:
        if is_alive(process):
            # Gone in this instant, or another user's: the scan that follows tells the two apart.
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, signum)


def _wait(done: Callable[[], bool], limit_s: float, clock: Clock) -> bool:
    """Whether it came true within `limit_s`."""
    deadline_s = clock() + limit_s
    while not done():
        if clock() >= deadline_s:
            return False
        time.sleep(_POLL_S)
    return True
