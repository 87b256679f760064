"""Loopback ports: which one a server gets, and who listens on it."""

import socket
from collections.abc import Iterable
from dataclasses import dataclass

import psutil

from autotune.errors import EnvironmentFault, UserError

LOOPBACK = "127.0.0.1"
# Whoever listens on one of these answers a connection to 127.0.0.1.
_REACHED_BY_LOOPBACK = {LOOPBACK, "0.0.0.0", "::", "::1", "::ffff:127.0.0.1"}  # noqa: S104 (compared, not bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class PortRange:
    """The ports a server may get, both ends included."""

    low: int
    high: int

    def __post_init__(self) -> None:
        if not 1 <= self.low <= self.high <= 65535:
            raise UserError(f"port range {self}: it must be LOW-HIGH with 1 <= LOW <= HIGH <= 65535")

    def __str__(self) -> str:
        return f"{self.low}-{self.high}"


class FreePorts:
    """Hands out ports nobody uses: chosen by the kernel, or the next free one of a range.

    The last port comes last again, so that a late packet or client of one server does not meet the next.
    """

    def __init__(self, ports: PortRange | None = None) -> None:
        self._range = ports
        self._last: int | None = None

    def take(self) -> int:
        """A port that could be bound a moment ago. Raises EnvironmentFault when the range has none."""
        self._last = self._chosen_by_kernel() if self._range is None else self._next_of(self._range)
        return self._last

    def _chosen_by_kernel(self) -> int:
        while True:
            with socket.socket() as probe:
                probe.bind((LOOPBACK, 0))
                port = int(probe.getsockname()[1])
            if port != self._last:
                return port

    def _next_of(self, ports: PortRange) -> int:
        every = range(ports.low, ports.high + 1)
        at = 0 if self._last is None else every.index(self._last) + 1
        others: list[int] = [port for port in (*every[at:], *every[:at]) if port != self._last]
        last = [] if self._last is None else [self._last]
        # A closing connection (TIME_WAIT) does not stop a server, which sets SO_REUSEADDR; still a port
        # without one is better. A range of one port has to live with it, and with being the last one.
        for candidates in (others, last):
            for reuse in (False, True):
                for port in candidates:
                    if _can_bind(port, reuse=reuse):
                        return port
        raise EnvironmentFault(
            f"no port in the range {ports} is free on {LOOPBACK}: end what listens there, or give another one"
        )


def listeners(port: int) -> frozenset[int | None]:
    """The pids that accept connections to this port on loopback; None for one we may not see."""
    return frozenset(
        c.pid
        for c in psutil.net_connections(kind="tcp")
        if c.status == psutil.CONN_LISTEN and c.laddr
        if c.laddr.port == port and c.laddr.ip in _REACHED_BY_LOOPBACK
    )


def is_held_by(port: int, pids: Iterable[int]) -> bool | None:
    """Whether all who listen on the port are among `pids`; None when nobody listens."""
    found = listeners(port)
    return found <= set(pids) if found else None


def _can_bind(port: int, *, reuse: bool) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:  # in use, or below 1024 without the right to it
            return False
        return True
