"""Runs a program and keeps account of the processor time of it and of all processes it has."""

import bisect
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

_LOOK_S = 0.02
_LOOK_FOR_CHILDREN_S = 1.0
"""Finding them means to look at every process of the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """How a program ended, and `cpu_s` that it had spent at each of `times_s` (of `time.perf_counter`)."""

    status: int
    output: str
    times_s: Sequence[float]
    cpu_s: Sequence[float]

    def between(self, begin_s: float, end_s: float) -> float:
        """User and system time it has spent from one moment to another."""
        return self._until(end_s) - self._until(begin_s)

    def _until(self, time_s: float) -> float:
        after = min(max(bisect.bisect_left(self.times_s, time_s), 1), len(self.times_s) - 1)
        (left, right), (low, high) = self.times_s[after - 1 : after + 1], self.cpu_s[after - 1 : after + 1]
        return low + (high - low) * min(1.0, (time_s - left) / (right - left))


class _Tree:
    """A process and its descendants; those that have ended count with what they had spent when last seen."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._known = {pid: self._root}
        self._cpu_s: dict[int, float] = {}
        self._looked_s = 0.0

    def cpu_s(self, now_s: float) -> float:
        if now_s - self._looked_s > _LOOK_FOR_CHILDREN_S:
            self._looked_s = now_s
            with suppress(psutil.NoSuchProcess):
                self._known |= {child.pid: child for child in self._root.children(recursive=True)}
        for pid, process in self._known.items():
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            self._cpu_s[pid] = max(times.user + times.system, self._cpu_s.get(pid, 0.0))
        return sum(self._cpu_s.values())


def spend(
    argv: Sequence[str], environment: Mapping[str, str], folder: Path, timeout_s: float
) -> Spent | None:
    """Run a program in `folder` to its end; None when it was killed after `timeout_s` seconds.

    `output` is what it printed: on standard output, or else on standard error.
    """
    output, log = folder / "output", folder / "log"
    times_s: list[float] = []
    cpu_s: list[float] = []
    with output.open("wb") as stdout, log.open("wb") as stderr:
        process = subprocess.Popen(
            argv, cwd=folder, env=environment, stdout=stdout, stderr=stderr, start_new_session=True
        )
        tree = _Tree(process.pid)
        end_s = time.perf_counter() + timeout_s
        while process.poll() is None:
            now_s = time.perf_counter()
            if now_s > end_s:
                os.killpg(process.pid, 9)
                process.wait()
                return None
            times_s.append(now_s)
            cpu_s.append(tree.cpu_s(now_s))
            time.sleep(_LOOK_S)
    text = output.read_text(errors="replace") or log.read_text(errors="replace")
    return Spent(status=process.returncode, output=text, times_s=times_s, cpu_s=cpu_s)
