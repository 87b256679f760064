"""How much memory of the GPUs is in use, and by whom, as `nvidia-smi` tells."""

import csv
import logging
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.domain.aftermath import ProcessMemory

# A healthy driver answers in about 1 s, without persistence mode in about 3 s per GPU.
_TIMEOUT_S = 30.0
_MIB = 1024**2

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMemory:
    """One GPU's memory."""

    index: int
    used_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """All that are asked about, and the processes that hold memory on them, each with all it holds."""

    gpus: tuple[GpuMemory, ...] = ()
    holders: tuple[ProcessMemory, ...] = ()


class NvidiaSmi:
    """Asks `nvidia-smi` about the GPUs with these indices; a missing or failing one knows of none."""

    def __init__(self, indices: Sequence[int]) -> None:
        self._indices = tuple(indices)

    def __call__(self) -> GpuUse:
        """What is in use now."""
        if not self._indices:
            return GpuUse()
        # A GPU that shares the machine's memory has `[N/A]` here; then the machine's memory tells.
        gpus = [
            GpuMemory(index=int(index), used_bytes=int(used) * _MIB, total_bytes=int(total) * _MIB)
            for index, used, total in self._ask("--query-gpu=index,memory.used,memory.total", 3)
            if used.isdecimal() and total.isdecimal()
        ]
        held: dict[int, ProcessMemory] = {}
        for pid, name, used in self._ask("--query-compute-apps=pid,process_name,used_memory", 3):
            if pid.isdecimal() and used.isdecimal():
                more = held[int(pid)].memory_bytes if int(pid) in held else 0  # a row for each GPU it uses
                held[int(pid)] = ProcessMemory(
                    pid=int(pid), name=name.rpartition("/")[2] or name, memory_bytes=more + int(used) * _MIB
                )
        return GpuUse(gpus=tuple(gpus), holders=tuple(held.values()))

    def _ask(self, query: str, columns: int) -> list[list[str]]:
        ids = ",".join(map(str, self._indices))
        words = ["nvidia-smi", f"--id={ids}", query, "--format=csv,noheader,nounits"]
        try:
            done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=_TIMEOUT_S)
        except FileNotFoundError:
            return []
        except (OSError, subprocess.TimeoutExpired) as error:
            _log.warning("memory of the GPUs is not known, because nvidia-smi cannot be asked: %s", error)
            return []
        if done.returncode != 0:
            said = (done.stdout + done.stderr).strip()
            _log.warning(
                "memory of the GPUs is not known: nvidia-smi ended with %d: %s", done.returncode, said
            )
            return []
        rows = csv.reader(done.stdout.splitlines(), skipinitialspace=True)
        return [row for row in rows if len(row) == columns]
