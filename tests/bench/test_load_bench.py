"""The load bench against a server of known behaviour: what a point holds, and how every trouble ends."""

import inspect
import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from sse_server import Script, SseServer

from autotune.bench.load import LoadBench
from autotune.decide.estimators import estimate
from autotune.decide.failures.behaviour import is_silence
from autotune.domain.interrupt import Interrupt
from autotune.domain.measurement import MeasuredPoint, RequestRecord, RequestState
from autotune.domain.trial import Interruption
from autotune.domain.workload import Lengths, Workload
from autotune.tune.ports import Bench

pytestmark = pytest.mark.usefixtures("calm_client")
WORKLOAD = Workload(
    prompt_tokens=Lengths.fixed(12),
    output_tokens=Lengths.fixed(8),
    prompts=5,
    streams=(1, 4),
    min_window_s=0.3,
    max_window_s=2.0,
)
LONG = replace(WORKLOAD, min_window_s=60.0, max_window_s=60.0)
"""A window that a test waits for only when the point does not end early, as it should."""
STEADY = Script(ttft_s=0.01, tpot_s=0.004)


@contextmanager
def once(condition: Callable[[], bool], action: Callable[[], object]) -> Iterator[None]:
    """Do `action` from a thread as soon as `condition` holds."""

    def watch() -> None:
        deadline = time.monotonic() + 30
        while not condition() and time.monotonic() < deadline:
            stopped.wait(0.002)
        if condition():
            action()

    stopped = threading.Event()
    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        thread.join(30)


def measure(
    server: SseServer, interrupt: Interrupt, streams: int = 4, **options: float
) -> MeasuredPoint | None:
    return LoadBench("m", WORKLOAD, **options).measure(server.url, streams, None, interrupt)


def by_stream(measured: MeasuredPoint) -> dict[int, list[RequestRecord]]:
    streams: dict[int, list[RequestRecord]] = {}
    for record in measured.requests:
        streams.setdefault(record.stream, []).append(record)
    return streams


@pytest.mark.parametrize("name", ["smoke", "warm_up", "measure"])
def test_it_is_the_bench_that_the_loop_asks_for(name: str) -> None:
    assert inspect.signature(getattr(LoadBench, name)) == inspect.signature(getattr(Bench, name))


# Smoke request


def test_smoke_of_a_server_that_works(sse_server: SseServer, no_interrupt: Interrupt) -> None:
    assert LoadBench("m", WORKLOAD).smoke(sse_server.url, 20.0, no_interrupt) is None
    assert [r["max_tokens"] for r in sse_server.requests] == [8]


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (Script(status=500), "HTTP 500: made to fail"),
        (Script(error_after=2), "error in the stream: EngineCore died"),
        (Script(abort_after=2), "the connection broke inside the answer"),
        (Script(usage=False), "the stream carried no usage"),
        (Script(hang_after=2), "no completion came back within 0.4 s"),
    ],
)
def test_smoke_of_one_that_does_not(
    sse_server: SseServer, no_interrupt: Interrupt, script: Script, error: str
) -> None:
    sse_server.answer = lambda number: script
    timeout_s = 0.4 if script.hang_after else 20.0
    assert LoadBench("m", WORKLOAD).smoke(sse_server.url, timeout_s, no_interrupt) == error


def test_smoke_when_the_server_dies_under_it(sse_server: SseServer, no_interrupt: Interrupt) -> None:
    sse_server.answer = lambda number: Script(hang_after=2)
    with once(lambda: bool(sse_server.sent and len(sse_server.sent[0]) == 2), sse_server.die):
        error = LoadBench("m", WORKLOAD).smoke(sse_server.url, 20.0, no_interrupt)
    assert error == "the connection broke inside the answer"


def test_smoke_and_point_of_a_server_without_tokenize(sse_server: SseServer, no_interrupt: Interrupt) -> None:
    sse_server.tokenize_status = 404
    bench = LoadBench("m", WORKLOAD)
    error = bench.smoke(sse_server.url, 20.0, no_interrupt)
    assert error == "the prompts need POST /tokenize, which gave HTTP 404: Not Found"
    measured = bench.measure(sse_server.url, 4, None, no_interrupt)
    assert measured is not None
    assert (measured.point.done, measured.point.failed, measured.point.errors) == (0, 1, {error: 1})
    assert measured.broken_off == error
    assert bench.warm_up(sse_server.url, no_interrupt) == error
    assert sse_server.requests == []


