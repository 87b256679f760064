"""The streams of a point spread over several processes, for when one core is not enough for the load.

A worker is this module run as a program. It is told what to do over its standard input and answers over its
standard output, in MessagePack. It ends when its input ends, so none outlives the process that started it.
"""

import asyncio
import gc
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import NoReturn, TypeVar

import aiohttp
import msgspec
import uvloop

from autotune.bench.client import open_session
from autotune.bench.plan import Group, Plan, Status
from autotune.bench.streams import StreamGroup
from autotune.domain.measurement import ClientLoad, RequestRecord
from autotune.errors import HarnessError

_T = TypeVar("_T")
_SIZE_BYTES = 4


class _Ask(StrEnum):
    """What a worker can be asked; the names are those of `Group`'s methods."""

    STATUS = "status"
    BEGIN_WINDOW = "begin_window"
    END_WINDOW = "end_window"
    RECORDS = "records"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """What a worker is to do: the streams `numbers` of `plan`."""

    plan: Plan
    numbers: tuple[int, ...]


class LostProcess(Exception):
    """A worker was killed from outside; the message says so in words for the user."""


@asynccontextmanager
async def groups_of(
    plan: Plan, processes: int, session: aiohttp.ClientSession, clock: Callable[[], float]
) -> AsyncIterator[tuple[Group, ...]]:
    """The streams of `plan`, running: with `session` in this process, or spread over several other ones.

    None of them is left when the block is over, however it is left. Raises LostProcess from their methods.
    """
    if processes == 1:
        async with StreamGroup(plan, range(plan.streams), session, clock).running() as group:
            yield (group,)
        return
    async with AsyncExitStack() as stack:
        parts = [tuple(range(n, plan.streams, processes)) for n in range(min(processes, plan.streams))]
        yield tuple([await stack.enter_async_context(_worker(plan, part)) for part in parts])


@asynccontextmanager
async def _worker(plan: Plan, numbers: tuple[int, ...]) -> AsyncIterator["_Shard"]:
    # A session of its own: Ctrl-C in the terminal is for the process that decides what comes of it.
    # -P: a file in the working directory is not taken for a module.
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "autotune.bench.shards"),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        start_new_session=True,
    )
    try:
        shard = _Shard(process)
        await shard.send(_Part(plan=plan, numbers=numbers))
        yield shard
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


class _Shard:
    """A `Group` in another process."""

    def __init__(self, process: Process) -> None:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise HarnessError("a process of the load generator was started without pipes")
        self._process = process
        self._asks, self._answers, self._errors = process.stdin, process.stdout, process.stderr

    async def status(self) -> Status:
        return await self._ask(_Ask.STATUS, Status)

    async def begin_window(self) -> None:
        await self._ask(_Ask.BEGIN_WINDOW, type(None))

    async def end_window(self) -> ClientLoad:
        return await self._ask(_Ask.END_WINDOW, ClientLoad)

    async def records(self) -> tuple[RequestRecord, ...]:
        return await self._ask(_Ask.RECORDS, tuple[RequestRecord, ...])

    async def stop(self) -> tuple[RequestRecord, ...]:
        return await self._ask(_Ask.STOP, tuple[RequestRecord, ...])

    async def send(self, message: object) -> None:
        """Say something to the worker. Raises LostProcess when it is gone."""
        if self._asks.is_closing():  # writing to it is a RuntimeError in uvloop
            await self._explain()
        with suppress(ConnectionError):  # the answer that does not come tells why
            self._asks.write(_framed(message))
            await self._asks.drain()

    async def _ask(self, what: _Ask, answer: type[_T]) -> _T:
        await self.send(what)
        try:
            return msgspec.msgpack.decode(await _read(self._answers), type=answer)
        except asyncio.IncompleteReadError:
            await self._explain()

    async def _explain(self) -> NoReturn:
        """Say why the worker is gone. Raises LostProcess when it was killed, HarnessError when it broke."""
        told = (await self._errors.read()).decode(errors="replace").strip()
        code = await self._process.wait()
        if code < 0:
            raise LostProcess(f"a process of the load generator was ended by {signal.Signals(-code).name}")
        why = told.rpartition("\n")[2] or f"exit code {code}"
        raise HarnessError(f"a process of the load generator ended by itself: {why}")


def _framed(message: object) -> bytes:
    data = msgspec.msgpack.encode(message)
    return len(data).to_bytes(_SIZE_BYTES, "big") + data


async def _read(source: asyncio.StreamReader) -> bytes:
    size = int.from_bytes(await source.readexactly(_SIZE_BYTES), "big")
    return await source.readexactly(size)


async def _work() -> None:
    """Do one part as it is asked for, until nobody is left to ask."""
    loop = asyncio.get_running_loop()
    source = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(source), sys.stdin.buffer)
    answers, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, sys.stdout.buffer)
    part = msgspec.msgpack.decode(await _read(source), type=_Part)
    async with (
        open_session(part.plan.idle_s, part.plan.authorization) as session,
        StreamGroup(part.plan, part.numbers, session, time.perf_counter).running() as group,
    ):
        while True:
            try:
                what = msgspec.msgpack.decode(await _read(source), type=_Ask)
            except asyncio.IncompleteReadError:
                return
            answers.write(_framed(await _answer(group, what)))


async def _answer(group: Group, what: _Ask) -> Status | ClientLoad | tuple[RequestRecord, ...] | None:
    match what:
        case _Ask.STATUS:
            return await group.status()
        case _Ask.BEGIN_WINDOW:
            await group.begin_window()
        case _Ask.END_WINDOW:
            return await group.end_window()
        case _Ask.RECORDS:
            return await group.records()
        case _Ask.STOP:
            return await group.stop()
    return None


if __name__ == "__main__":
    gc.freeze()  # what was imported is not looked at again by any collection
    uvloop.run(_work())
