"""A server that exhausts memory is ended in time, for the right reason, and nothing else is."""

import math
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from real_servers import Start, alive, tree_of, until

from autotune.domain.launch import ServerArgs
from autotune.domain.server import ServerMark
from autotune.server.launcher import LocalLauncher
from autotune.server.memory import Memory, all_process_memory, process_memory, read_memory
from autotune.server.session import LocalServer
from autotune.server.watch import MemoryWatch

GIB = 2**30
MIB = 2**20
EATER = textwrap.dedent(
    """
    import time
    held = []
    while len(held) < 40:  # 640 MiB at most
        held.append(bytearray(b"x" * 2**24))
        time.sleep(0.01)
    time.sleep(60)
    """
)


@contextmanager
def eater(folder: Path, floor_bytes: int) -> Iterator[LocalServer]:
    """A server that does nothing but take memory, in small steps and up to 640 MiB."""
    program = folder / "eater.py"
    program.write_text(EATER)
    launcher = LocalLauncher(
        (sys.executable, str(program)),
        "m",
        folder / "logs",
        cache_dir=folder / "cache",
        memory_floor_bytes=floor_bytes,
    )
    server = launcher.start(launcher.prepare(0, ServerArgs()))
    yield server
    server.stop(grace_s=0)


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """Another program of the same user, with memory of its own."""
    words = [sys.executable, "-c", "b = bytearray(b'x' * 2**26); import time; time.sleep(60)"]
    with subprocess.Popen(words) as process:
        yield process
        process.kill()


class Machine:
    """A machine of 1 GiB that only the watched server uses."""

    def __init__(self, other_bytes: int = 0) -> None:
        self.pid: int | None = None
        self.other_bytes = other_bytes

    def read(self) -> tuple[Memory, ...]:
        held = process_memory(self.pid) if self.pid else None
        used = held.memory_bytes if held else 0
        return (Memory(total_bytes=GIB, available_bytes=GIB - used - self.other_bytes),)


def watch(mark: ServerMark, machine: Machine, floor_bytes: int) -> MemoryWatch:
    watching = MemoryWatch(mark, floor_bytes, read=machine.read)
    machine.pid = mark.pid
    return watching


def test_an_eater_is_ended_and_nobody_else(tmp_path: Path, bystander: subprocess.Popen[bytes]) -> None:
    with eater(tmp_path, 0) as server:
        watching = watch(server.mark, Machine(), GIB - 200 * MIB)
        until(lambda: server.exit_code is not None)
        watching.stop()
    assert server.exit_code == -signal.SIGKILL
    short = watching.shortage
    assert short is not None
    assert short.available_bytes < short.floor_bytes == GIB - 200 * MIB
    assert short.available_at_launch_bytes == short.total_bytes == GIB
    # It was looked at often enough: 640 MiB were not reached, nor far more than the 200 MiB allowed.
    assert 200 * MIB < short.server_bytes < 500 * MIB
    assert bystander.poll() is None
    assert psutil.Process().is_running()


def test_all_processes_of_the_server_end(start: Start) -> None:
    server = start("grandchild_own_session")
    tree = tree_of(server.mark)
    assert len(tree) == 3
    watching = watch(server.mark, Machine(other_bytes=GIB), MIB)
    until(lambda: not alive(tree))
    watching.stop()
    assert watching.shortage is not None


def test_the_process_that_grew_is_named(start: Start, bystander: subprocess.Popen[bytes]) -> None:
    server = start()
    machine = Machine()
    watching = MemoryWatch(server.mark, MIB, read=machine.read)
    words = [sys.executable, "-c", "b = bytearray(b'x' * 300 * 2**20); print(1, flush=True); input()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as grower:
        assert grower.stdout is not None
        grower.stdout.readline()
        machine.other_bytes = GIB
        until(lambda: watching.shortage)
        until(lambda: server.exit_code is not None)
        watching.stop()
        assert grower.poll() is None
        grower.communicate(b"\n")
    short = watching.shortage
    assert short is not None
    assert short.other is not None
    assert short.other.pid == grower.pid
    assert short.others_grew_bytes >= short.other.memory_bytes >= 300 * MIB
    assert bystander.poll() is None


def test_enough_memory_and_no_watch_leave_it_alone(start: Start) -> None:
    server = start()
    for floor_bytes, other_bytes in ((MIB, 0), (0, GIB)):
        looks: list[int] = []
        machine = Machine(other_bytes)

        def read(machine: Machine = machine, looks: list[int] = looks) -> tuple[Memory, ...]:
            looks.append(1)
            return machine.read()

        watching = MemoryWatch(server.mark, floor_bytes, read=read)
        if floor_bytes:
            until(lambda looks=looks: len(looks) > 1)
        watching.stop()
        watching.stop()
        assert watching.shortage is None
    assert server.exit_code is None


def test_the_launcher_watches_with_the_machines_own_numbers(tmp_path: Path) -> None:
    with eater(tmp_path, 2**60) as server:  # no machine has as much
        until(lambda: server.exit_code is not None)
        assert server.exit_code == -signal.SIGKILL
    with eater(tmp_path, 1) as server:
        until(lambda: (process_memory(server.mark.pid or 0) or ZERO).memory_bytes > 100 * MIB)
        assert server.exit_code is None


ZERO = replace(process_memory(os.getpid()), memory_bytes=0)  # type: ignore[type-var]


def test_this_machines_memory() -> None:
    machine, *groups = read_memory()
    assert 0 < machine.available_bytes <= machine.total_bytes == psutil.virtual_memory().total
    assert math.isclose(machine.available_bytes, psutil.virtual_memory().available, rel_tol=0.2)
    assert all(group.total_bytes < machine.total_bytes for group in groups)


@pytest.mark.parametrize(
    ("total_gib", "floor_bytes"), [(1, 128 * MIB), (4, 512 * MIB), (16, 512 * MIB), (100, 3 * GIB)]
)
def test_the_floor_of_a_machine(total_gib: int, floor_bytes: int) -> None:
    memory = Memory(total_bytes=total_gib * GIB, available_bytes=0)
    assert memory.default_floor_bytes == pytest.approx(floor_bytes)


def test_what_a_process_holds(bystander: subprocess.Popen[bytes]) -> None:
    until(lambda: all_process_memory()[bystander.pid].memory_bytes > 64 * MIB)
    held = process_memory(bystander.pid)
    assert held is not None
    assert held.name.startswith("python")
    bystander.kill()
    bystander.wait()
    assert process_memory(bystander.pid) is None
    assert process_memory(2) is None  # a thread of the kernel, or nothing
