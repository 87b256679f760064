"""The connections of streamed answers: when one is used again, and every way in which it can end."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest
import uvloop

from autotune.bench.client import complete, open_session
from autotune.bench.connection import Connector
from autotune.bench.exchange import Completion, Exchange, Prompt
from autotune.domain.measurement import RequestRecord, RequestState

PROMPT = Prompt(ids_json="[11,12,13,14]", tokens=4, output_tokens=2)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
OUTPUT = b'data: {"choices":[{"text":"a"}]}\n\n'
END = b'data: {"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":2}}\n\ndata: [DONE]\n\n'
ANSWER = OUTPUT + OUTPUT + END


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


GOOD = CHUNKED + chunk(ANSWER) + chunk(b"")

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass(slots=True)
class Server:
    """Reads each request and then does what the script says; keeps count of the connections."""

    script: Script
    connections: int = 0
    ended: int = 0
    heads: list[bytes] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while not writer.is_closing():
                self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                length = int(self.heads[-1].lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                await reader.readexactly(length)
                await self.script(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.ended += 1
            writer.close()


def says(answer: bytes, *, close: bool = False) -> Script:
    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()
        if close:
            writer.close()

    return script


def ask(
    server: Server, times: int = 1, idle_s: float = 20.0, *, until_closed: bool = False
) -> list[RequestRecord]:
    """Send so many requests, one after the other, in one session; each after the last connection's end."""

    async def send() -> list[RequestRecord]:
        listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        records = []
        async with listener:
            async with open_session(idle_s) as session:
                for _ in range(times):
                    completion = Completion(model="m", prompt=PROMPT, output_tokens=2, salt="s")
                    exchange = Exchange(completion=completion, sent_s=time.perf_counter())
                    await complete(session, url, exchange, completion.body(), time.perf_counter)
                    records.append(exchange.record(time.perf_counter()))
                    connector = session.connector
                    assert isinstance(connector, Connector)
                    idle = [c for connections in connector._idle.values() for c in connections]
                    if until_closed:
                        await until(lambda idle=idle: not any(c.is_open for c in idle))
            await until(lambda: server.ended == server.connections)
        return records

    return uvloop.run(send())


async def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not reached():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.002)


def test_one_connection_serves_one_request_after_the_other() -> None:
    server = Server(says(GOOD))
    assert [r.state for r in ask(server, times=3)] == [RequestState.DONE] * 3
    assert server.connections == 1


def test_a_connection_that_is_not_to_be_kept_is_not_used_again() -> None:
    answer = HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(ANSWER) + chunk(b"")
    server = Server(says(answer))
    assert [r.state for r in ask(server, times=2)] == [RequestState.DONE] * 2
    assert server.connections == 2


def test_a_connection_that_the_server_closed_in_between_is_not_used_again() -> None:
    server = Server(says(GOOD, close=True))
    assert [r.state for r in ask(server, times=3, until_closed=True)] == [RequestState.DONE] * 3
    assert server.connections == 3


def test_a_request_that_failed_leaves_no_connection_behind() -> None:
    server = Server(says(CHUNKED + chunk(b'data: {"error":{"message":"boom"}}\n\n')))
    assert {r.error for r in ask(server, times=2)} == {"error in the stream: boom"}
    assert server.connections == 2


def test_what_is_sent_is_http() -> None:
    server = Server(says(GOOD))
    ask(server)
    lines = server.heads[0].decode().split("\r\n")
    assert lines[0] == "POST /v1/completions HTTP/1.1"
    assert {line.split(": ")[0].lower() for line in lines[1:] if line} == {
        "host", "content-type", "accept-encoding", "content-length",
    }  # fmt: skip


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(CHUNKED + chunk(ANSWER), id="the end of the body is missing"),
        pytest.param(HEAD + b"\r\n" + ANSWER, id="the body has no length"),
        pytest.param(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + GOOD, id="an announcement before it"),
        pytest.param(HEAD + b"Content-Length: %d\r\n\r\n" % len(ANSWER) + ANSWER, id="the body has a length"),
    ],
)
def test_what_is_a_whole_answer(answer: bytes) -> None:
    (record,) = ask(Server(says(answer, close=True)))
    assert (record.state, record.error, len(record.chunk_s)) == (RequestState.DONE, None, 2)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", "the server closed the connection"),
        (b"HTTP/1.1 200", "the server closed the connection"),
        (b"220 smtp.example ESMTP\r\n", "what came back is not HTTP/1.1"),
        (CHUNKED + b"zz\r\n", "what came back is not HTTP/1.1"),
        (CHUNKED + chunk(OUTPUT), "the connection broke inside the answer"),
        (b"HTTP/1.1 502 Bad Gateway\r\n\r\nno upstream", "HTTP 502: no upstream"),
        (b"HTTP/1.1 307 Moved\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n", "HTTP 307: "),
    ],
)
def test_what_is_not(answer: bytes, error: str) -> None:
    (record,) = ask(Server(says(answer, close=True)))
    assert (record.state, record.error) == (RequestState.FAILED, error)


def test_a_refusal_without_end_is_not_read_to_its_end() -> None:
    async def refuse(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 500 Error\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"x" * 1024)
            await writer.drain()
            await asyncio.sleep(0)

    (record,) = ask(Server(refuse))
    assert record.error is not None
    assert record.error.startswith("HTTP 500: xxx")


def test_any_sign_of_life_holds_off_the_limit_of_silence() -> None:
    async def ping(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED)
        for _ in range(10):
            writer.write(chunk(b": still here\n\n"))
            await asyncio.sleep(0.2)
        writer.write(chunk(ANSWER) + chunk(b""))

    (record,) = ask(Server(ping), idle_s=1.5)
    assert (record.state, record.error) == (RequestState.DONE, None)


def test_an_unknown_host_is_told() -> None:
    async def send() -> str | None:
        async with open_session(5.0) as session:
            completion = Completion(model="m", prompt=PROMPT, output_tokens=2, salt="s")
            exchange = Exchange(completion=completion, sent_s=0.0)
            await complete(session, "http://no.such.invalid:1", exchange, b"{}", time.perf_counter)
            return exchange.error

    assert uvloop.run(send()) == "cannot connect: unknown address"
