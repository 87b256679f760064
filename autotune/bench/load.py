"""The load bench: smoke request, warm-up and points, as plain blocking calls around one event loop each."""

import gc
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType

import aiohttp

from autotune.bench.blocking import Stopped, run_blocking
from autotune.bench.client import complete, open_session
from autotune.bench.exchange import Completion, Exchange, Prompt
from autotune.bench.measured import measured_point
from autotune.bench.plan import Plan
from autotune.bench.point import Taken, Watch, point_limit_s
from autotune.bench.prompts import tokenize_prompts
from autotune.bench.repeats import Repeats
from autotune.bench.shards import LostProcess, groups_of
from autotune.bench.tokenizer import NoPrompts
from autotune.bench.warm_up import MAX_WARM_UP_S, warm_up
from autotune.domain.bench import VLLM, Dialect
from autotune.domain.interrupt import Interrupt
from autotune.domain.measurement import Flag, MeasuredPoint, RequestRecord, RequestState
from autotune.domain.prompt_text import PromptText
from autotune.domain.workload import Workload

_SMOKE_TOKENS = 16
"""Enough for several decoding steps, so that a draft model is asked and its proposals are checked."""
_IDLE_E2E = 10
_PROMPTS_S = 300.0
"""For the tokenizing of the prompts, which comes before the first point unless a smoke request came."""


