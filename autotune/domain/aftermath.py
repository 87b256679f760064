"""What is seen of a trial server from outside: memory, the kernel's hand in its end, what a hung one does."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessMemory:
    """A process and the memory that only its end gives back (anonymous and shared, no file cache)."""

    pid: int
    name: str
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryShortage:
    """Why autotune ended a server: less memory was available than the floor that the machine has to keep.

    The machine is the container where that has the tighter limit.
    """

    total_bytes: int
    available_bytes: int
    floor_bytes: int
    available_at_launch_bytes: int
    server_bytes: int
    """Of all its processes; memory that a driver has pinned is in no process's count."""
    others_bytes: int
    """Of all other processes that can be seen."""
    others_grew_bytes: int
    """How much more they hold than at the launch."""
    other: ProcessMemory | None = None
    """Of them the one that grew most, or holds most where none grew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessActivity:
    """What a process of a hung server was doing."""

    pid: int
    name: str
    state: str
    """The kernel's letter: R runs, S sleeps, D waits for a device or a disk, T is stopped, ..."""
    cpu_s: float
    """Processor time that all its threads used within `watched_s`."""
    watched_s: float
    waits_in: str | None = None
    """The kernel's function its first thread sleeps in; None when that is not shown."""
    frames: tuple[str, ...] = ()
    """Of its main thread, the innermost last, as `function (file:line)`; empty without py-spy."""

    @property
    def busy(self) -> bool:
        """Whether it computes, rather than waits: vLLM's idle loops use a few percent of one processor."""
        return self.cpu_s > 0.3 * self.watched_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Aftermath:
    """All of it, from the launch on."""

    shortage: MemoryShortage | None = None
    """Set when autotune itself ended the server to save the machine."""
    oom_kills: int = 0
    """Processes of autotune's control group that the kernel ended for want of memory."""
    oom_killed: tuple[ProcessMemory, ...] = ()
    """Processes of this server that the kernel's log says were ended for want of memory."""
    activity: tuple[ProcessActivity, ...] = ()
    """Of a hung server, the API server first and the workers last."""
    stacks_path: str | None = None
    """The file with the stacks of all threads, when py-spy could read them."""
