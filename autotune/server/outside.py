"""All that is seen of one server from outside, between its launch and its stop."""

import re
from pathlib import Path

from autotune.domain.aftermath import Aftermath, ProcessMemory
from autotune.domain.interrupt import Interrupt
from autotune.domain.server import ServerMark
from autotune.server.cgroup import memory_groups
from autotune.server.hang import find_py_spy, look_at
from autotune.server.kernel_log import KernelLog, oom_killed
from autotune.server.processes import find
from autotune.server.watch import MemoryWatch

# Of vLLM's prefix `(EngineCore pid=837)`: processes that are gone by the time the kernel's log is read.
_LOGGED_PID = re.compile(r"\bpid=(\d{1,10})\b")


class Outside:
    """Notes what the counters say before the spawn; `watch` is called with the mark after it."""

    def __init__(self, command: str, floor_bytes: int | None = None) -> None:
        """`command` is the program that is started; `floor_bytes` as in `MemoryWatch`."""
        self._command = command
        self._floor_bytes = floor_bytes
        self._own_group = next(iter(memory_groups()), None)
        self._oom_kills = self._own_group.oom_kills if self._own_group else 0
        self._kernel_log = KernelLog()
        self._kernel_lines: list[str] = []
        self._memory: MemoryWatch | None = None

    def watch(self, mark: ServerMark) -> None:
        """From now on the server is ended when it leaves too little memory."""
        self._memory = MemoryWatch(mark, self._floor_bytes)

    def close(self) -> None:
        """Nothing is watched any more. Can be called twice."""
        if self._memory is not None:
            self._memory.stop()
        self._kernel_log.close()

    def aftermath(self, mark: ServerMark, log: str) -> Aftermath:
        """What was seen until now of a server that has written `log`."""
        oom_kills = self._own_group.oom_kills - self._oom_kills if self._own_group else 0
        return Aftermath(
            shortage=self._memory.shortage if self._memory else None,
            oom_kills=max(0, oom_kills),
            oom_killed=self._oom_killed(mark, log),
        )

    def hang(self, mark: ServerMark, log: str, interrupt: Interrupt) -> Aftermath:
        """The same, and what its processes do at this moment. Takes 1 s, with py-spy up to 30 s more."""
        stacks = Path(mark.log_path).with_suffix(".stacks.txt")
        activity = look_at(find(mark), find_py_spy(self._command), stacks, interrupt)
        seen = self.aftermath(mark, log)
        return Aftermath(
            shortage=seen.shortage,
            oom_kills=seen.oom_kills,
            oom_killed=seen.oom_killed,
            activity=activity,
            stacks_path=str(stacks) if any(process.frames for process in activity) else None,
        )

    def _oom_killed(self, mark: ServerMark, log: str) -> tuple[ProcessMemory, ...]:
        self._kernel_lines += self._kernel_log.new_lines()
        pids = {int(pid) for pid in _LOGGED_PID.findall(log)}
        return oom_killed(self._kernel_lines, pids | {mark.pid or 0})