class LoadBench:
    """Puts `workload` on servers of `model`. The prompts are made once, with the first server that can.

    `texts` are the user's own prompts, which `autotune.files.prompt_lines.source_texts` reads for a workload
    with a source; `note` is told once how many of them are left out. `dialect` is how the servers are spoken
    to, with the header `authorization`. `counters` are the names of their metrics by field of `ServerCounts`.
    `wanted_requests` are to finish in the window of a point, by its stream count, where time allows.
    `clock` is monotonic seconds; `processes` send the load, by default as many as turn out to be needed, and
    their clock is `time.perf_counter`. A request has failed when the server sends nothing for `idle_s`
    seconds, or for ten times as long as a whole request should take where that is more.
    """

    def __init__(
        self,
        model: str,
        workload: Workload,
        *,
        texts: Sequence[PromptText] = (),
        note: Callable[[str], None] = lambda _text: None,
        dialect: Dialect = VLLM,
        authorization: str | None = None,
        counters: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
        wanted_requests: Mapping[int, int] = MappingProxyType({}),
        processes: int | None = None,
        clock: Callable[[], float] = time.perf_counter,
        idle_s: float = 60.0,
    ) -> None:
        self._model = model
        self._workload = workload
        self._texts = texts
        self._note = note
        self._dialect = dialect
        self._authorization = authorization
        self._counters = counters
        self._wanted_requests = wanted_requests
        self._clock = clock
        self._idle_s = idle_s
        self._repeats = Repeats(processes, _cpus())
        self._prompts: tuple[Prompt, ...] | None = None

    def smoke(self, url: str, timeout_s: float, interrupt: Interrupt) -> str | None:
        """Ask for one real completion; None when it came back whole, else what was wrong with it."""
        answer = run_blocking(self._smoke(url), interrupt, timeout_s)
        match answer:
            case Stopped.INTERRUPTED:
                return "interrupted before the first completion had come back"
            case Stopped.TIMED_OUT:
                return f"no completion came back within {timeout_s:g} s"
        return answer

    def warm_up(self, url: str, interrupt: Interrupt) -> str | None:
        """Put every stream count of the workload on a new server, shortly, until it no longer gets faster.

        What was wrong when requests fail, else None; also None when interrupted.
        """
        self._repeats.begin_server()
        limit_s = MAX_WARM_UP_S + _PROMPTS_S
        match run_blocking(self._warm_up(url), interrupt, limit_s):
            case Stopped.INTERRUPTED:
                return None
            case Stopped.TIMED_OUT:
                return f"the requests before the first point were not answered within {limit_s:g} s"
            case answer:
                return answer

    def measure(
        self, url: str, streams: int, expected_e2e_s: float | None, interrupt: Interrupt
    ) -> MeasuredPoint | None:
        """Measure one point, again where it was spoilt; None when interrupted.

        The last measurement counts, whatever its flags are; why earlier ones do not is in `discarded`. Failed
        requests are in it with their reasons. It is broken off when every stream only fails, when the warm-up
        takes far longer than requests do, and at a limit of its own whatever the server does.
        """
        discarded: list[Flag] = []
        while True:
            with _short_collections():
                taken = self._take(url, streams, expected_e2e_s, interrupt)
            if taken is None:
                return None
            measured = measured_point(taken, self._workload, streams, self._counters)
            discarded += measured.point.discarded
            again = self._repeats.reason(measured, discarded)
            if again is None:
                return replace(measured, point=replace(measured.point, discarded=tuple(discarded)))
            discarded.append(again)

    def _take(
        self, url: str, streams: int, expected_e2e_s: float | None, interrupt: Interrupt
    ) -> Taken | None:
        plan = self._plan(url, streams, expected_e2e_s)
        limit_s = _PROMPTS_S + point_limit_s(plan, expected_e2e_s)
        match run_blocking(self._measure(plan, expected_e2e_s), interrupt, limit_s):
            case Stopped.INTERRUPTED:
                return None
            case Stopped.TIMED_OUT:
                return self._nothing(plan, f"the point was not over after {limit_s:.0f} s")
            case taken:
                return taken

    def _plan(self, url: str, streams: int, expected_e2e_s: float | None) -> Plan:
        """Of a point that begins now; the prompts are still missing."""
        return Plan(
            url=url,
            model=self._model,
            prompts=(),
            workload=self._workload,
            streams=streams,
            salt=secrets.token_hex(8),
            idle_s=max(self._idle_s, _IDLE_E2E * (expected_e2e_s or 0.0)),
            began_s=self._clock(),
            dialect=self._dialect,
            authorization=self._authorization,
        )

    async def _smoke(self, url: str) -> str | None:
        async with open_session(idle_s=None, authorization=self._authorization) as session:
            prompts = await self._ready_prompts(session, url)
            if isinstance(prompts, NoPrompts):
                return prompts.why
            completion = Completion(
                model=self._model,
                prompt=prompts[0],
                output_tokens=min(_SMOKE_TOKENS, prompts[0].output_tokens),
                salt=secrets.token_hex(8),
                dialect=self._dialect,
            )
            exchange = Exchange(completion=completion, sent_s=self._clock())
            await complete(session, url, exchange, completion.body(), self._clock)
        return exchange.error

    async def _warm_up(self, url: str) -> str | None:
        plan = self._plan(url, 1, None)
        async with open_session(plan.idle_s, plan.authorization) as session:
            prompts = await self._ready_prompts(session, url)
        if isinstance(prompts, NoPrompts):
            return prompts.why
        return await warm_up(replace(plan, prompts=prompts), self._clock)

    async def _measure(self, plan: Plan, expected_e2e_s: float | None) -> Taken:
        async with open_session(plan.idle_s, plan.authorization) as session:
            prompts = await self._ready_prompts(session, plan.url)
            if isinstance(prompts, NoPrompts):
                return self._nothing(plan, prompts.why)
            plan = replace(plan, prompts=prompts, began_s=self._clock())
            processes = self._repeats.processes(plan.streams)
            try:
                async with groups_of(plan, processes, session, self._clock) as groups:
                    watch = Watch(
                        plan=plan,
                        groups=groups,
                        session=session,
                        expected_e2e_s=expected_e2e_s,
                        wanted_requests=self._wanted_requests.get(plan.streams, 0),
                        clock=self._clock,
                    )
                    return await watch.run()
            except LostProcess as error:
                return self._nothing(plan, str(error))

    async def _ready_prompts(
        self, session: aiohttp.ClientSession, url: str
    ) -> tuple[Prompt, ...] | NoPrompts:
        if self._prompts is None:
            prompts = await tokenize_prompts(
                session, url, self._model, self._workload, self._texts, self._note, self._dialect
            )
            if isinstance(prompts, NoPrompts):
                return prompts
            self._prompts = prompts
        return self._prompts

    def _nothing(self, plan: Plan, why: str) -> Taken:
        """A point of which there is nothing but the reason; it stands as the one request that failed."""
        ended_s = self._clock() - plan.began_s
        failed = RequestRecord(
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
        return Taken(window=(0.0, ended_s), requests=(failed,), broken_off=why)


def _cpus() -> int:
    """Those this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _short_collections() -> Iterator[None]:
    """Keep what exists now out of garbage collection: a full one, with Optuna loaded, halts every stream."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
