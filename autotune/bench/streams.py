"""Sends what a point is about, and knows at any moment how its streams stand.

In a closed loop each stream sends one request after the other. In an open loop it sends them at given moments
whether or not earlier ones are answered.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager

import aiohttp

from autotune.bench.client import complete
from autotune.bench.exchange import Completion, Exchange
from autotune.bench.guard import Guard
from autotune.bench.plan import MAX_IN_FLIGHT, Finished, Plan, Status, requests_of
from autotune.bench.requests import arrival_gaps_s
from autotune.domain.measurement import ClientLoad, RequestRecord, RequestState

_STRIKES = 3
"""A stream with so many failures in a row is down; the point is over when all are."""
_BACKOFF_S = 0.1
_MAX_BACKOFF_S = 1.0


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


class StreamGroup:
    """The streams `numbers` of `plan`, in the running event loop."""

    def __init__(
        self,
        plan: Plan,
        numbers: Sequence[int],
        session: aiohttp.ClientSession,
        clock: Callable[[], float],
    ) -> None:
        self._plan = plan
        self._numbers = numbers
        self._session = session
        self._clock = clock
        self._usual_tokens = plan.workload.output_tokens.at(0.5)
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: dict[tuple[int, int], Exchange] = {}
        self._records: list[RequestRecord] = []
        self._finished: list[Finished] = []
        self._strikes = dict.fromkeys(numbers, 0)
        self._warm: set[int] = set()
        self._overrun = False
        self._guard: Guard | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator["StreamGroup"]:
        """Send from here to the end of the block; nothing of it is left then."""
        stream = self._closed if self._plan.workload.rate_per_stream is None else self._open
        async with asyncio.TaskGroup() as tasks:
            for number in self._numbers:
                self._start(tasks, stream(number, tasks))
            try:
                yield self
            finally:
                self._cancel()
                if self._guard is not None:
                    self._guard.stop()

    async def status(self) -> Status:
        """How the streams stand now."""
        finished, self._finished = tuple(self._finished), []
        self._warm |= {stream for (stream, sequence), x in self._running.items() if sequence and x.chunk_s}
        down = {number for number, strikes in self._strikes.items() if strikes >= _STRIKES}
        signs = [x.chunk_s[-1] if x.chunk_s else x.sent_s for x in self._running.values()]
        return Status(
            ready=len(self._warm | down),
            down=len(down),
            overrun=self._overrun,
            quiet_since_s=min(signs, default=None),
            finished=finished,
        )

    async def begin_window(self) -> None:
        """Begin to watch what the load costs this process."""
        self._guard = Guard()
        self._guard.start()

    async def end_window(self) -> ClientLoad:
        """What it has cost since. Raises RuntimeError when no window was begun."""
        if self._guard is None:
            raise RuntimeError("no window was begun")
        guard, self._guard = self._guard, None
        return guard.stop()

    async def records(self) -> tuple[RequestRecord, ...]:
        """Every request begun so far, those still running as cut off now."""
        now_s = self._now()
        return (*self._records, *(exchange.record(now_s) for exchange in self._running.values()))

    async def stop(self) -> tuple[RequestRecord, ...]:
        """Cancel what is running; every request begun."""
        self._cancel()
        while self._tasks:
            await asyncio.wait(self._tasks)
        return tuple(self._records)

    def _start(self, tasks: asyncio.TaskGroup, work: Coroutine[object, object, None]) -> "asyncio.Task[None]":
        task = tasks.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _closed(self, number: int, _: asyncio.TaskGroup) -> None:
        for completion in requests_of(self._plan, number):
            await self._exchange(completion)
            if strikes := self._strikes[number]:
                await asyncio.sleep(min(_MAX_BACKOFF_S, _BACKOFF_S * strikes))

    async def _open(self, number: int, tasks: asyncio.TaskGroup) -> None:
        gaps_s = arrival_gaps_s(self._plan.workload, self._plan.streams, number)
        unanswered: set[asyncio.Task[None]] = set()
        due_s = self._now()
        for completion, gap_s in zip(requests_of(self._plan, number), gaps_s, strict=False):
            due_s += gap_s
            await asyncio.sleep(max(0.0, due_s - self._now()))
            if len(unanswered) >= MAX_IN_FLIGHT:
                self._overrun = True
                return
            task = self._start(tasks, self._exchange(completion))
            unanswered.add(task)
            task.add_done_callback(unanswered.discard)

    async def _exchange(self, completion: Completion) -> None:
        """Send one request and keep what came of it."""
        body = completion.body()
        exchange = Exchange(completion=completion, sent_s=self._now())
        key = (completion.stream, completion.sequence)
        self._running[key] = exchange
        try:
            await complete(self._session, self._plan.url, exchange, body, self._now)
        finally:
            del self._running[key]
            self._keep(exchange.record(self._now()))
        # A stall has already cost the whole idle time: it is not waited for again.
        strikes = self._strikes[completion.stream] + (_STRIKES if exchange.stalled else 1)
        self._strikes[completion.stream] = strikes if exchange.error else 0

    def _keep(self, record: RequestRecord) -> None:
        self._records.append(record)
        if record.sequence and record.chunk_s:
            self._warm.add(record.stream)
        if record.state is RequestState.DONE:
            self._finished.append(
                Finished(
                    last_s=record.chunk_s[-1],
                    ttft_s=record.chunk_s[0] - record.sent_s,
                    e2e_s=full_length_e2e_s(record, self._usual_tokens),
                )
            )

    def _now(self) -> float:
        return self._clock() - self._plan.began_s
