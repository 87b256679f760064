"""Waits before a launch until the memory that earlier servers held is free again.

A driver gives the memory of a dead process back after its end, hundreds of GB in seconds; a server that is
started meanwhile fails, or gets a smaller KV cache, through no fault of its settings.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from autotune.domain.aftermath import ProcessMemory
from autotune.domain.interrupt import Interrupt
from autotune.server.gpu_memory import GpuUse
from autotune.server.memory import read_memory
from autotune.server.watch import ReadMemory
from autotune.units import format_bytes

_MIN_SLACK_BYTES = 256 * 1024**2
"""A CUDA context, and so what a process of a display or a monitor comes and goes with."""
_GPU_SLACK_SHARE = 0.01
_MACHINE_SLACK_SHARE = 0.05
"""Of the machine's memory more changes for other reasons: caches of the kernel, other users' programs."""
_POLL_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Use:
    used_bytes: int
    slack_bytes: int


class SettlingMemory:
    """Compares with what was in use before the first launch of this invocation."""

    def __init__(
        self,
        gpu_use: Callable[[], GpuUse],
        *,
        limit_s: float = 60.0,
        read: ReadMemory = read_memory,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """`limit_s` is how long a launch may be held up."""
        self._gpu_use = gpu_use
        self._read = read
        self._limit_s = limit_s
        self._pause = pause
        self._usual: dict[str, int] = {}
        self._told: set[tuple[int, str]] = set()

    def settle(self, interrupt: Interrupt, note: Callable[[str], None]) -> bool:
        """Memory is free as it was, or was waited for long enough; False when interrupted before.

        What does not come free in time counts as usual from then on, so it is waited for once. Processes
        that hold memory of a GPU are told once.
        """
        deadline_s = interrupt.clock() + self._limit_s
        waiting = False
        while True:
            use = self._gpu_use()
            places = self._places(use)
            excess = self._excess(places)
            if not excess or interrupt.clock() >= deadline_s:
                break
            if not waiting:
                note(
                    f"waiting up to {self._limit_s:.0f} s for memory: {_listed(excess)} than at first in use"
                )
                waiting = True
            if interrupt.reason:
                return False
            self._pause(_POLL_S)
        if excess:
            note(f"memory stays in use: {_listed(excess)} than at first; the next trial starts beside it")
            self._usual |= {name: places[name].used_bytes for name in excess}
        self._tell_holders(use, note)
        return interrupt.reason is None

    def _places(self, use: GpuUse) -> Mapping[str, _Use]:
        machine = self._read()[0]
        places = {
            "the machine": _Use(
                used_bytes=machine.total_bytes - machine.available_bytes,
                slack_bytes=_slack(machine.total_bytes, _MACHINE_SLACK_SHARE),
            )
        }
        for gpu in use.gpus:
            slack_bytes = _slack(gpu.total_bytes, _GPU_SLACK_SHARE)
            places[f"GPU {gpu.index}"] = _Use(used_bytes=gpu.used_bytes, slack_bytes=slack_bytes)
        return places

    def _excess(self, places: Mapping[str, _Use]) -> Mapping[str, int]:
        """Bytes by place that are in use beyond the usual; the first look says what is usual."""
        more: dict[str, int] = {}
        for name, use in places.items():
            above_bytes = use.used_bytes - self._usual.setdefault(name, use.used_bytes)
            if above_bytes > use.slack_bytes:
                more[name] = above_bytes
        return more

    def _tell_holders(self, use: GpuUse, note: Callable[[str], None]) -> None:
        # No server of a trial runs now, so whoever holds memory is somebody else.
        strangers = [p for p in use.holders if p.memory_bytes >= _MIN_SLACK_BYTES]
        strangers = [p for p in strangers if (p.pid, p.name) not in self._told]
        if strangers:
            self._told |= {(process.pid, process.name) for process in strangers}
            note(f"memory of the GPUs is held by other processes: {', '.join(map(_holder, strangers))}")


def _slack(total_bytes: int, share: float) -> int:
    return max(_MIN_SLACK_BYTES, int(total_bytes * share))


def _listed(excess: Mapping[str, int]) -> str:
    return " and ".join(f"{name} {format_bytes(size)} more" for name, size in excess.items())


def _holder(process: ProcessMemory) -> str:
    return f"{process.name} (pid {process.pid}) {format_bytes(process.memory_bytes)}"
