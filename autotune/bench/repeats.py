"""Which points are measured again on the same server, and by how many processes. None is ever averaged."""

from collections.abc import Sequence

from autotune.domain.measurement import Flag, FlagKind, MeasuredPoint, Point

MAX_STALL_REPEATS = 2
"""A server that compiles under load is done with it after that; one that stalls again does so always."""
MAX_STALLS_A_SERVER = 4
"""Repeats for stalls on one server: one that always stalls would take several times as long as others to say
so at each stream count."""
MAX_CPU_SHARE = 0.5
"""Of one core: a process of the client that needs more is not always there when something arrives."""
_MIN_CPUS = 4
"""With fewer, another process of the client takes its core from the server."""


class Repeats:
    """What the points so far have taught about this machine. `processes` fixes their number."""

    def __init__(self, processes: int | None, cpus: int) -> None:
        self._fixed = processes
        self._most = max(1, cpus // 2) if cpus >= _MIN_CPUS else 1
        self._needed = {1: 1}
        """How many processes were needed, by stream count."""
        self._is_useless = False
        """Whether a point that the client was too slow for has been repeated to no avail."""
        self._stalls = 0
        """Repeats for stalls on this server."""

    def begin_server(self) -> None:
        """What follows is measured on another server."""
        self._stalls = 0

    def processes(self, streams: int) -> int:
        """How many are to send the load of that many streams."""
        known = max(needed for at, needed in self._needed.items() if at <= streams)
        return min(streams, known if self._fixed is None else self._fixed)

    def reason(self, measured: MeasuredPoint, earlier: Sequence[Flag]) -> Flag | None:
        """Why a point has to be measured again, `earlier` being such reasons; None when it is good enough."""
        if measured.broken_off is not None:
            return None
        flags = {flag.kind: flag for flag in measured.point.flags}
        stall, bound = flags.get(FlagKind.STALLED), flags.get(FlagKind.CLIENT_BOUND)
        if bound is not None and self._spread_further(measured.point):
            return bound
        kinds = [flag.kind for flag in earlier]
        if bound is not None and FlagKind.CLIENT_BOUND in kinds:
            self._is_useless = True
        is_new = kinds.count(FlagKind.STALLED) < MAX_STALL_REPEATS and self._stalls < MAX_STALLS_A_SERVER
        if stall is not None and is_new:
            self._stalls += 1
            return stall
        return None if self._is_useless or stall is not None else bound

    def _spread_further(self, point: Point) -> bool:
        """Take twice as many processes from now on, where that can help."""
        now = self.processes(point.streams)
        needs_more = point.client is not None and point.client.cpu_share > MAX_CPU_SHARE
        if self._fixed is not None or not needs_more or 2 * now > min(self._most, point.streams):
            return False
        self._needed[point.streams] = 2 * now
        return True
