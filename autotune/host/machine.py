"""Reads what the machine is: processor, memory, kernel, GPUs. What this process may not use is left out."""

import csv
import logging
import os
import platform
import socket
import subprocess
from pathlib import Path

import psutil

from autotune.domain.machine import Gpu, Machine

_log = logging.getLogger(__name__)

_NVIDIA_SMI = (
    "nvidia-smi",
    "--query-gpu=index,uuid,name,memory.total,driver_version",
    "--format=csv,noheader,nounits",
)
# A healthy driver answers in about 1 s, without persistence mode in about 3 s per GPU.
_NVIDIA_SMI_TIMEOUT_S = 10.0


def read_machine(root: Path = Path("/")) -> Machine:
    """The machine as this process sees it: its CPU affinity, its memory limit, its visible GPUs.

    `root` is where /proc and /sys are looked for. A machine whose `nvidia-smi` is missing has no GPUs; one
    whose `nvidia-smi` fails has none either, and the log says why.
    """
    memory_bytes = psutil.virtual_memory().total
    limit_bytes = _memory_limit_bytes(root)
    if limit_bytes is not None:
        memory_bytes = min(memory_bytes, limit_bytes)
    driver, gpus = _read_gpus(memory_bytes)
    return Machine(
        hostname=socket.gethostname(),
        cpu_model=_cpu_model(root),
        cpu_ids=tuple(sorted(os.sched_getaffinity(0))),
        memory_bytes=memory_bytes,
        kernel=platform.release(),
        driver=driver,
        gpus=gpus,
    )


def _cpu_model(root: Path) -> str:
    """The kernel's name for the processor; its architecture where the kernel has none (many ARM machines)."""
    try:
        lines = (root / "proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "cpu model") and value.strip():
            return value.strip()
    return platform.machine()


def _memory_limit_bytes(root: Path) -> int | None:
    """The lowest memory limit of this process's control groups, version 1 or 2; None without one."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    limits = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            base, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        # A parent's limit binds too. Inside a container the path may be the host's: only the root is there.
        group = Path(path.lstrip("/"))
        limits += [_read_limit(base / parent / name) for parent in (group, *group.parents)]
    return min((limit for limit in limits if limit is not None), default=None)


def _read_limit(path: Path) -> int | None:
    """The number in a limit file; None for `max`, or where there is no such group."""
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def _read_gpus(memory_bytes: int) -> tuple[str | None, tuple[Gpu, ...]]:
    """Driver version and the GPUs that CUDA_VISIBLE_DEVICES leaves visible, in its order."""
    try:
        done = subprocess.run(
            _NVIDIA_SMI, check=False, capture_output=True, text=True, timeout=_NVIDIA_SMI_TIMEOUT_S
        )
    except FileNotFoundError:
        return None, ()
    except (OSError, subprocess.TimeoutExpired) as error:
        _log.warning("no GPU is known, because nvidia-smi cannot be asked: %s", error)
        return None, ()
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip()
        _log.warning("no GPU is known, because nvidia-smi ended with %d: %s", done.returncode, said)
        return None, ()
    rows = [row for row in csv.reader(done.stdout.splitlines(), skipinitialspace=True) if len(row) == 5]
    # A GPU that shares the machine's memory (Grace-Blackwell, Jetson) has `[N/A]` of its own.
    gpus = {
        uuid: Gpu(
            index=int(index),
            name=name,
            memory_bytes=int(memory) * 1024**2 if memory.isdecimal() else memory_bytes,
        )
        for index, uuid, name, memory, _ in rows
    }
    return (rows[0][4] if rows else None), _visible(gpus)


def _visible(gpus: dict[str, Gpu]) -> tuple[Gpu, ...]:
    """CUDA's rule: indices or UUID prefixes; the first entry that names no GPU ends the list."""
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return tuple(gpus.values())
    visible: list[Gpu] = []
    for entry in wanted.split(","):
        name = entry.strip()
        named = [g for uuid, g in gpus.items() if name == str(g.index) or (name and uuid.startswith(name))]
        if not named:
            break
        visible.append(named[0])
    return tuple(visible)
