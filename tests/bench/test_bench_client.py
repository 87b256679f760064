"""One request: what is sent, what is timed, and everything that makes it a failed one."""

import asyncio
import json
import time

import pytest
import uvloop
from sse_server import Script, SseServer

from autotune.bench.client import complete, open_session
from autotune.bench.exchange import Completion, Exchange, Prompt
from autotune.domain.measurement import RequestRecord, RequestState

PROMPT = Prompt(ids_json="[11,12,13,14]", tokens=4, output_tokens=6)


def ask(server: SseServer, script: Script, tokens: int = 6, idle_s: float = 20.0) -> RequestRecord:
    """Send one request; its times are those of `time.perf_counter`."""
    server.answer = lambda number: script
    completion = Completion(model="m", prompt=PROMPT, output_tokens=tokens, salt="s")

    async def send() -> RequestRecord:
        async with open_session(idle_s) as session:
            exchange = Exchange(completion=completion, sent_s=time.perf_counter())
            await complete(session, server.url, exchange, completion.body(), time.perf_counter)
            return exchange.record(time.perf_counter())

    return uvloop.run(send())


def test_what_is_sent(sse_server: SseServer) -> None:
    ask(sse_server, Script())
    assert sse_server.requests == [
        {
            "model": "m",
            "prompt": [11, 12, 13, 14],
            "max_tokens": 6,
            "min_tokens": 6,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "cache_salt": "s",
        }
    ]


def test_a_good_answer(sse_server: SseServer) -> None:
    record = ask(sse_server, Script(ttft_s=0.02, tpot_s=0.01))
    assert (record.state, record.error) == (RequestState.DONE, None)
    assert (record.prompt_tokens, record.output_tokens) == (4, 6)
    assert len(record.chunk_s) == 6
    assert record.sent_s < record.chunk_s[0] <= record.chunk_s[-1] <= record.ended_s
    (sent,) = sse_server.sent
    assert all(arrival > departure for arrival, departure in zip(record.chunk_s, sent, strict=True))


@pytest.mark.parametrize("tokens_per_chunk", [1, 2, 4, 6, 8])
def test_tokens_come_from_usage_and_not_from_chunks(sse_server: SseServer, tokens_per_chunk: int) -> None:
    record = ask(sse_server, Script(tokens_per_chunk=tokens_per_chunk))
    assert record.output_tokens == 6
    assert len(record.chunk_s) == -(-6 // tokens_per_chunk)


@pytest.mark.parametrize("piece_bytes", [1, 7])
def test_events_split_anywhere(sse_server: SseServer, piece_bytes: int) -> None:
    record = ask(sse_server, Script(piece_bytes=piece_bytes))
    assert record.state is RequestState.DONE
    assert len(record.chunk_s) == 6


@pytest.mark.parametrize(
    "text",
    ["", "a\u2028b\x85c", 'x"error"y', '"usage": {"completion_tokens": 1}', '"choices":[] \n\n', "\r\n"],
)
def test_what_the_model_writes_does_not_matter(sse_server: SseServer, text: str) -> None:
    record = ask(sse_server, Script(text=text))
    assert (record.state, record.output_tokens, len(record.chunk_s)) == (RequestState.DONE, 6, 6)


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (Script(error_after=3), "error in the stream: EngineCore died"),
        (Script(error_after=0), "error in the stream: EngineCore died"),
        (Script(done=False), "the stream ended before [DONE]"),
        (Script(usage=False), "the stream carried no usage"),
        (Script(tokens_off=-2), "4 output tokens came back, 6 were asked for"),
        (Script(tokens_off=1), "7 output tokens came back, 6 were asked for"),
        (Script(abort_after=3), "the connection broke inside the answer"),
        (Script(status=500), "HTTP 500: made to fail"),
        (Script(status=503, body=""), "HTTP 503: "),
        (Script(status=404, body='{"detail": "Not Found"}'), "HTTP 404: Not Found"),
        (Script(status=400, body='{"object": "error", "message": "too long"}'), "HTTP 400: too long"),
        (Script(status=400, body=f"bad [{', '.join(map(str, range(900)))}]"), "HTTP 400: bad [...]"),
        (Script(status=400, body="x" * 900), f"HTTP 400: {'x' * 197}..."),
    ],
)  # fmt: skip
def test_what_makes_it_fail(sse_server: SseServer, script: Script, error: str) -> None:
    record = ask(sse_server, script)
    assert (record.state, record.error) == (RequestState.FAILED, error)


