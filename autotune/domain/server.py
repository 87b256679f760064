"""A trial server as a value: how it is started, how it is found again, how far it came."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerMark:
    """What identifies all processes of one server, also after autotune was killed.

    Saved before the server is spawned, and again with `pid` just after. A process belongs to the server if
    it is in the session that `pid` led, or has `token` in its environment, or has `log_path` open: vLLM
    retitles its processes (which can wipe the environment the kernel shows), and a child may start its own
    session, so none of the three is enough alone.
    """

    token: str
    log_path: str
    tmp_dir: str
    port: int
    boot_id: str
    """Of the kernel; another one means that a reboot has already ended everything."""
    pid: int | None = None
    pid_started_s: float | None = None
    """When the kernel started `pid`, seconds since boot: a reused number is not mistaken for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """All that is decided before the spawn. `env` is what autotune adds to its own environment.

    `command` is the server without `listen`, the words that bind it to a port chosen anew for each launch.
    """

    command: tuple[str, ...]
    listen: tuple[str, ...]
    env: Mapping[str, str]
    mark: ServerMark

    @property
    def argv(self) -> tuple[str, ...]:
        """The words that are executed."""
        return (*self.command, *self.listen)

    @property
    def url(self) -> str:
        """Base URL of the server, on loopback."""
        return f"http://127.0.0.1:{self.mark.port}"


class Readiness(StrEnum):
    """How waiting for a server ended."""

    READY = "ready"
    """`/health` answers 200 and the listening socket belongs to our process. Not yet proof that it works."""
    EXITED = "exited"
    TIMED_OUT = "timed_out"
    NOT_OURS = "not_ours"
    """Some other process answers on the port."""
    INTERRUPTED = "interrupted"
