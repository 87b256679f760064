"""Discarded load before the first point of a server, so that every size of batch has been compiled.

vLLM compiles kernels when it first meets a shape, also after it is ready: a first request can take 31 s
(vllm-project/vllm#39822), and one round of requests is not enough.
"""

import asyncio
import secrets
import statistics
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import islice

from autotune.bench.client import complete, open_session
from autotune.bench.exchange import Completion, Exchange
from autotune.bench.plan import Plan, requests_of

MAX_WARM_UP_S = 600.0
MAX_PASSES = 3
_OUTPUT_TOKENS = 8
_SAME_SHARE = 0.2
"""By how much of itself the time to the first output may still fall from one pass to the next."""
_SAME_S = 0.01
"""What does not count as a difference at all: at a small model 20 % are noise."""
_LAST_BEGIN_S = 120.0
"""No further pass begins later than that: on a slow machine the first one takes so long by itself."""
_MAX_FAILED_SHARE = 0.01
_IDLE_TIMES = 10


async def warm_up(plan: Plan, clock: Callable[[], float]) -> str | None:
    """Pass over the stream counts with short outputs until the time to the first output has settled.

    That is when it differs by at most 20 % between two passes; at most three are made. What was wrong with
    the server when more than 1 % of the requests of a stream count fail, else None.
    """
    began_s = clock()
    last_s: float | None = None
    for number in range(MAX_PASSES):
        ttft_s = await _pass(plan, number, clock)
        if isinstance(ttft_s, str):
            return ttft_s
        if last_s is not None and abs(ttft_s - last_s) <= max(_SAME_SHARE * last_s, _SAME_S):
            return None
        if clock() - began_s > _LAST_BEGIN_S:
            return None
        last_s = ttft_s
    return None


async def _pass(plan: Plan, number: int, clock: Callable[[], float]) -> float | str:
    """The sum of the median times to the first output at each stream count, or what was wrong."""
    total_s = 0.0
    idle_s = plan.idle_s
    for streams in plan.workload.streams:
        here = replace(plan, streams=streams, salt=secrets.token_hex(8), idle_s=idle_s)
        requests = [_short(next(islice(requests_of(here, n), number, None))) for n in range(streams)]
        sent = await _send(here, requests, clock)
        errors = Counter(exchange.error for exchange in sent if exchange.error is not None)
        if errors.total() > _MAX_FAILED_SHARE * streams:
            return errors.most_common(1)[0][0]
        good = [exchange for exchange in sent if exchange.error is None]
        total_s += statistics.median(x.chunk_s[0] - x.sent_s for x in good)
        idle_s = max(idle_s, _IDLE_TIMES * max(x.chunk_s[-1] - x.sent_s for x in good))
    return total_s


def _short(request: Completion) -> Completion:
    return replace(request, output_tokens=min(_OUTPUT_TOKENS, request.output_tokens))


async def _send(plan: Plan, requests: list[Completion], clock: Callable[[], float]) -> list[Exchange]:
    """All of them at once."""
    async with open_session(plan.idle_s, plan.authorization) as session:
        sent = [Exchange(completion=request, sent_s=clock()) for request in requests]
        await asyncio.gather(*(complete(session, plan.url, x, x.completion.body(), clock) for x in sent))
    return sent