def test_smoke_can_be_interrupted(sse_server: SseServer) -> None:
    sse_server.answer = lambda number: Script(hang_after=0)
    interrupt = Interrupt(time.monotonic, time.monotonic() + 3600)
    with once(lambda: bool(sse_server.requests), lambda: interrupt.request(Interruption.USER)):
        error = LoadBench("m", WORKLOAD).smoke(sse_server.url, 60.0, interrupt)
    assert error == "interrupted before the first completion had come back"


# A point


@pytest.mark.parametrize("streams", [1, 4])
def test_a_point(sse_server: SseServer, no_interrupt: Interrupt, streams: int) -> None:
    sse_server.answer = lambda number: STEADY
    measured = measure(sse_server, no_interrupt, streams)
    assert measured is not None
    begin, end = measured.window
    assert WORKLOAD.min_window_s <= end - begin <= WORKLOAD.max_window_s + 1e-9
    whole = estimate(measured.requests, measured.window, streams)
    noted = {"client": measured.point.client, "flags": (), "discarded": ()}
    assert replace(measured.point, **noted) == replace(whole, **noted)
    assert measured.point.client is not None
    assert measured.broken_off is None
    assert measured.point.done > 0
    assert measured.point.failed == 0
    # A request can be cut off before the server has read it.
    assert 0 <= len(measured.requests) - len(sse_server.requests) <= streams
    assert sorted(by_stream(measured)) == list(range(streams))
    for records in by_stream(measured).values():
        assert [r.sequence for r in records] == list(range(len(records)))
        assert {r.state for r in records[:-1]} == {RequestState.DONE}
        assert all(a.ended_s <= b.sent_s for a, b in itertools.pairwise(records))
        assert all(r.wanted_output_tokens == 8 and r.prompt_tokens == 12 for r in records[1:])
        assert all(len(r.chunk_s) == r.output_tokens for r in records[:-1])
        assert 1 <= records[0].wanted_output_tokens <= 8
        assert records[1].chunk_s[0] <= begin
    # Nothing is drained: whatever was under way when the window ended is cut off there.
    assert all(r.ended_s >= end for records in by_stream(measured).values() for r in records[-1:])


def test_the_window_holds_what_the_server_sent_in_it(sse_server: SseServer, no_interrupt: Interrupt) -> None:
    sse_server.answer = lambda number: Script(ttft_s=0.01, tpot_s=0.004, tokens_per_chunk=4)
    measured = measure(sse_server, no_interrupt)
    assert measured is not None
    sent = sum(len(times) for times in sse_server.sent)
    seen = sum(len(r.chunk_s) for r in measured.requests)
    assert sent - 4 <= seen <= sent  # at most one chunk a stream was on its way at the end
    begin, end = measured.window
    in_window = sum(begin <= at < end for r in measured.requests for at in r.chunk_s)
    assert measured.point.out_tok_s == pytest.approx(in_window * 4 / (end - begin), rel=0.01)


def test_the_streams_begin_out_of_step(sse_server: SseServer, no_interrupt: Interrupt) -> None:
    workload = Workload(
        prompt_tokens=Lengths.fixed(4), output_tokens=Lengths.fixed(100), min_window_s=0.1, max_window_s=0.1
    )
    sse_server.answer = lambda number: Script(tokens_per_chunk=100)
    measured = LoadBench("m", workload).measure(sse_server.url, 16, None, no_interrupt)
    assert measured is not None
    firsts = [records[0].wanted_output_tokens for records in by_stream(measured).values()]
    assert len(set(firsts)) > 8
    assert min(firsts) >= 10
    assert max(firsts) <= 100


def test_every_trial_sends_the_same_requests_under_other_salts(
    sse_server: SseServer, no_interrupt: Interrupt
) -> None:
    sse_server.answer = lambda number: STEADY
    bench = LoadBench("m", WORKLOAD)
    runs = []
    for _ in range(2):
        before = len(sse_server.requests)
        measured = bench.measure(sse_server.url, 4, None, no_interrupt)
        assert measured is not None
        bodies = sse_server.requests[before:]
        salts = {str(body["cache_salt"]) for body in bodies}
        assert len(salts) == len(bodies)
        plan = {(r.stream, r.sequence): (r.prompt_index, r.wanted_output_tokens) for r in measured.requests}
        ids = {str(b["cache_salt"]).split("-", 1)[1]: json.dumps(b["prompt"]) for b in bodies}
        runs.append((salts, plan, ids))
    (salts_a, plan_a, ids_a), (salts_b, plan_b, ids_b) = runs
    assert not salts_a & salts_b
    assert len(plan_a.keys() & plan_b.keys()) >= 8
    assert all(plan_a[key] == plan_b[key] for key in plan_a.keys() & plan_b.keys())
    assert all(ids_a[key] == ids_b[key] for key in ids_a.keys() & ids_b.keys())
    assert len(set(ids_a.values())) == WORKLOAD.prompts
    assert len(sse_server.tokenized) == WORKLOAD.prompts


