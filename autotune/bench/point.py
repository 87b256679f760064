"""The closed loop of one point: streams that send one request after the other, and the window over them.

Phases: de-phased start, warm-up, window, cancel. Nothing is drained between warm-up and window, nor at the
end: a drained server is not in the state that is being measured. "N requests by total time" is not used,
since it counts the start-up burst and the last stragglers: 3 to 14 % too low in a simulated closed loop, by
an amount that depends on the configuration.
"""

import asyncio
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import aiohttp

from autotune.bench.client import Completion, Exchange, complete
from autotune.domain.measurement import RequestRecord, RequestState
from autotune.domain.workload import Workload

TICK_S = 0.05
"""How often conditions are looked at; the window's edges do not depend on it."""
_ENOUGH_COMPLETIONS = 30
_STRIKES = 3
"""A stream with so many failures in a row is down; the point is over when all are."""
_BACKOFF_S = 0.1
_MAX_BACKOFF_S = 1.0
_MIN_WARM_UP_LIMIT_S = 60.0
_WARM_UP_LIMIT_E2E = 20
_FIRST_E2E_LIMIT_S = 600.0
"""How long the warm-up may take while the time of a whole request is not known at all."""


def full_length_e2e_s(record: RequestRecord, output_tokens: int) -> float | None:
    """How long a finished request would have taken for `output_tokens`; None when that cannot be told."""
    if record.state is not RequestState.DONE or not record.output_tokens:
        return None
    ttft_s = record.chunk_s[0] - record.sent_s
    decode_s = record.chunk_s[-1] - record.chunk_s[0]
    if record.output_tokens == output_tokens:
        return ttft_s + decode_s
    if record.output_tokens == 1:
        return None
    return ttft_s + decode_s / (record.output_tokens - 1) * (output_tokens - 1)


@dataclass(slots=True, kw_only=True)
class ClosedLoop:
    """One point while it runs. `requests` has the endless requests of each stream; times count from `run`."""

    session: aiohttp.ClientSession
    url: str
    workload: Workload
    requests: tuple[Iterator[Completion], ...]
    expected_e2e_s: float | None
    clock: Callable[[], float]
    _start: float = field(init=False, default=0.0)
    _running: dict[int, Exchange] = field(init=False, default_factory=dict)
    _strikes: dict[int, int] = field(init=False, default_factory=dict)
    _records: list[RequestRecord] = field(init=False, default_factory=list)

    async def run(self) -> tuple[tuple[float, float], tuple[RequestRecord, ...]]:
        """The window and every request begun, by stream; requests still running at its end are cancelled.

        When the warm-up did not succeed the window is all the time that passed, and some requests failed.
        """
        self._start = self.clock()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._stream(n)) for n in range(len(self.requests))]
            try:
                window = await self._watch()
            finally:
                for task in tasks:
                    task.cancel()
        return window, tuple(sorted(self._records, key=lambda r: (r.stream, r.sequence)))

    async def _stream(self, number: int) -> None:
        for completion in self.requests[number]:
            body = completion.body()
            exchange = Exchange(completion=completion, sent_s=self._now())
            self._running[number] = exchange
            try:
                await complete(self.session, self.url, exchange, body, self._now)
            finally:
                self._records.append(exchange.record(self._now()))
            if exchange.error is None:
                self._strikes[number] = 0
                continue
            # A stall has already cost the whole idle time: it is not waited for again.
            strikes = self._strikes.get(number, 0) + (_STRIKES if exchange.stalled else 1)
            self._strikes[number] = strikes
            await asyncio.sleep(min(_MAX_BACKOFF_S, _BACKOFF_S * strikes))

    async def _watch(self) -> tuple[float, float]:
        """Wait through warm-up and window, and return the window."""
        alive = await self._until(lambda: self._is_warm() or self._now() >= self._warm_up_limit_s())
        begin_s = self._now()
        e2e_s = self._e2e_s()
        if not alive:
            return (0.0, begin_s)
        if e2e_s is None or not self._is_warm():
            self._fail_running(f"the warm-up was not over after {begin_s:.0f} s")
            return (0.0, begin_s)
        end_s = begin_s
        for multiple in (2, 3):
            longest_s = max(self.workload.min_window_s, multiple * e2e_s)
            end_s = begin_s + min(longest_s, self.workload.max_window_s)
            if not await self._until(partial(self._has_come, end_s)):
                return (begin_s, self._now())
            if self._completions_since(begin_s) >= _ENOUGH_COMPLETIONS:
                break
        if self._is_silent_since(begin_s):
            self._fail_running(f"the server sent no output for {end_s - begin_s:.0f} s")
        return (begin_s, end_s)

    async def _until(self, reached: Callable[[], bool]) -> bool:
        """Wait for it; False when all streams are down before that."""
        while not all(self._strikes.get(n, 0) >= _STRIKES for n in range(len(self.requests))):
            if reached():
                return True
            await asyncio.sleep(TICK_S)
        return False

    def _is_warm(self) -> bool:
        """Every stream has had output of a second request, and a whole request's time is over."""
        e2e_s = self._e2e_s()
        if e2e_s is None or self._now() < e2e_s:
            return False
        warm = {x.completion.stream for x in self._running.values() if x.completion.sequence and x.chunk_s}
        warm |= {r.stream for r in self._records if r.sequence and r.chunk_s}
        return len(warm) == len(self.requests)

    def _e2e_s(self) -> float | None:
        """The time of a whole request: the median of those finished so far, else what was expected."""
        lengths = (full_length_e2e_s(r, self.workload.output_tokens.high) for r in self._records)
        known = [e2e_s for e2e_s in lengths if e2e_s is not None]
        return statistics.median(known) if known else self.expected_e2e_s

    def _warm_up_limit_s(self) -> float:
        e2e_s = self._e2e_s()
        if e2e_s is None:
            return _FIRST_E2E_LIMIT_S
        return max(_MIN_WARM_UP_LIMIT_S, _WARM_UP_LIMIT_E2E * e2e_s)

    def _completions_since(self, begin_s: float) -> int:
        return sum(r.state is RequestState.DONE and r.ended_s >= begin_s for r in self._records)

    def _is_silent_since(self, begin_s: float) -> bool:
        last = [x.chunk_s[-1] for x in self._running.values() if x.chunk_s]
        return self._completions_since(begin_s) == 0 and max(last, default=0.0) < begin_s

    def _fail_running(self, why: str) -> None:
        """Fail the requests in flight. One that is already over has its record and is not touched."""
        for exchange in self._running.values():
            exchange.fail(why)

    def _has_come(self, time_s: float) -> bool:
        return self._now() >= time_s

    def _now(self) -> float:
        return self.clock() - self._start
