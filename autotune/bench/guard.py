"""Watches what the load generator itself needs.

On a busy core, or while the event loop is late, a token waits for the client, and its wait is counted as the
server's.
"""

import asyncio
import math
import resource
import time
from pathlib import Path

from autotune.domain.measurement import ClientLoad, Flag, FlagKind

_TICK_S = 0.010
"""A tick costs about 5 us: 0.05 % of a core."""
_SCHEDSTATS = (Path("/proc/thread-self/schedstat"), Path("/proc/self/schedstat"))
_MAX_CPU_SHARE = 0.5
"""Tokens come in bursts, one of each stream at every engine step: half on average is all of it then."""
_MAX_LAG_S = 0.002
_MAX_LAG_OF_TPOT = 0.1
_SLICE_S = 0.004
"""Not held against it: a process that wakes where all cores are busy waits for the end of someone's slice.

Beside a server on two cores an idle client was late by 2 to 5 ms (p99), and waited 1 to 4 % of the time.
"""


class Guard:
    """Watches this process, and the event loop it was started in, from `start` to `stop`."""

    def __init__(self) -> None:
        self._lags_s: list[float] = []
        self._ticker: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        self._begin_s = 0.0
        self._cpu_s = 0.0
        self._run_queue_s: float | None = None
        self._switches = 0

    def start(self) -> None:
        """Begin to watch. Called in a running event loop; raises RuntimeError outside of one."""
        self._lags_s.clear()
        self._run_queue_s = _run_queue_s()
        self._switches = _involuntary_switches()
        self._cpu_s = time.process_time()
        self._begin_s = time.perf_counter()
        self._arm(asyncio.get_running_loop())

    def stop(self) -> ClientLoad:
        """End it, and say what was needed since `start`."""
        wall_s = time.perf_counter() - self._begin_s
        cpu_s = time.process_time() - self._cpu_s
        if self._ticker is not None:
            self._ticker.cancel()
            self._note_lag()
        return ClientLoad(
            cpu_share=cpu_s / wall_s,
            loop_lag_p99_s=_p99(self._lags_s),
            run_queue_s=_difference(_run_queue_s(), self._run_queue_s),
            involuntary_switches=_involuntary_switches() - self._switches,
        )

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due_s = time.perf_counter() + _TICK_S
        self._ticker = loop.call_later(_TICK_S, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._note_lag()
        self._arm(loop)

    def _note_lag(self) -> None:
        """Note how late it is now, and how late each tick would have been that fell into the delay.

        So the lags are those of moments spread evenly over the window, and one halt of a second counts as
        the hundred late ticks that it is.
        """
        lag_s = time.perf_counter() - self._due_s
        self._lags_s.append(max(0.0, lag_s))  # loops round the time of a timer, so it can come early
        while (lag_s := lag_s - _TICK_S) > 0:
            self._lags_s.append(lag_s)


def client_flag(load: ClientLoad, tpot_s: float | None) -> Flag | None:
    """CLIENT_BOUND when the load generator was short of processor time, beside `tpot_s` seconds a token."""
    max_lag_s = _SLICE_S + max(_MAX_LAG_S, _MAX_LAG_OF_TPOT * (tpot_s or 0.0))
    reasons: list[str] = []
    if load.cpu_share > _MAX_CPU_SHARE:
        reasons.append(f"needed {load.cpu_share:.0%} of a core, more than {_MAX_CPU_SHARE:.0%}")
    if load.loop_lag_p99_s > max_lag_s:
        reasons.append(
            f"was late by {load.loop_lag_p99_s * 1e3:.1f} ms (p99), more than {max_lag_s * 1e3:.1f} ms"
        )
    if not reasons:
        return None
    text = (
        f"the load generator {' and '.join(reasons)}, so the latencies are partly its own: "
        "leave it a core that the server does not use"
    )
    return Flag(kind=FlagKind.CLIENT_BOUND, text=text)


def _p99(values: list[float]) -> float:
    return sorted(values)[math.ceil(0.99 * len(values)) - 1] if values else 0.0


def _involuntary_switches() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _run_queue_s() -> float | None:
    """How long this thread has waited for a processor so far; None where the kernel does not tell."""
    for path in _SCHEDSTATS:
        try:
            return int(path.read_text(encoding="ascii").split()[1]) / 1e9
        except (OSError, ValueError, IndexError):
            continue
    return None


def _difference(now: float | None, then: float | None) -> float | None:
    return None if now is None or then is None else now - then
