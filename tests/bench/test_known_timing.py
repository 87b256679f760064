"""Points against a server that keeps its own stamps of all it sends: client and server must agree.

Both watch the same events, so a busy machine shifts them for both: how fast it is does not matter.
"""

import math
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import msgspec
import pytest

from autotune.bench.load import LoadBench
from autotune.domain.interrupt import Interrupt
from autotune.domain.measurement import MeasuredPoint, RequestState
from autotune.domain.workload import Lengths, Workload

SERVER = Path(__file__).parents[2] / "benchmarks" / "timing_server.py"


class Sent(msgspec.Struct):
    """What the server says of one request."""

    salt: str
    received_s: float
    tokens: int
    events: int
    first_s: float
    last_s: float


class Stamps(msgspec.Struct):
    """What it says of all: the time of each tick, with the tokens sent in it, and the requests."""

    ticks: list[tuple[float, int]]
    requests: list[Sent]

    def sent(self, stream: int, sequence: int) -> Sent:
        (found,) = (r for r in self.requests if r.salt.endswith(f"-{stream}-{sequence}"))
        return found


@contextmanager
def serving(tick_ms: int, tokens_per_event: int = 1) -> Iterator[str]:
    options = ("--tick-ms", str(tick_ms), "--tokens-per-event", str(tokens_per_event))
    with subprocess.Popen(
        [sys.executable, str(SERVER), *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        yield server.stdout.readline().strip()
        server.stdin.close()


def measure(
    streams: int, tick_ms: int, tokens: int, window_s: float, tokens_per_event: int = 1
) -> tuple[MeasuredPoint, Stamps]:
    workload = Workload(
        prompt_tokens=Lengths.fixed(16),
        output_tokens=Lengths.fixed(tokens),
        streams=(streams,),
        prompts=4,
        min_window_s=window_s,
        max_window_s=window_s,
    )
    never = Interrupt(time.monotonic, math.inf)
    with serving(tick_ms, tokens_per_event) as url:
        bench = LoadBench("known-timing", workload, processes=1)
        assert bench.smoke(url, 30.0, never) is None
        httpx.get(f"{url}/stamps", trust_env=False)
        measured = bench.measure(url, streams, None, never)
        stamps = msgspec.json.decode(httpx.get(f"{url}/stamps", trust_env=False).content, type=Stamps)
    assert measured is not None
    assert measured.point.failed == 0
    return measured, stamps


def last_measurement(measured: MeasuredPoint, stamps: Stamps) -> Stamps:
    """The stamps without those of measurements that were thrown away, which had other salts."""
    salt = stamps.requests[-1].salt.split("-")[0]
    return Stamps(ticks=stamps.ticks, requests=[r for r in stamps.requests if r.salt.startswith(salt)])


def true_out_tok_s(measured: MeasuredPoint, stamps: Stamps) -> float:
    """What the server sent in the window, from one tick to another so that no tick is cut in two."""
    offset_s = min(stamps.sent(r.stream, r.sequence).received_s - r.sent_s for r in measured.requests)
    begin, end = (edge + offset_s for edge in measured.window)
    ticks = [tick for tick in stamps.ticks if begin <= tick[0] < end]
    return sum(tokens for _, tokens in ticks[:-1]) / (ticks[-1][0] - ticks[0][0])


@pytest.mark.parametrize(
    ("streams", "tick_ms", "tokens", "window_s", "tokens_per_event"),
    [
        (1, 4, 100, 2.0, 1),
        (16, 4, 100, 2.0, 1),
        (16, 4, 400, 2.0, 4),
        (16, 4, 101, 2.0, 3),
        (64, 6, 100, 2.4, 1),
        (256, 20, 60, 4.0, 1),
    ],
)
def test_client_and_server_agree(
    streams: int, tick_ms: int, tokens: int, window_s: float, tokens_per_event: int
) -> None:
    measured, stamps = measure(streams, tick_ms, tokens, window_s, tokens_per_event)
    stamps = last_measurement(measured, stamps)
    point = measured.point

    assert point.out_tok_s == pytest.approx(true_out_tok_s(measured, stamps), rel=0.01)

    done = [r for r in measured.requests if r.state is RequestState.DONE]
    begin, end = measured.window
    counted = [r for r in done if begin <= r.chunk_s[-1] < end]
    truth = [stamps.sent(r.stream, r.sequence) for r in counted]
    true_tpot_s = statistics.median((s.last_s - s.first_s) / (s.tokens - 1) for s in truth if s.tokens > 1)
    assert point.tpot_s is not None
    assert point.tpot_s.p50 == pytest.approx(true_tpot_s, rel=0.01)
    assert point.done == len(counted) > 0

    for record in done:
        sent = stamps.sent(record.stream, record.sequence)
        assert record.output_tokens == sent.tokens == record.wanted_output_tokens
        assert len(record.chunk_s) == sent.events == -(-sent.tokens // tokens_per_event)
