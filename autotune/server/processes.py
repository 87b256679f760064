"""Finds all processes of one server, also when its first process is gone and when autotune was restarted.

Reads `/proc` itself: the kernel's start time, session and open files of every process in one pass. A process
is named only when something it carries proves that it is the server's; a reused pid never is.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autotune.domain.server import ServerMark

TOKEN_VARIABLE = "AUTOTUNE_SERVER"  # noqa: S105 (a name, not a secret)
_PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process at one moment; pid and `started_s` together are never used again in one boot."""

    pid: int
    parent: int
    group: int
    session: int
    started_s: float
    """Seconds since boot, in the kernel's steps of 10 ms."""
    zombie: bool
    """It has ended, with all its threads, and holds nothing but its number."""


def boot_id() -> str:
    """A name for this boot of the kernel."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def look(pid: int) -> Process | None:
    """The process that has this number now; None when there is none."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may hold spaces and parentheses; the fields after it are those of proc(5).
    state, parent, group, session, *rest = stat[stat.rindex(")") + 2 :].split()
    return Process(
        pid=pid,
        parent=int(parent),
        group=int(group),
        session=int(session),
        started_s=int(rest[15]) / _TICKS_PER_S,
        # A first thread that is gone shows as Z while others, or their release of memory, still go on: seen
        # for seconds after SIGTERM on a busy vLLM. Only the number of threads tells.
        zombie=state in "ZX" and int(rest[13]) <= 1,
    )


def is_alive(process: Process) -> bool:
    """Whether this very process still runs; a zombie does not."""
    now = look(process.pid)
    return now is not None and now.started_s == process.started_s and not now.zombie


def is_resource_tracker(process: Process) -> bool:
    """Whether it is the helper with which Python's multiprocessing removes shared memory."""
    try:
        words = (_PROC / str(process.pid) / "cmdline").read_bytes()
    except OSError:  # gone
        return False
    return b"from multiprocessing.resource_tracker import main" in words


def find(mark: ServerMark) -> tuple[Process, ...]:
    """All living processes of the server, never our own.

    They are those with the token in their environment or the log open for writing (who only reads it is
    somebody's `tail -f`), those in the session of the first process, and all descendants of these.
    """
    if mark.boot_id != boot_id():
        return ()
    began_s = mark.pid_started_s or 0.0
    candidates = [p for p in _all() if p.pid != os.getpid() and p.started_s >= began_s]
    ours = {p.pid for p in candidates if _token(p.pid) == mark.token or _writes_to(p.pid, mark.log_path)}
    if _owns_session(mark, [p for p in candidates if p.pid in ours]):
        ours |= {p.pid for p in candidates if p.session == mark.pid}
    while more := {p.pid for p in candidates if p.parent in ours} - ours:
        ours |= more
    return tuple(p for p in candidates if p.pid in ours and not p.zombie)


def find_any() -> tuple[Process, ...]:
    """All living processes that carry a token, of whatever study: of one that runs, or left by a dead one."""
    return tuple(p for p in _all() if p.pid != os.getpid() and not p.zombie and _token(p.pid) is not None)


def _owns_session(mark: ServerMark, marked: list[Process]) -> bool:
    """Whether session number `mark.pid` is the server's.

    The number is taken as long as the session has a member, so the first process itself proves it, and so
    does any marked member. Without either, number and session may have been used again by a stranger.
    """
    if mark.pid is None:
        return False
    first = look(mark.pid)
    if first is not None and first.started_s == mark.pid_started_s:
        return True
    return any(process.session == mark.pid for process in marked)


def _all() -> Iterator[Process]:
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (process := look(int(entry.name))):
            yield process


def _token(pid: int) -> str | None:
    """The token in the environment of a process; None where there is none to be seen."""
    # setproctitle, which vLLM uses, zeroes the front of the environment up to the first variable that was
    # changed since the start. psutil stops reading there and shows nothing; what is left further on counts.
    try:
        environ = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:  # gone, or another user's and so not ours
        return None
    name = f"{TOKEN_VARIABLE}=".encode()
    values = (word.removeprefix(name) for word in environ.split(b"\0") if word.startswith(name))
    return next((value.decode(errors="replace") for value in values), None)


def _writes_to(pid: int, path: str) -> bool:
    descriptors = _PROC / str(pid) / "fd"
    try:
        return any(_is_writer(descriptor, path) for descriptor in descriptors.iterdir())
    except OSError:  # gone, or another user's and so not ours
        return False


def _is_writer(descriptor: Path, path: str) -> bool:
    try:
        if str(descriptor.readlink()) not in (path, f"{path} (deleted)"):
            return False
        info = (descriptor.parents[1] / "fdinfo" / descriptor.name).read_text().splitlines()
    except OSError:  # closed in this instant
        return False
    flags = next(int(line.split()[1], base=8) for line in info if line.startswith("flags:"))
    return flags & os.O_ACCMODE != os.O_RDONLY