def test_silence_makes_it_fail(sse_server: SseServer) -> None:
    record = ask(sse_server, Script(hang_after=2), idle_s=0.2)
    assert (record.state, record.error) == (RequestState.FAILED, "the server sent nothing for 0.2 s")
    assert len(record.chunk_s) == 2


def test_no_server_makes_it_fail(sse_server: SseServer) -> None:
    sse_server.die()
    record = ask(sse_server, Script())
    assert (record.state, record.error) == (RequestState.FAILED, "cannot connect: Connection refused")


def test_a_cancelled_request_is_cut_and_not_failed(sse_server: SseServer) -> None:
    sse_server.answer = lambda number: Script(hang_after=3)
    completion = Completion(model="m", prompt=PROMPT, output_tokens=6, salt="s")

    async def send() -> RequestRecord:
        async with open_session(20.0) as session:
            exchange = Exchange(completion=completion, sent_s=time.perf_counter())
            body = completion.body()
            task = asyncio.create_task(complete(session, sse_server.url, exchange, body, time.perf_counter))
            while len(exchange.chunk_s) < 3:
                await asyncio.sleep(0.005)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return exchange.record(time.perf_counter())

    record = uvloop.run(send())
    assert (record.state, record.error) == (RequestState.CUT, None)
    assert (record.prompt_tokens, record.output_tokens, len(record.chunk_s)) == (4, None, 3)


EVENTS = [
    {"choices": [{"text": "a"}]},
    {"choices": [{"text": "b"}], "usage": None},
    {"choices": [{"text": "c"}], "usage": {"prompt_tokens": 4, "completion_tokens": 3}},
    {"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 3}},
]


def test_usage_in_every_chunk_is_understood() -> None:
    exchange = Exchange(
        completion=Completion(model="m", prompt=PROMPT, output_tokens=3, salt="s"), sent_s=0.0
    )
    for at, event in enumerate(EVENTS):
        exchange.take(json.dumps(event).encode(), float(at))
    exchange.take(b"[DONE]", 9.0)
    exchange.check()
    assert (exchange.error, exchange.chunk_s, exchange.output_tokens) == (None, [0.0, 1.0, 2.0], 3)


def test_an_empty_usage_in_every_chunk_is_none() -> None:
    """OpenAI sends it, and it must cost no more than the others do."""
    exchange = Exchange(
        completion=Completion(model="m", prompt=PROMPT, output_tokens=3, salt="s"), sent_s=0.0
    )
    for at in range(3):
        exchange.take(b'{"choices":[{"text":"\\"usage\\":{}"}],"usage":null}', float(at))
    assert exchange.output_tokens is None
    exchange.take(b'{"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":3}}', 3.0)
    exchange.take(b"[DONE]", 9.0)
    exchange.check()
    assert (exchange.error, exchange.chunk_s, exchange.output_tokens) == (None, [0.0, 1.0, 2.0], 3)


def test_a_shortened_request_says_so() -> None:
    completion = Completion(model="m", prompt=PROMPT, output_tokens=2, salt="s", shortened=True)
    record = Exchange(completion=completion, sent_s=0.0).record(1.0)
    assert (record.shortened, record.wanted_output_tokens) == (True, 2)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"{", "an event of the stream is not JSON"),
        (b"[]", "an event of the stream is not a JSON object"),
        (b'{"object": "error", "message": "boom"}', "error in the stream: boom"),
        (b'{"error": "boom"}', "error in the stream: boom"),
    ],
)
def test_events_that_are_no_chunk(data: bytes, error: str) -> None:
    exchange = Exchange(
        completion=Completion(model="m", prompt=PROMPT, output_tokens=3, salt="s"), sent_s=0.0
    )
    exchange.take(data, 0.0)
    assert exchange.error == error
