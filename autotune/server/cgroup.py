"""The control groups that bind this process: their memory limits, and whom the kernel ended in them.

Version 2 and version 1; the servers of trials are in the same groups.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class _Names:
    """What a version of the memory controller calls its files and fields."""

    limit: str
    usage: str
    cache: tuple[str, str]
    events: str


_V2 = _Names(
    limit="memory.max",
    usage="memory.current",
    cache=("inactive_file", "active_file"),
    events="memory.events",
)
_V1 = _Names(
    limit="memory.limit_in_bytes",
    usage="memory.usage_in_bytes",
    cache=("total_inactive_file", "total_active_file"),
    events="memory.oom_control",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryGroup:
    """One control group with a memory controller."""

    path: Path
    _names: _Names

    @property
    def limit_bytes(self) -> int | None:
        """What its processes may use; None without a limit."""
        text = _read(self.path / self._names.limit)
        return int(text) if text.isdecimal() else None

    def available_bytes(self, limit_bytes: int) -> int:
        """What its processes can still get below `limit_bytes`: file cache, but not tmpfs, gives way to them.

        Weights that are mapped from a file are such cache too.
        """
        usage = _read(self.path / self._names.usage)
        stat = _fields(self.path / "memory.stat")
        cache_bytes = sum(stat.get(name, 0) for name in self._names.cache)
        return limit_bytes - max(0, int(usage or 0) - cache_bytes)

    @property
    def oom_kills(self) -> int:
        """How many of its processes the kernel has ever ended for want of memory, of whatever limit."""
        return _fields(self.path / self._names.events).get("oom_kill", 0)


def memory_groups(root: Path = Path("/")) -> tuple[MemoryGroup, ...]:
    """The groups of this process, its own first, then those around it, whose limits bind too.

    `root` is where /proc and /sys are looked for.
    """
    groups: list[MemoryGroup] = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, name = line.split(":", 2)
        if controllers == "":
            base, names = root / "sys/fs/cgroup", _V2
        elif "memory" in controllers.split(","):
            base, names = root / "sys/fs/cgroup/memory", _V1
        else:
            continue
        # Inside a container the name may be the host's; then only the mounted root is there, and it is ours.
        own = Path(name.lstrip("/"))
        folders = [base / part for part in (own, *own.parents)]
        groups += [MemoryGroup(path=p, _names=names) for p in folders if (p / "memory.stat").exists()]
    return tuple(groups)


def _fields(path: Path) -> dict[str, int]:
    """The `name value` lines of a file; none where it cannot be read."""
    words = (line.split() for line in _read(path).splitlines())
    return {word[0]: int(word[1]) for word in words if len(word) == 2 and word[1].isdecimal()}


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # no such group or controller, or it has just gone
        return ""
