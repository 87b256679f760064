"""Ends a server before it takes the machine down: samples the memory that is left while the server runs.

A configuration that exhausts the host leaves no log and no exit code behind, because the machine itself stops
answering (vllm#46307: unified memory at gpu_memory_utilization 0.70).
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence

from autotune.domain.aftermath import MemoryShortage, ProcessMemory
from autotune.domain.server import ServerMark
from autotune.errors import ProcessStillAlive
from autotune.server.memory import Memory, all_process_memory, read_memory
from autotune.server.processes import find
from autotune.server.stopping import end_processes, kill

_LONGEST_PAUSE_S = 1.0
_SHORTEST_PAUSE_S = 0.05
# The kernel hands out about 10 GB/s of zeroed pages; nearer to the floor than one pause of that, look sooner.
_FASTEST_BYTES_PER_S = 8 * 1024**3

_log = logging.getLogger(__name__)

ReadMemory = Callable[[], Sequence[Memory]]


class MemoryWatch:
    """A thread beside one server, from its launch to its stop."""

    def __init__(
        self, mark: ServerMark, floor_bytes: int | None = None, *, read: ReadMemory = read_memory
    ) -> None:
        """`floor_bytes` None is the default floor of each place, 0 is no watch. Watches at once."""
        self._mark = mark
        self._floor_bytes = floor_bytes
        self._read = read
        self._at_launch = read()
        self._held_at_launch = all_process_memory()
        self._over = threading.Event()
        self._shortage: MemoryShortage | None = None
        self._thread = threading.Thread(target=self._watch, name="memory-watch", daemon=True)
        if floor_bytes != 0:
            self._thread.start()

    @property
    def shortage(self) -> MemoryShortage | None:
        """Why the server was ended; None while it was not. Set before the first signal is sent."""
        return self._shortage

    def stop(self) -> None:
        """It looks no more, and has finished what it was about. Can be called twice."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        pause_s = 0.0
        while not self._over.wait(pause_s):
            places = self._read()
            headroom_bytes = min(place.available_bytes - self._floor(place) for place in places)
            if headroom_bytes < 0:
                self._end(places)
                return
            pause_s = headroom_bytes / _FASTEST_BYTES_PER_S
            pause_s = min(max(pause_s, _SHORTEST_PAUSE_S), _LONGEST_PAUSE_S)

    def _floor(self, place: Memory) -> int:
        return place.default_floor_bytes if self._floor_bytes is None else self._floor_bytes

    def _end(self, places: Sequence[Memory]) -> None:
        """Nothing of the server runs any more, and `shortage` says why."""
        processes = find(self._mark)
        held = all_process_memory()
        # Before the signal, because whoever sees the server dead must see why as well.
        self._shortage = self._explain(places, held, {process.pid for process in processes})
        kill(processes)
        try:
            end_processes(self._mark, grace_s=0.0)
        except ProcessStillAlive as error:  # `LocalServer.stop` tries again, and says so to the study
            _log.warning("memory ran out, and %s", error)

    def _explain(
        self, places: Sequence[Memory], held: Mapping[int, ProcessMemory], ours: set[int]
    ) -> MemoryShortage:
        at = min(range(len(places)), key=lambda i: places[i].available_bytes - self._floor(places[i]))
        place = places[at]
        before = self._at_launch[at] if at < len(self._at_launch) else place
        others = [process for pid, process in held.items() if pid not in ours]
        grew = {process.pid: self._grown_bytes(process) for process in others}
        return MemoryShortage(
            total_bytes=place.total_bytes,
            available_bytes=place.available_bytes,
            floor_bytes=self._floor(place),
            available_at_launch_bytes=before.available_bytes,
            server_bytes=sum(process.memory_bytes for pid, process in held.items() if pid in ours),
            others_bytes=sum(process.memory_bytes for process in others),
            others_grew_bytes=sum(grew.values()),
            other=max(others, key=lambda p: (grew[p.pid], p.memory_bytes), default=None),
        )

    def _grown_bytes(self, process: ProcessMemory) -> int:
        before = self._held_at_launch.get(process.pid)
        return max(0, process.memory_bytes - (before.memory_bytes if before else 0))
