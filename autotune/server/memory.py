"""How much memory this machine, or this container, has left, and which processes hold how much."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from autotune.domain.aftermath import ProcessMemory
from autotune.server.cgroup import memory_groups

_MIN_FLOOR_BYTES = 512 * 1024**2
_FLOOR_SHARE = 0.03
_MAX_MIN_FLOOR_SHARE = 1 / 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The memory of one place: the machine, or a control group with a limit."""

    total_bytes: int
    available_bytes: int
    """What processes can still get without swapping: free memory and what cache gives way."""

    @property
    def default_floor_bytes(self) -> int:
        """What should be left: 3 % or 512 MiB, the larger; of less than 4 GiB an eighth.

        Below it Linux spends its time on reclaiming program pages, and a remote machine answers no more.
        """
        smallest = min(_MIN_FLOOR_BYTES, self.total_bytes * _MAX_MIN_FLOOR_SHARE)
        return int(max(smallest, self.total_bytes * _FLOOR_SHARE))


def read_memory(root: Path = Path("/")) -> tuple[Memory, ...]:
    """The machine, then each control group around this process that has a lower limit."""
    meminfo = _kilobytes((root / "proc/meminfo").read_text(), ("MemTotal", "MemAvailable"))
    machine = Memory(total_bytes=meminfo["MemTotal"], available_bytes=meminfo["MemAvailable"])
    limited = []
    for group in memory_groups(root):
        limit_bytes = group.limit_bytes
        if limit_bytes is not None and limit_bytes < machine.total_bytes:
            available = group.available_bytes(limit_bytes)
            limited.append(Memory(total_bytes=limit_bytes, available_bytes=available))
    return (machine, *limited)


def process_memory(pid: int, root: Path = Path("/")) -> ProcessMemory | None:
    """What one process holds; None when it is gone, or a thread of the kernel.

    Anonymous and shared memory as it is mapped, so what several processes share counts for each of them. A
    proportional count (PSS) would walk all their page tables, which takes most time when time is shortest.
    """
    try:
        status = (root / "proc" / str(pid) / "status").read_text(errors="replace")
    except OSError:
        return None
    held = _kilobytes(status, ("RssAnon", "RssShmem"))
    if not held:
        return None
    name = status.partition("\n")[0].removeprefix("Name:").strip()
    return ProcessMemory(pid=pid, name=name, memory_bytes=sum(held.values()))


def all_process_memory(root: Path = Path("/")) -> Mapping[int, ProcessMemory]:
    """What each process that can be seen holds, by pid."""
    pids = (int(entry.name) for entry in (root / "proc").iterdir() if entry.name.isdigit())
    held = (process_memory(pid, root) for pid in pids)
    return {process.pid: process for process in held if process is not None}


def _kilobytes(text: str, names: Iterable[str]) -> dict[str, int]:
    """Bytes of the lines `Name:   123 kB` that are there."""
    fields = (line.partition(":") for line in text.splitlines())
    return {name: int(rest.split()[0]) * 1024 for name, _, rest in fields if name in names}