# Trouble


def test_a_point_can_be_interrupted(sse_server: SseServer) -> None:
    sse_server.answer = lambda number: STEADY
    interrupt = Interrupt(time.monotonic, time.monotonic() + 3600)
    with once(lambda: len(sse_server.requests) > 6, lambda: interrupt.request(Interruption.USER)):
        assert measure(sse_server, interrupt) is None


def test_a_point_ends_at_the_deadline_of_the_budget(sse_server: SseServer) -> None:
    sse_server.answer = lambda number: Script(hang_after=0)
    assert measure(sse_server, Interrupt(time.monotonic, time.monotonic() + 0.2)) is None


def test_a_signal_handler_can_interrupt_a_point(sse_server: SseServer) -> None:
    sse_server.answer = lambda number: Script(hang_after=0)
    interrupt = Interrupt(time.monotonic, time.monotonic() + 3600)
    before = signal.signal(signal.SIGINT, lambda *_: interrupt.request(Interruption.USER))
    try:
        with once(lambda: len(sse_server.requests) == 4, lambda: os.kill(os.getpid(), signal.SIGINT)):
            assert measure(sse_server, interrupt) is None
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_server_that_cannot_be_reached(sse_server: SseServer, no_interrupt: Interrupt) -> None:
    bench = LoadBench("m", WORKLOAD)
    assert bench.smoke(sse_server.url, 20.0, no_interrupt) is None
    sse_server.die()
    measured = bench.measure(sse_server.url, 4, 0.1, no_interrupt)
    assert measured is not None
    assert (measured.point.done, measured.point.errors.keys()) == (0, {"cannot connect: Connection refused"})
    assert 12 <= measured.point.failed <= 40
    assert measured.window[0] == 0.0
    assert measured.broken_off == "cannot connect: Connection refused"


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (Script(status=500), "HTTP 500: made to fail"),
        (Script(usage=False), "the stream carried no usage"),
        (Script(error_after=0), "error in the stream: EngineCore died"),
    ],
)
def test_a_server_that_only_fails(
    sse_server: SseServer, no_interrupt: Interrupt, script: Script, error: str
) -> None:
    sse_server.answer = lambda number: script
    measured = measure(sse_server, no_interrupt)
    assert measured is not None
    assert (measured.point.done, measured.point.errors.keys()) == (0, {error})
    assert measured.point.out_tok_s == 0.0
    assert 12 <= measured.point.failed <= 40
    assert measured.broken_off == error


def test_a_server_that_hangs(sse_server: SseServer, no_interrupt: Interrupt) -> None:
    sse_server.answer = lambda number: STEADY if number < 6 else Script(hang_after=1)
    measured = LoadBench("m", LONG, idle_s=0.2).measure(sse_server.url, 4, None, no_interrupt)
    assert measured is not None
    assert measured.broken_off == "the server sent nothing for 0.2 s"
    assert is_silence(measured.broken_off)
    assert measured.point.errors.keys() == {measured.broken_off}
    assert 4 <= measured.point.failed <= 8  # no stream waits for a stall three times


def test_a_server_that_dies_under_load(sse_server: SseServer, no_interrupt: Interrupt) -> None:
    sse_server.answer = lambda number: STEADY
    with once(lambda: len(sse_server.requests) > 12, sse_server.die):
        measured = LoadBench("m", LONG).measure(sse_server.url, 4, None, no_interrupt)
    assert measured is not None
    assert 12 <= measured.point.failed <= 40
    assert "cannot connect: Connection refused" in measured.point.errors


def test_some_failures_are_counted_and_the_rest_is_measured(
    sse_server: SseServer, no_interrupt: Interrupt
) -> None:
    sse_server.answer = lambda number: Script(status=500) if number % 5 == 4 else STEADY
    measured = measure(sse_server, no_interrupt)
    assert measured is not None
    assert measured.point.errors == {"HTTP 500: made to fail": measured.point.failed}
    assert measured.point.failed >= 2
    assert measured.point.done > measured.point.failed
