"""The kernel's words about processes it ended, as several versions of Linux write them."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain.aftermath import ProcessMemory
from autotune.server.kernel_log import KernelLog, oom_killed

KIB = 1024
SAMPLES = {
    "4,911,96612345,-;Memory cgroup out of memory: Killed process 4242 (VLLM::Worker_TP) "
    "total-vm:9000000kB, anon-rss:700000kB, file-rss:90000kB, shmem-rss:1000kB, UID:0 pgtables:1804kB "
    "oom_score_adj:0": ProcessMemory(pid=4242, name="VLLM::Worker_TP", memory_bytes=701000 * KIB),
    "3,88,1,-;Out of memory: Killed process 4242 (python3) total-vm:1kB, anon-rss:5kB, file-rss:3kB, "
    "shmem-rss:0kB": ProcessMemory(pid=4242, name="python3", memory_bytes=5 * KIB),
    "[12.3] Killed process 4242 (a (b) c), UID 1000, total-vm:1kB, anon-rss:5kB, file-rss:3kB": ProcessMemory(
        pid=4242, name="a (b) c", memory_bytes=5 * KIB
    ),
}
OTHER = (
    "6,1,1,-;oom_reaper: reaped process 4242 (python3), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
    "6,1,1,-;oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/x,task=python3,pid=4242,uid=0",
    "6,1,1,-;[   4242]     0  4242   123456    98765  1843200        0             0 python3",
    "6,1,1,-;python3[4242]: segfault at 0 ip 00007f sp 00007f error 4 in libc.so.6",
)


@pytest.mark.parametrize("line", SAMPLES)
def test_one_of_ours(line: str) -> None:
    assert oom_killed([*OTHER, line, *OTHER], {1, 4242}) == (SAMPLES[line],)
    assert oom_killed([line], {1, 424, 42424}) == ()


def test_other_lines_and_strangers_are_nothing() -> None:
    assert oom_killed(OTHER, {4242}) == ()


@given(st.lists(st.text()), st.sets(st.integers(min_value=0)))
def test_no_line_is_misread(lines: list[str], pids: set[int]) -> None:
    assert all(process.pid in pids for process in oom_killed(lines, pids))


def test_only_what_comes_after(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text("before\n")
    log = KernelLog(path)
    assert log.new_lines() == ()
    with path.open("a") as file:
        file.write("one\ntwo\n" + "x" * 10_000 + "\n")
    assert log.new_lines() == ("one", "two", "x" * 10_000)
    assert log.new_lines() == ()
    log.close()
    log.close()
    assert log.new_lines() == ()


def test_one_that_may_not_be_read(tmp_path: Path) -> None:
    assert KernelLog(tmp_path / "none").new_lines() == ()


@pytest.mark.skipif(not os.access("/dev/kmsg", os.W_OK), reason="needs the right to write the kernel's log")
def test_the_real_one() -> None:
    log = KernelLog()
    Path("/dev/kmsg").write_text("autotune: a line of its tests\n")
    assert any(line.endswith(";autotune: a line of its tests") for line in log.new_lines())
    log.close()
