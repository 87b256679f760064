"""The load spread over several processes: the same records, and no process is left behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import psutil
import pytest
from sse_server import Script, SseServer

from autotune.bench import point, shards
from autotune.bench.load import LoadBench
from autotune.domain.interrupt import Interrupt
from autotune.domain.measurement import RequestState
from autotune.domain.trial import Interruption
from autotune.domain.workload import Lengths, Workload
from autotune.errors import HarnessError

pytestmark = pytest.mark.usefixtures("calm_client")
WORKLOAD = Workload(
    prompt_tokens=Lengths.fixed(12),
    output_tokens=Lengths.fixed(8),
    prompts=5,
    streams=(5,),
    min_window_s=0.5,
    max_window_s=0.5,
)
LONG = replace(WORKLOAD, min_window_s=60.0, max_window_s=60.0)
STEADY = Script(ttft_s=0.01, tpot_s=0.004)


def workers(of: int | None = None) -> list[psutil.Process]:
    """Load processes that are alive and were started by process `of`."""
    found = []
    for process in psutil.Process(of).children():
        try:
            if "autotune.bench.shards" in process.cmdline():
                found.append(process)
        except psutil.Error:
            continue
    return found


def wait_for(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    return condition()


def in_thread(condition: Callable[[], bool], action: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=lambda: wait_for(condition) and action())
    thread.start()
    return thread


@pytest.mark.parametrize("processes", [1, 2])
def test_any_number_of_processes_gives_the_same_kind_of_records(
    sse_server: SseServer, no_interrupt: Interrupt, processes: int
) -> None:
    sse_server.answer = lambda number: STEADY
    bench = LoadBench("m", WORKLOAD, processes=processes)
    found = bench.measure(sse_server.url, 5, None, no_interrupt)
    assert found is not None
    assert found.broken_off is None
    assert found.point.failed == 0
    assert found.point.client is not None
    assert found.point.client.processes == processes
    assert workers() == []
    keys = [(r.stream, r.sequence) for r in found.requests]
    assert sorted(keys) == keys
    assert len(set(keys)) == len(keys)
    assert {r.stream for r in found.requests} == set(range(5))
    # Each request reached the server once, but for those cut off before it had read them.
    sent = Counter(str(body["cache_salt"]).split("-", 1)[1] for body in sse_server.requests)
    assert set(sent.values()) == {1}
    assert 0 <= len(keys) - len(sent) <= 5
    whole = [r for r in found.requests if r.state is RequestState.DONE]
    assert all(r.output_tokens == len(r.chunk_s) == r.wanted_output_tokens for r in whole)
    assert found.point.done > 10
    # One clock: every stream was at work in the same window.
    begin, end = found.window
    assert {r.stream for r in found.requests for at in r.chunk_s if begin <= at < end} == set(range(5))


def test_there_are_never_more_processes_than_streams(sse_server: SseServer, no_interrupt: Interrupt) -> None:
    sse_server.answer = lambda number: STEADY
    found = LoadBench("m", WORKLOAD, processes=3).measure(sse_server.url, 1, None, no_interrupt)
    assert found is not None
    assert found.point.client is not None
    assert found.point.client.processes == 1


def test_none_is_left_when_a_point_is_interrupted(sse_server: SseServer) -> None:
    sse_server.answer = lambda number: STEADY
    interrupt = Interrupt(time.monotonic, time.monotonic() + 3600)
    thread = in_thread(lambda: len(sse_server.requests) > 10, lambda: interrupt.request(Interruption.USER))
    assert LoadBench("m", LONG, processes=2).measure(sse_server.url, 5, None, interrupt) is None
    thread.join()
    assert len(sse_server.requests) > 10
    assert workers() == []


def test_none_is_left_when_something_breaks(
    sse_server: SseServer, no_interrupt: Interrupt, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(Exception):
        pass

    async def window_end(*_: object) -> None:
        raise Broken

    monkeypatch.setattr(point.Watch, "_window_end_s", window_end)
    sse_server.answer = lambda number: STEADY
    with pytest.raises(Broken):
        LoadBench("m", WORKLOAD, processes=2).measure(sse_server.url, 5, None, no_interrupt)
    assert workers() == []


def test_one_that_is_killed_breaks_the_point_off(sse_server: SseServer, no_interrupt: Interrupt) -> None:
    sse_server.answer = lambda number: STEADY

    def kill_one() -> None:
        workers()[0].kill()

    thread = in_thread(lambda: len(sse_server.requests) > 10, kill_one)
    found = LoadBench("m", LONG, processes=2).measure(sse_server.url, 5, None, no_interrupt)
    thread.join()
    assert found is not None
    assert found.broken_off == "a process of the load generator was ended by SIGKILL"
    assert workers() == []


def test_one_that_breaks_is_our_fault(
    sse_server: SseServer, no_interrupt: Interrupt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "_framed", lambda _: (3).to_bytes(4, "big") + b"???")
    with pytest.raises(HarnessError, match="ended by itself: msgspec"):
        LoadBench("m", WORKLOAD, processes=2).measure(sse_server.url, 5, None, no_interrupt)
    assert workers() == []


def test_they_end_when_autotune_is_killed(sse_server: SseServer) -> None:
    """Not even then is anybody left who puts load on the server."""
    sse_server.answer = lambda number: STEADY
    program = (
        "import time\n"
        "from autotune.bench.load import LoadBench\n"
        "from autotune.domain.interrupt import Interrupt\n"
        "from autotune.domain.workload import Lengths, Workload\n"
        "workload = Workload(prompt_tokens=Lengths.fixed(12), output_tokens=Lengths.fixed(8), prompts=5,\n"
        "                    min_window_s=60.0, max_window_s=60.0)\n"
        "never = Interrupt(time.monotonic, time.monotonic() + 60)\n"
        f"LoadBench('m', workload, processes=2).measure('{sse_server.url}', 5, None, never)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program])
    try:
        assert wait_for(lambda: len(sse_server.requests) > 10)
        found = workers(process.pid)
        assert len(found) == 2
        os.kill(process.pid, signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    assert wait_for(lambda: not any(worker.is_running() for worker in found))
