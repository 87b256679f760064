"""Looking at real processes from outside, by other means than `autotune.server` uses."""

import socket
import time
from collections.abc import Callable
from contextlib import closing, suppress

import psutil

from autotune.domain.interrupt import Interrupt
from autotune.domain.server import ServerMark
from autotune.server.session import LocalServer

Start = Callable[..., LocalServer]
"""Starts a server with a scenario of the fake; see the fixture `start`."""


def patient() -> Interrupt:
    return Interrupt(time.monotonic, float("inf"))


def tree_of(mark: ServerMark) -> set[psutil.Process]:
    """The first process and all below it, found by parentage alone."""
    first = psutil.Process(mark.pid)
    return {first, *first.children(recursive=True)}


def alive(processes: set[psutil.Process]) -> set[psutil.Process]:
    """Those that still run; a zombie does not."""
    left: set[psutil.Process] = set()
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                left.add(process)
    return left


def those_who_mention(text: str) -> set[psutil.Process]:
    """Living processes with `text` in their environment or in the path of an open file."""
    found: set[psutil.Process] = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            seen = [*process.environ().values(), *(file.path for file in process.open_files())]
            if process != psutil.Process() and any(text in s for s in seen):
                found.add(process)
    return alive(found)


def until(condition: Callable[[], object], limit_s: float = 20) -> None:
    """Poll until it holds; fail after `limit_s`."""
    deadline_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline_s, "it never came true"
        time.sleep(0.01)


def is_refused(port: int) -> bool:
    """Whether nobody accepts connections there."""
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
