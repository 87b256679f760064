"""What the kernel's log says of a server's processes, where this user may read it."""

import os
import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from autotune.domain.aftermath import ProcessMemory

# The kernel's own buffer is usually 256 KiB to 1 MiB, so this is reached only when it floods.
_MAX_BYTES = 4 * 1024**2
_RECORD_BYTES = 8192
"""A read with less room than a record fails; the kernel makes none larger."""

# mm/oom_kill.c, from Linux 2.6 on; what stands between name and sizes differs.
_KILLED = re.compile(
    r"Killed process (?P<pid>\d{1,10}) \((?P<name>.{1,64}?)\),? (?:UID \d{1,10}, )?total-vm:"
)
_HELD = re.compile(r"(?:anon|shmem)-rss:(?P<kilobytes>\d{1,15})kB")


class KernelLog:
    """The lines that the kernel writes from now on; none where they may not be read.

    Position, not time: the kernel's time stamps drift away from every clock a program can read.
    """

    def __init__(self, path: Path = Path("/dev/kmsg")) -> None:
        self._descriptor: int | None = None
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._descriptor, 0, os.SEEK_END)
        except OSError:  # no such file in a container, or kernel.dmesg_restrict without the right to it
            self.close()

    def new_lines(self) -> tuple[str, ...]:
        """Those written since the last call."""
        chunks: list[bytes] = []
        while self._descriptor is not None and sum(map(len, chunks)) < _MAX_BYTES:
            try:
                chunk = os.read(self._descriptor, _RECORD_BYTES)
            except BrokenPipeError:  # older lines were overwritten before they were read
                continue
            except OSError:  # all is read
                break
            if not chunk:
                break
            chunks.append(chunk)
        return tuple(b"".join(chunks).decode(errors="replace").splitlines())

    def close(self) -> None:
        """It can be read no more. Can be called twice."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with suppress(OSError):
                os.close(descriptor)


def oom_killed(lines: Iterable[str], pids: Collection[int]) -> tuple[ProcessMemory, ...]:
    """Those of `pids` that the kernel says it ended for want of memory, with what they held.

    In a container the kernel's numbers are those of the host, so that nothing is found.
    """
    found: dict[int, ProcessMemory] = {}
    for line in lines:
        killed = _KILLED.search(line)
        if killed and (pid := int(killed["pid"])) in pids:
            held = sum(int(match["kilobytes"]) * 1024 for match in _HELD.finditer(line))
            found[pid] = ProcessMemory(pid=pid, name=killed["name"], memory_bytes=held)
    return tuple(found.values())
