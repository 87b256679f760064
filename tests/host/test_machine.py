"""What is read of the machine: from a /proc and /sys of files, and from an `nvidia-smi` that is a script."""

import logging
import os
from pathlib import Path

import psutil
import pytest

from autotune.domain.machine import Gpu
from autotune.host.machine import read_machine

_GIB = 1024**3
_A = Gpu(index=0, name="NVIDIA H200", memory_bytes=143771 * 1024**2)
_B = Gpu(index=1, name="NVIDIA L4, special", memory_bytes=23034 * 1024**2)
_TWO_GPUS = """\
0, GPU-aaaa, NVIDIA H200, 143771, 570.86
1, GPU-bbbb, "NVIDIA L4, special", 23034, 570.86
"""


def _file(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where an `nvidia-smi` would be found; there is none yet."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path / "bin/nvidia-smi"


def _answer(nvidia_smi: Path, text: str, exit_code: int = 0) -> None:
    nvidia_smi.write_text(f"#!/bin/sh\necho '{text}'\nexit {exit_code}\n")
    nvidia_smi.chmod(0o755)


def test_this_machine(nvidia_smi: Path) -> None:
    machine = read_machine()
    assert machine.cpu_ids == tuple(sorted(os.sched_getaffinity(0)))
    assert 0 < machine.memory_bytes <= psutil.virtual_memory().total
    assert machine.hostname
    assert machine.cpu_model
    assert machine.kernel == os.uname().release
    assert (machine.driver, machine.gpus) == (None, ())


@pytest.mark.parametrize(
    ("cpuinfo", "name"),
    [
        ("processor\t: 0\nmodel\t\t: 143\nmodel name\t: Intel(R) Xeon(R)\n", "Intel(R) Xeon(R)"),
        ("processor\t: 0\nCPU part\t: 0xd0c\n", os.uname().machine),
    ],
)
def test_the_processor_is_named(tmp_path: Path, nvidia_smi: Path, cpuinfo: str, name: str) -> None:
    _file(tmp_path, "proc/cpuinfo", cpuinfo)
    assert read_machine(tmp_path).cpu_model == name


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": str(_GIB)}, _GIB),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/memory.max": "max\n",
                "sys/fs/cgroup/a/memory.max": f"{_GIB}\n",
            },
            _GIB,
        ),
        # Version 1 in a container: the path is the host's, and only the root is mounted.
        (
            {
                "proc/self/cgroup": "5:cpu,cpuacct:/docker/1\n4:memory:/docker/1\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": str(_GIB),
            },
            _GIB,
        ),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": str(2**63 - 4096)}, None),
        ({}, None),
    ],
)
def test_a_memory_limit_is_respected(
    tmp_path: Path, nvidia_smi: Path, files: dict[str, str], limit: int | None
) -> None:
    for name, text in files.items():
        _file(tmp_path, name, text)
    assert read_machine(tmp_path).memory_bytes == (limit or psutil.virtual_memory().total)


@pytest.mark.parametrize(
    ("visible", "gpus"),
    [
        (None, (_A, _B)),
        ("1,0", (_B, _A)),
        ("GPU-bb", (_B,)),
        ("0,7,1", (_A,)),
        ("-1", ()),
        ("", ()),
    ],
)
def test_gpus_are_those_that_cuda_would_show(
    nvidia_smi: Path, monkeypatch: pytest.MonkeyPatch, visible: str | None, gpus: tuple[Gpu, ...]
) -> None:
    _answer(nvidia_smi, _TWO_GPUS)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    machine = read_machine()
    assert machine.driver == "570.86"
    assert machine.gpus == gpus


def test_a_gpu_without_memory_of_its_own_has_the_machines(nvidia_smi: Path) -> None:
    _answer(nvidia_smi, "0, GPU-aaaa, NVIDIA GB10, [N/A], 580.95")
    machine = read_machine()
    assert machine.gpus == (Gpu(index=0, name="NVIDIA GB10", memory_bytes=machine.memory_bytes),)


def test_a_driver_that_fails_is_told_and_means_no_gpus(
    nvidia_smi: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _answer(nvidia_smi, "NVIDIA-SMI has failed: driver/library version mismatch", exit_code=18)
    with caplog.at_level(logging.WARNING):
        assert read_machine().gpus == ()
    assert "driver/library version mismatch" in caplog.text
