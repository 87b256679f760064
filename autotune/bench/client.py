"""Sends one streamed completion request, and follows the answer to its end."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp

from autotune.bench.answer import Answer
from autotune.bench.connection import CONNECT_S, Connector, NoConnection, NotHttp
from autotune.bench.exchange import Exchange


def open_session(idle_s: float | None, authorization: str | None = None) -> aiohttp.ClientSession:
    """A session with as many connections as there are requests; each may be silent for `idle_s` seconds.

    `authorization` is the header of that name. Proxies of the environment are not used: the server of a trial
    is on this machine, and any other is to be measured without what lies in between.
    """
    credentials = {} if authorization is None else {"Authorization": authorization}
    return aiohttp.ClientSession(
        connector=Connector(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=idle_s),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"Content-Type": "application/json", "Accept-Encoding": "identity", **credentials},
        trust_env=False,
    )


async def complete(
    session: aiohttp.ClientSession, url: str, exchange: Exchange, body: bytes, clock: Callable[[], float]
) -> None:
    """Send `body` and follow the answer to its end; `exchange` then says what came of it.

    Raises nothing but CancelledError: whatever the server or the network does is noted in `exchange`.
    """
    connector, idle_s = session.connector, session.timeout.sock_read
    if not isinstance(connector, Connector):
        raise TypeError("the session is not one of open_session")
    answer = Answer(exchange, clock)
    try:
        async with _heard_within(idle_s, answer):
            url += exchange.completion.dialect.endpoint.path
            await connector.post(url, session.headers, body, answer)
        answer.check()
    except TimeoutError:
        exchange.stalled = True
        exchange.fail(f"the server sent nothing for {idle_s or 0:g} s")
    except (NoConnection, NotHttp) as error:
        exchange.fail(str(error))
    except OSError:
        answer.check_broken_off()
    exchange.ended_s = clock()


@asynccontextmanager
async def _heard_within(idle_s: float | None, answer: Answer) -> AsyncIterator[None]:
    """End the block with a TimeoutError once the server has sent nothing for `idle_s` seconds."""
    if idle_s is None:
        yield
        return
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as limit:
        timer: asyncio.TimerHandle

        def look() -> None:
            nonlocal timer
            left_s = answer.read_s + idle_s - answer.clock()
            if left_s > 0:
                timer = loop.call_later(left_s, look)
            else:
                limit.reschedule(loop.time())

        timer = loop.call_later(idle_s, look)
        try:
            yield
        finally:
            timer.cancel()
