"""An open loop: requests leave at their moments, answered or not."""

import itertools
import statistics
from dataclasses import replace

import pytest
from sse_server import Script, SseServer

from autotune.bench import streams
from autotune.bench.load import LoadBench
from autotune.bench.requests import arrival_gaps_s
from autotune.domain.interrupt import Interrupt
from autotune.domain.workload import Lengths, Workload

pytestmark = pytest.mark.usefixtures("calm_client")
WORKLOAD = Workload(
    prompt_tokens=Lengths.fixed(12),
    output_tokens=Lengths.fixed(4),
    prompts=5,
    streams=(2,),
    min_window_s=1.5,
    max_window_s=1.5,
    rate_per_stream=20.0,
)


def test_requests_leave_at_their_moments(sse_server: SseServer, no_interrupt: Interrupt) -> None:
    sse_server.answer = lambda number: Script(ttft_s=0.3)
    found = LoadBench("m", WORKLOAD).measure(sse_server.url, 2, None, no_interrupt)
    assert found is not None
    assert (found.broken_off, found.point.failed) == (None, 0)
    assert found.window[0] >= 0.6  # as many are under way as will be
    assert found.point.done == pytest.approx(2 * 20 * 1.5, rel=0.5)
    for stream in range(2):
        sent = [r.sent_s for r in found.requests if r.stream == stream]
        due = itertools.accumulate(arrival_gaps_s(WORKLOAD, 2, stream))
        late = [sent_s - due_s for sent_s, due_s in zip(sent, due, strict=False)]
        assert min(late) >= -0.002
        assert statistics.median(late) < 0.05
        # Without waiting for answers: some leave before the one before them can have been answered.
        assert min(b - a for a, b in itertools.pairwise(sent)) < 0.3


def test_a_rate_the_server_cannot_keep_up_with(
    sse_server: SseServer, no_interrupt: Interrupt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "MAX_IN_FLIGHT", 8)
    monkeypatch.setattr("autotune.bench.point.MAX_IN_FLIGHT", 8)
    sse_server.answer = lambda number: Script(ttft_s=0.02)
    sse_server.max_running = 1
    workload = replace(WORKLOAD, rate_per_stream=100.0, min_window_s=60.0, max_window_s=60.0)
    found = LoadBench("m", workload).measure(sse_server.url, 2, None, no_interrupt)
    assert found is not None
    assert found.broken_off == (
        "the server cannot keep up with 100 requests per second from each stream: "
        "8 requests of one were unanswered"
    )
    assert found.point.failed >= 8
    assert found.broken_off in found.point.errors


def test_a_server_that_only_fails(sse_server: SseServer, no_interrupt: Interrupt) -> None:
    sse_server.answer = lambda number: Script(status=500)
    found = LoadBench("m", WORKLOAD).measure(sse_server.url, 2, None, no_interrupt)
    assert found is not None
    assert found.broken_off == "HTTP 500: made to fail"
