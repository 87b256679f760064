"""Asynchronous work as one blocking call that a signal or the clock can end."""

import asyncio
from collections.abc import Coroutine
from enum import Enum
from typing import TypeVar

import uvloop

from autotune.domain.interrupt import Interrupt

T = TypeVar("T")

TICK_S = 0.05
"""How often the interrupt is looked at."""


class Stopped(Enum):
    """Why work was cancelled before it was done."""

    INTERRUPTED = "interrupted"
    TIMED_OUT = "timed out"


def run_blocking(work: Coroutine[object, object, T], interrupt: Interrupt, limit_s: float) -> T | Stopped:
    """Do `work` on an event loop of its own, for at most `limit_s` seconds and until `interrupt`."""
    return uvloop.run(_watched(work, interrupt, limit_s))


async def _watched(work: Coroutine[object, object, T], interrupt: Interrupt, limit_s: float) -> T | Stopped:
    loop = asyncio.get_running_loop()
    end = loop.time() + limit_s
    task = asyncio.create_task(work)
    while not task.done():
        if interrupt.reason is not None:
            return await _cancel(task, Stopped.INTERRUPTED)
        if loop.time() >= end:
            return await _cancel(task, Stopped.TIMED_OUT)
        await asyncio.wait({task}, timeout=TICK_S)
    return task.result()


async def _cancel(task: asyncio.Task[T], why: Stopped) -> T | Stopped:
    task.cancel()
    await asyncio.wait({task})
    return why if task.cancelled() else task.result()
