"""The load bench: smoke request and points, as plain blocking calls around one event loop each."""

import asyncio
import gc
import math
import secrets
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TypeVar

import aiohttp
import uvloop

from autotune.bench.client import Completion, Exchange, Prompt, complete, open_session
from autotune.bench.point import TICK_S, ClosedLoop
from autotune.bench.prompts import NoPrompts, tokenize_prompts
from autotune.bench.requests import stream_requests
from autotune.decide.estimators import estimate
from autotune.domain.interrupt import Interrupt
from autotune.domain.measurement import MeasuredPoint, RequestRecord, RequestState
from autotune.domain.workload import Workload

_T = TypeVar("_T")
_SMOKE_TOKENS = 16
"""Enough for several decoding steps, so that a draft model is asked and its proposals are checked."""
_IDLE_E2E = 10


class LoadBench:
    """Puts `workload` on servers of `model`. The prompts are made once, with the first server that can.

    `clock` is monotonic seconds. A request has failed when the server sends nothing for `idle_s` seconds, or
    for ten times as long as a whole request should take where that is more.
    """

    def __init__(
        self,
        model: str,
        workload: Workload,
        *,
        clock: Callable[[], float] = time.perf_counter,
        idle_s: float = 60.0,
    ) -> None:
        self._model = model
        self._workload = workload
        self._clock = clock
        self._idle_s = idle_s
        self._prompts: tuple[Prompt, ...] | None = None

    def smoke(self, url: str, timeout_s: float, interrupt: Interrupt) -> str | None:
        """Ask for one real completion; None when it came back whole, else what was wrong with it."""
        answer = _run(self._smoke(url), interrupt, timeout_s)
        match answer:
            case _Stopped.INTERRUPTED:
                return "interrupted before the first completion had come back"
            case _Stopped.TIMED_OUT:
                return f"no completion came back within {timeout_s:g} s"
        return answer

    def measure(
        self, url: str, streams: int, expected_e2e_s: float | None, interrupt: Interrupt
    ) -> MeasuredPoint | None:
        """Measure one point; None when interrupted.

        Failed requests are in it with their reasons. It ends early when every stream only fails, and when the
        warm-up takes far longer than requests do; then the window is all the time that passed.
        """
        with _short_collections():
            outcome = _run(self._measure(url, streams, expected_e2e_s), interrupt, math.inf)
        return outcome if isinstance(outcome, MeasuredPoint) else None

    async def _smoke(self, url: str) -> str | None:
        async with open_session(idle_s=None) as session:
            prompts = await self._ready_prompts(session, url)
            if isinstance(prompts, NoPrompts):
                return prompts.why
            completion = Completion(
                model=self._model,
                prompt=prompts[0],
                output_tokens=min(_SMOKE_TOKENS, prompts[0].output_tokens),
                salt=secrets.token_hex(8),
            )
            exchange = Exchange(completion=completion, sent_s=self._clock())
            await complete(session, url, exchange, completion.body(), self._clock)
        return exchange.error

    async def _measure(self, url: str, streams: int, expected_e2e_s: float | None) -> MeasuredPoint:
        started = self._clock()
        async with open_session(max(self._idle_s, _IDLE_E2E * (expected_e2e_s or 0.0))) as session:
            prompts = await self._ready_prompts(session, url)
            if isinstance(prompts, NoPrompts):
                window = (0.0, self._clock() - started)
                records: tuple[RequestRecord, ...] = (self._unsent(prompts.why, window[1]),)
            else:
                salt = secrets.token_hex(8)
                loop = ClosedLoop(
                    session=session,
                    url=url,
                    workload=self._workload,
                    requests=tuple(
                        stream_requests(self._model, prompts, self._workload, streams, n, salt)
                        for n in range(streams)
                    ),
                    expected_e2e_s=expected_e2e_s,
                    clock=self._clock,
                )
                window, records = await loop.run()
        return MeasuredPoint(point=estimate(records, window, streams), window=window, requests=records)

    async def _ready_prompts(
        self, session: aiohttp.ClientSession, url: str
    ) -> tuple[Prompt, ...] | NoPrompts:
        if self._prompts is None:
            prompts = await tokenize_prompts(session, url, self._model, self._workload)
            if isinstance(prompts, NoPrompts):
                return prompts
            self._prompts = prompts
        return self._prompts

    def _unsent(self, why: str, ended_s: float) -> RequestRecord:
        """The record of a request for which there was no prompt."""
        return RequestRecord(
            stream=0,
            sequence=0,
            prompt_index=0,
            sent_s=0.0,
            chunk_s=(),
            ended_s=ended_s,
            wanted_output_tokens=self._workload.output_tokens.high,
            prompt_tokens=None,
            output_tokens=None,
            state=RequestState.FAILED,
            error=why,
        )


class _Stopped(Enum):
    """Why work was cancelled before it was done."""

    INTERRUPTED = "interrupted"
    TIMED_OUT = "timed out"


def _run(work: Coroutine[object, object, _T], interrupt: Interrupt, limit_s: float) -> _T | _Stopped:
    """Do `work` on an event loop of its own, for at most `limit_s` seconds and until `interrupt`."""
    return uvloop.run(_watched(work, interrupt, limit_s))


async def _watched(
    work: Coroutine[object, object, _T], interrupt: Interrupt, limit_s: float
) -> _T | _Stopped:
    loop = asyncio.get_running_loop()
    end = loop.time() + limit_s
    task = asyncio.create_task(work)
    while not task.done():
        if interrupt.reason is not None:
            return await _cancel(task, _Stopped.INTERRUPTED)
        if loop.time() >= end:
            return await _cancel(task, _Stopped.TIMED_OUT)
        await asyncio.wait({task}, timeout=TICK_S)
    return task.result()


async def _cancel(task: asyncio.Task[_T], why: _Stopped) -> _T | _Stopped:
    task.cancel()
    await asyncio.wait({task})
    return why if task.cancelled() else task.result()


@contextmanager
def _short_collections() -> Iterator[None]:
    """Keep what exists now out of garbage collection: a full one, with Optuna loaded, halts every stream."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
