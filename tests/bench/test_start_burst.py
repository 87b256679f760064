"""What the start of a load does to its numbers, in a simulated engine whose steady state is known exactly.

An engine step works on every running request, and begins at most one waiting prompt. Its time is linear in
what it does, so the steady state of the closed loop follows from the work alone: over the life of a request
each of the streams has one such life.
"""

import itertools
import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import fmean

import pytest

from autotune.bench.exchange import Completion, Prompt
from autotune.bench.requests import stream_requests
from autotune.decide.estimators import estimate
from autotune.domain.measurement import RequestRecord, RequestState
from autotune.domain.workload import Lengths, Workload

STEP_S = 0.008
TOKEN_S = 0.000_02
PREFILL_S = 0.020
LOW, HIGH = 128, 192
SEEDS = range(40)


@dataclass(slots=True)
class Running:
    completion: Completion
    sent_s: float
    chunk_s: list[float] = field(default_factory=list)

    def record(self, now_s: float) -> RequestRecord:
        done = len(self.chunk_s) == self.completion.output_tokens
        return RequestRecord(
            stream=self.completion.stream,
            sequence=self.completion.sequence,
            prompt_index=self.completion.prompt_index,
            sent_s=self.sent_s,
            chunk_s=tuple(self.chunk_s),
            ended_s=self.chunk_s[-1] if done else now_s,
            wanted_output_tokens=self.completion.output_tokens,
            prompt_tokens=1024,
            output_tokens=self.completion.output_tokens if done else None,
            state=RequestState.DONE if done else RequestState.CUT,
            shortened=self.completion.shortened,
        )


class Engine:
    """A server with its clients, in virtual time: each sends its next request when it has its last answer."""

    def __init__(self, clients: list[Iterator[Completion]]) -> None:
        self.now_s = 0.0
        self.finished: list[Running] = []
        self.running: list[Running] = []
        self.waiting: deque[Running] = deque()
        self._clients = clients
        for number in range(len(clients)):
            self._send(number)

    def run(self, until: Callable[[], bool]) -> None:
        """Step until that, or until there is nothing left to do."""
        while (self.running or self.waiting) and not until():
            self._step()

    def records(self) -> list[RequestRecord]:
        return [r.record(self.now_s) for r in (*self.finished, *self.running, *self.waiting)]

    def _step(self) -> None:
        decoding = len(self.running)
        if self.waiting:
            self.running.append(self.waiting.popleft())
        prefills = len(self.running) - decoding
        self.now_s += STEP_S + TOKEN_S * decoding + PREFILL_S * prefills
        for request in self.running:
            request.chunk_s.append(self.now_s)
        over = [r for r in self.running if len(r.chunk_s) == r.completion.output_tokens]
        self.running = [r for r in self.running if len(r.chunk_s) < r.completion.output_tokens]
        self.finished += over
        for request in over:
            self._send(request.completion.stream)

    def _send(self, number: int) -> None:
        if (completion := next(self._clients[number], None)) is not None:
            self.waiting.append(Running(completion, self.now_s))


def steady_out_tok_s(streams: int, tokens: float) -> float:
    """Of a closed loop in which a request has `tokens` output tokens on average."""
    life_s = tokens * STEP_S + streams * ((tokens - 1) * TOKEN_S + PREFILL_S)
    return streams * tokens / life_s


def prompts(seed: int) -> tuple[Prompt, ...]:
    rng = random.Random(seed)  # noqa: S311 - a simulation
    return tuple(Prompt(ids_json="[]", tokens=1024, output_tokens=rng.randint(LOW, HIGH)) for _ in range(64))


def clients(streams: int, seed: int) -> list[Iterator[Completion]]:
    """As they are in a real point."""
    workload = Workload(
        prompt_tokens=Lengths.fixed(1024), output_tokens=Lengths(low=LOW, high=HIGH), prompts=64, seed=seed
    )
    known = prompts(seed)
    return [stream_requests("m", known, workload, streams, n, "s") for n in range(streams)]


def windowed(streams: int, seed: int) -> float:
    """Output tokens per second by a window of two requests after the warm-up, over the steady state."""
    engine = Engine(clients(streams, seed))
    e2e_s = (LOW + HIGH) / 2 * (STEP_S + TOKEN_S * streams)
    warm: set[int] = set()

    def is_warm() -> bool:
        warm.update(r.completion.stream for r in engine.running if r.completion.sequence)
        return len(warm) == streams and engine.now_s >= e2e_s

    engine.run(is_warm)
    begin_s = engine.now_s
    end_s = begin_s + 2 * e2e_s
    engine.run(lambda: engine.now_s >= end_s)
    point = estimate(engine.records(), (begin_s, end_s), streams)
    return point.out_tok_s / steady_out_tok_s(streams, fmean(p.output_tokens for p in prompts(seed)))


def by_total_time(streams: int, seed: int, requests_per_stream: int) -> float:
    """The same by "N requests / total time": all start at once, and it ends with the last straggler."""
    known = prompts(seed)
    order = iter(random.Random(seed).choices(range(64), k=requests_per_stream * streams))  # noqa: S311

    def pulls(stream: int) -> Iterator[Completion]:
        for sequence in itertools.count():
            if (index := next(order, None)) is None:
                return
            tokens = known[index].output_tokens
            yield Completion(
                model="m",
                prompt=known[index],
                output_tokens=tokens,
                salt="s",
                stream=stream,
                sequence=sequence,
            )

    engine = Engine([pulls(n) for n in range(streams)])
    engine.run(lambda: False)
    tokens = [len(r.chunk_s) for r in engine.finished]
    assert len(tokens) == requests_per_stream * streams
    return sum(tokens) / engine.now_s / steady_out_tok_s(streams, fmean(tokens))


@pytest.mark.parametrize("streams", [8, 64])
def test_a_window_of_a_running_load_has_no_bias(streams: int) -> None:
    ratios = [windowed(streams, seed) for seed in SEEDS]
    assert fmean(ratios) == pytest.approx(1, abs=0.01)
    assert all(ratio == pytest.approx(1, abs=0.03) for ratio in ratios)


@pytest.mark.parametrize(("streams", "requests_per_stream"), [(8, 1), (8, 3), (64, 1), (64, 3)])
def test_requests_by_total_time_is_too_low(streams: int, requests_per_stream: int) -> None:
    ratios = [by_total_time(streams, seed, requests_per_stream) for seed in SEEDS]
    assert fmean(ratios) < 0.97


def test_more_requests_make_that_smaller_and_not_zero() -> None:
    few, many = (fmean(by_total_time(64, seed, k) for seed in range(3)) for k in (3, 10))
    assert few < many < 0.99


def test_the_steady_state_is_what_a_long_run_comes_to() -> None:
    engine = Engine(clients(16, 0))
    engine.run(lambda: engine.now_s >= 10)
    begin_s = engine.now_s
    engine.run(lambda: engine.now_s >= 200)
    point = estimate(engine.records(), (begin_s, engine.now_s), 16)
    expected = steady_out_tok_s(16, fmean(p.output_tokens for p in prompts(0)))
    assert point.out_tok_s == pytest.approx(expected, rel=0.005)
