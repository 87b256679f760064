"""Which processes are found by a mark: all of the server's, and nobody else's."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from real_servers import Start, tree_of, until

from autotune.domain.server import LaunchPlan, ServerMark
from autotune.server.processes import boot_id, find, is_alive, look

SLEEP = "import time; print(flush=True); time.sleep(600)"


@contextmanager
def stranger(*, env: dict[str, str] | None = None, log: str | None = None, mode: str = "r") -> Iterator[int]:
    """A process that leads its own session; it has `log` open and nothing else to do with any server."""
    opened = f"log = open({log!r}, {mode!r})\n" if log else ""
    words = [sys.executable, "-S", "-I", "-c", opened + SLEEP]
    with subprocess.Popen(words, start_new_session=True, stdout=subprocess.PIPE, env=env) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.kill()


def pids(mark: ServerMark) -> set[int]:
    return {process.pid for process in find(mark)}


def test_a_server_is_found_by_each_of_its_traits_alone(start: Start) -> None:
    server = start("grandchild_scrubbed")
    tree = {process.pid for process in tree_of(server.mark)}
    mark = server.mark
    assert pids(mark) == tree
    assert pids(replace(mark, token="x", log_path="/x")) == tree, "by its session, and parentage"
    assert pids(replace(mark, pid=None, pid_started_s=None, log_path="/x")) == tree, "by its token"
    assert pids(replace(mark, pid=None, pid_started_s=None, token="x")) == tree, "by its log"
    assert pids(replace(mark, pid=None, pid_started_s=None, token="x", log_path="/x")) == set()


def test_a_log_that_was_removed_still_leads_to_its_writers(start: Start) -> None:
    mark = start().mark
    Path(mark.log_path).unlink()
    assert len(pids(replace(mark, pid=None, pid_started_s=None, token="x"))) == 2


@pytest.mark.parametrize("started_later_s", [0.0, -100.0, +0.01])
def test_a_reused_pid_is_not_the_server(plan: LaunchPlan, started_later_s: float) -> None:
    """Only the very process that was spawned: number and start time must both agree."""
    with stranger() as pid:
        now = look(pid)
        assert now is not None
        mark = replace(plan.mark, pid=pid, pid_started_s=now.started_s + started_later_s)
        assert pids(mark) == ({pid} if started_later_s == 0 else set())


@pytest.mark.parametrize("marked", [False, True])
def test_a_session_without_its_leader_needs_a_marked_member(plan: LaunchPlan, marked: bool) -> None:
    """The number of a session whose first process is gone may belong to a stranger's by now."""
    script = (
        "import os, time\n"
        "for keeps_log in (True, False):\n"
        "    if not os.fork():\n"
        "        keeps_log or os.close(2)\n"
        "        print(os.getpid(), flush=True)\n"
        "        time.sleep(600)\n"
    )
    log = plan.mark.log_path if marked else os.devnull
    words = [sys.executable, "-S", "-I", "-c", script]
    with Path(log).open("a") as opened:
        first = subprocess.Popen(words, start_new_session=True, stdout=subprocess.PIPE, stderr=opened)
    with first:
        assert first.stdout is not None
        members = {psutil.Process(int(first.stdout.readline())) for _ in range(2)}
        first.wait()
        first.stdout.close()
    try:
        mark = replace(plan.mark, pid=first.pid, pid_started_s=0.0)
        assert pids(mark) == ({member.pid for member in members} if marked else set())
    finally:
        for member in members:
            member.kill()


def test_what_is_older_than_the_server_is_not_the_servers(plan: LaunchPlan) -> None:
    with stranger(env={"AUTOTUNE_SERVER": plan.mark.token}) as pid:
        now = look(pid)
        assert now is not None
        assert pids(replace(plan.mark, pid=1, pid_started_s=now.started_s)) == {pid}
        assert pids(replace(plan.mark, pid=1, pid_started_s=now.started_s + 1)) == set()


def test_who_reads_the_log_is_not_the_server(plan: LaunchPlan) -> None:
    with stranger(log=plan.mark.log_path) as reader, stranger(log=plan.mark.log_path, mode="a") as writer:
        assert is_alive_pid(reader)
        assert pids(plan.mark) == {writer}


def test_a_token_that_only_begins_alike_is_another(plan: LaunchPlan) -> None:
    token = plan.mark.token
    with (
        stranger(env={"AUTOTUNE_SERVER": token + "0"}) as longer,
        stranger(env={"OTHER_AUTOTUNE_SERVER": token}) as other,
        stranger(env={"AUTOTUNE_SERVER": token}) as same,
    ):
        assert {longer, other} & pids(plan.mark) == set()
        assert pids(plan.mark) == {same}


def test_we_are_never_found(plan: LaunchPlan) -> None:
    with Path(plan.mark.log_path).open("ab"):
        assert os.getpid() not in pids(plan.mark)


def test_a_zombie_counts_as_gone(start: Start) -> None:
    server = start("gpu_oom", ready=False)
    until(lambda: server.exit_code == 1)
    first = look(server.mark.pid or 0)
    assert first is not None
    assert first.zombie
    assert not is_alive(first)
    assert pids(server.mark) == set()


def test_a_process_without_its_first_thread_still_lives(plan: LaunchPlan) -> None:
    script = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "ctypes.CDLL(None).syscall(60, 0)\n"  # exit(2), which ends one thread
    )
    with subprocess.Popen([sys.executable, "-c", script], start_new_session=True) as process:
        until(lambda: Path(f"/proc/{process.pid}/stat").read_text().split()[2] == "Z")
        now = look(process.pid)
        assert now is not None
        assert is_alive(now)
        assert pids(replace(plan.mark, pid=process.pid, pid_started_s=now.started_s)) == {process.pid}
        process.kill()


def test_another_boot(start: Start) -> None:
    mark = start().mark
    assert mark.boot_id == boot_id()
    assert pids(replace(mark, boot_id="b2c1")) == set()


def test_a_name_with_spaces_and_parentheses() -> None:
    rename = "open('/proc/self/comm', 'w').write(') S 1 1 (')\n"
    words = [sys.executable, "-S", "-I", "-c", rename + SLEEP]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        now = look(process.pid)
        assert now is not None
        assert (now.parent, now.session) == (os.getpid(), os.getsid(0))
        process.kill()


def is_alive_pid(pid: int) -> bool:
    now = look(pid)
    return now is not None and is_alive(now)
