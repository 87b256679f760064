"""Limits and deaths of control groups: files of both versions, and a real group where one can be made."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from autotune.server.cgroup import memory_groups
from autotune.server.memory import read_memory

MIB = 2**20


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


MEMINFO = "MemTotal:       8388608 kB\nMemFree:          1 kB\nMemAvailable:    4194304 kB\n"


def test_version_2_its_own_and_those_around_it(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/user.slice/run.scope"
    write(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/user.slice/run.scope\n",
            "sys/fs/cgroup/memory.stat": "anon 1\n",
            f"{group}/memory.max": "max\n",
            f"{group}/memory.current": "500\n",
            f"{group}/memory.stat": "inactive_file 100\nactive_file 50\nshmem 40\n",
            f"{group}/memory.events": "low 0\nhigh 3\nmax 9\noom 2\noom_kill 1\noom_group_kill 0\n",
            "sys/fs/cgroup/user.slice/memory.max": "1000\n",
            "sys/fs/cgroup/user.slice/memory.current": "700\n",
            "sys/fs/cgroup/user.slice/memory.stat": "inactive_file 100\nactive_file 50\n",
        },
    )
    own, around, _ = memory_groups(tmp_path)
    assert own.limit_bytes is None
    assert own.oom_kills == 1
    assert around.limit_bytes == 1000
    assert around.available_bytes(1000) == 1000 - (700 - 150)
    assert around.oom_kills == 0
    assert [m.available_bytes for m in read_memory(tmp_path)] == [4 * 2**30, 450]


def test_version_1(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/memory/docker/abc"
    write(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "5:cpu,cpuacct:/\n4:memory:/docker/abc\n1:name=systemd:/\n",
            f"{group}/memory.limit_in_bytes": "2000\n",
            f"{group}/memory.usage_in_bytes": "1500\n",
            f"{group}/memory.stat": "active_file 1\ntotal_inactive_file 300\ntotal_active_file 200\n",
            f"{group}/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n",
            # What a machine without a limit says.
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/memory/memory.stat": "total_active_file 1\n",
        },
    )
    assert memory_groups(tmp_path)[0].oom_kills == 7
    assert [(m.total_bytes, m.available_bytes) for m in read_memory(tmp_path)] == [
        (8 * 2**30, 4 * 2**30),
        (2000, 1000),
    ]


def test_a_container_that_shows_only_its_root(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/../../host/name\n",
            "sys/fs/cgroup/memory.max": "1000\n",
            "sys/fs/cgroup/memory.current": "1\n",
            "sys/fs/cgroup/memory.stat": "inactive_file 5\n",  # more than in use: counted at another moment
            "sys/fs/cgroup/memory.events": "oom_kill 2\n",
        },
    )
    assert memory_groups(tmp_path)[0].oom_kills == 2
    assert read_memory(tmp_path)[1].available_bytes == 1000


def test_no_control_groups(tmp_path: Path) -> None:
    write(tmp_path, {"proc/meminfo": MEMINFO})
    assert memory_groups(tmp_path) == ()
    assert len(read_memory(tmp_path)) == 1


# In a real group of 300 MiB


DRIVER = textwrap.dedent(
    """
    import json, os, sys, time
    from pathlib import Path
    folder, floor = Path(sys.argv[1]), int(sys.argv[2])
    Path(sys.argv[3], "cgroup.procs").write_text(str(os.getpid()))
    from autotune.domain.interrupt import Interrupt
    from autotune.domain.launch import ServerArgs
    from autotune.server.launcher import LocalLauncher
    eater = folder / "eater.py"
    eater.write_text(
        "import os, time\\n"
        "print(f'(EngineCore pid={os.getpid()}) INFO 01-01 00:00:00 [core.py:1] begins', flush=True)\\n"
        "held = []\\n"
        "while len(held) < 64: held.append(bytearray(b'x' * 2**23)); time.sleep(0.01)\\n"
        "time.sleep(60)\\n"
    )
    launcher = LocalLauncher((sys.executable, str(eater)), "m", folder / "logs",
        cache_dir=folder, memory_floor_bytes=floor)
    server = launcher.start(launcher.prepare(0, ServerArgs()))
    deadline = time.monotonic() + 30
    while server.exit_code is None and time.monotonic() < deadline:
        time.sleep(0.05)
    seen = server.aftermath(Interrupt(time.monotonic, float("inf")))
    code = server.exit_code
    server.stop(0)
    short = seen.shortage
    print(json.dumps({
        "code": code, "kills": seen.oom_kills, "pid": server.mark.pid,
        "killed": [[p.pid, p.memory_bytes] for p in seen.oom_killed],
        "short": [short.total_bytes, short.available_bytes, short.server_bytes] if short else None,
    }))
    """
)


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group with a memory limit of 300 MiB; needs the right to make one."""
    base = Path("/sys/fs/cgroup")
    version_1 = (base / "memory/cgroup.procs").exists()
    folder = (base / "memory" if version_1 else base) / f"autotune-test-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / ("memory.limit_in_bytes" if version_1 else "memory.max")).write_text(str(300 * MIB))
    except OSError as error:
        with suppress(OSError):
            folder.rmdir()
        pytest.skip(f"no control group can be made here: {error}")
    yield folder
    folder.rmdir()


def drive(folder: Path, group: Path, floor_bytes: int) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(folder), str(floor_bytes), str(group)],
        check=True,
        capture_output=True,
        text=True,
    )
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def test_the_watch_is_faster_than_the_kernel(tmp_path: Path, group: Path) -> None:
    found = drive(tmp_path, group, 100 * MIB)
    assert found["code"] == -9
    assert (found["kills"], found["killed"]) == (0, [])
    total, available, server = found["short"]
    assert total == 300 * MIB
    assert available < 100 * MIB
    assert server > 50 * MIB


def test_the_kernels_kill_is_noticed(tmp_path: Path, group: Path) -> None:
    found = drive(tmp_path, group, 0)
    assert found["code"] == -9
    assert found["short"] is None
    assert found["kills"] == 1
    if os.access("/dev/kmsg", os.R_OK) and found["killed"]:  # in a container the kernel's pids are not ours
        ((pid, held),) = found["killed"]
        assert pid == found["pid"]
        assert held > 100 * MIB
