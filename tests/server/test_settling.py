"""Waiting for memory: as long as it is held, never for ever, and once for what stays."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain.aftermath import ProcessMemory
from autotune.domain.interrupt import Interrupt
from autotune.domain.trial import Interruption
from autotune.server.gpu_memory import GpuMemory, GpuUse, NvidiaSmi
from autotune.server.memory import Memory
from autotune.server.settling import SettlingMemory

GIB = 2**30
MIB = 2**20


@dataclass
class World:
    """A GPU of 80 GiB whose use is `gpu_gib` at successive looks (the last for ever), and a clock."""

    gpu_gib: Sequence[float] = (0,)
    machine_gib: Sequence[float] = (0,)
    holders: tuple[ProcessMemory, ...] = ()
    now_s: float = 0.0
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.interrupt = Interrupt(lambda: self.now_s, 1e9)
        self._gpu = chain(self.gpu_gib, repeat(self.gpu_gib[-1]))
        self._machine = chain(self.machine_gib, repeat(self.machine_gib[-1]))
        self.memory = SettlingMemory(self.gpu, read=self.machine, pause=self.pause, limit_s=60)

    def gpu(self) -> GpuUse:
        used = GpuMemory(index=3, used_bytes=int(next(self._gpu) * GIB), total_bytes=80 * GIB)
        return GpuUse(gpus=(used,), holders=self.holders)

    def machine(self) -> tuple[Memory, ...]:
        used = int(next(self._machine) * GIB)
        return (Memory(total_bytes=100 * GIB, available_bytes=100 * GIB - used),)

    def pause(self, seconds: float) -> None:
        self.now_s += seconds

    def settle(self) -> bool:
        return self.memory.settle(self.interrupt, self.notes.append)


def test_nothing_to_wait_for() -> None:
    world = World(gpu_gib=(5, 5.5, 4))  # a first look, less than a slack more, less
    assert world.settle()
    assert world.settle()
    assert world.settle()
    assert (world.notes, world.now_s) == ([], 0)


@pytest.mark.parametrize("where", ["gpu_gib", "machine_gib"])
def test_it_waits_until_it_is_free_again(where: str) -> None:
    world = World(**{where: (1, 70, 40, 10, 1.1)})  # type: ignore[arg-type]
    assert world.settle()
    assert world.settle()
    assert world.now_s == 1.5
    name = "GPU 3" if where == "gpu_gib" else "the machine"
    assert world.notes == [f"waiting up to 60 s for memory: {name} 69.0 GiB more than at first in use"]


def test_what_stays_is_waited_for_once() -> None:
    world = World(gpu_gib=(1, 30))
    assert world.settle()
    assert world.settle()
    assert 60 <= world.now_s <= 61
    assert world.settle()
    assert 60 <= world.now_s <= 61
    assert world.notes[1:] == [
        "memory stays in use: GPU 3 29.0 GiB more than at first; the next trial starts beside it"
    ]


def test_it_can_be_interrupted() -> None:
    world = World(gpu_gib=(1, 30))
    world.settle()
    world.interrupt.request(Interruption.USER)
    assert not world.settle()
    assert world.now_s < 1


def test_strangers_are_named_once() -> None:
    trainer = ProcessMemory(pid=812, name="trainer", memory_bytes=20 * GIB)
    screen = ProcessMemory(pid=5, name="Xorg", memory_bytes=40 * MIB)
    world = World(holders=(trainer, screen))
    world.settle()
    world.settle()
    assert world.notes == ["memory of the GPUs is held by other processes: trainer (pid 812) 20.0 GiB"]


@given(st.lists(st.floats(0, 80), min_size=1), st.integers(1, 10))
def test_it_always_ends(used: list[float], times: int) -> None:
    world = World(gpu_gib=used, machine_gib=used[::-1])
    for _ in range(times):
        before_s = world.now_s
        assert world.settle()
        assert world.now_s - before_s <= 61


# nvidia-smi


def put_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f'#!/bin/sh\necho "$@" >> {folder}/calls\n{script}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_smi(
        tmp_path,
        monkeypatch,
        """case "$2" in
        *gpu=*) echo "0, 1024, 81920"; echo "1, [N/A], [N/A]";;
        *) echo "812, /usr/bin/trainer, 512"; echo "812, /usr/bin/trainer, 256"; echo "9, [Gone], [N/A]";;
        esac""",
    )
    use = NvidiaSmi([0, 1])()
    assert use.gpus == (GpuMemory(index=0, used_bytes=1024 * MIB, total_bytes=81920 * MIB),)
    assert use.holders == (ProcessMemory(pid=812, name="trainer", memory_bytes=768 * MIB),)
    assert all(call.startswith("--id=0,1 ") for call in (tmp_path / "calls").read_text().splitlines())


@pytest.mark.parametrize("script", ["echo Failed to initialize NVML; exit 9", "echo no csv", "echo a, b, c"])
def test_one_that_cannot_say(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_smi(tmp_path, monkeypatch, script)
    assert NvidiaSmi([0])() == GpuUse()


def test_a_machine_without_gpus_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_smi(tmp_path, monkeypatch, "exit 1")
    assert NvidiaSmi([])() == GpuUse()
    assert not (tmp_path / "calls").exists()
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert NvidiaSmi([0])() == GpuUse()
