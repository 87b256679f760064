"""The short way of an answer's usual events must come to the same as taking each of them apart."""

import itertools
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from autotune.bench.answer import Answer
from autotune.bench.exchange import Completion, Exchange, Prompt
from autotune.bench.sse import SseParser
from autotune.domain.bench import VLLM, Dialect, Endpoint

PROMPT = Prompt(ids_json="[11]", tokens=1, output_tokens=9)
CHAT = Dialect(endpoint=Endpoint.CHAT, chars_per_token=4.0, extensions=False)
TEXTS = st.one_of(
    st.sampled_from(
        ["", " word", '"', "\\", '\\"', '"usage":{', '","x":"', "a\u2028b\x85c", "\n\n", "data: "]
    ),
    st.text(max_size=5),
)


def event(text: str, *, chat: bool = False, finish: str | None = None, **more: object) -> bytes:
    choice = {"delta": {"content": text}} if chat else {"index": 0, "text": text}
    body = {"id": "x", "choices": [{**choice, "finish_reason": finish}], **more}
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def exchange(dialect: Dialect = VLLM) -> Exchange:
    completion = Completion(model="m", prompt=PROMPT, output_tokens=9, salt="s", dialect=dialect)
    return Exchange(completion=completion, sent_s=0.0)


def received(pieces: list[bytes], dialect: Dialect = VLLM) -> Exchange:
    """The pieces are read at 1, 2, 3 s and so on."""
    seconds = itertools.count()
    into = exchange(dialect)
    answer = Answer(into, lambda: float(next(seconds)))
    answer.on_status(200)
    for piece in pieces:
        answer.read_s = answer.clock()
        answer.on_body(piece)
    return into


def taken_apart(events: list[bytes], dialect: Dialect) -> Exchange:
    into = exchange(dialect)
    for number, data in enumerate(events):
        into.take(data, float(number + 1))
    return into


def seen(into: Exchange) -> tuple[object, ...]:
    return into.output_tokens, into.prompt_tokens, into.error, into.answered


EVENTS = st.one_of(
    TEXTS.map(event),
    TEXTS.map(lambda text: event(text, chat=True)),
    TEXTS.map(lambda text: event(text, usage=None)),
    st.integers(1, 9).map(lambda n: event("a", usage={"prompt_tokens": 1, "completion_tokens": n})),
    st.just(event("a", finish="length")),
    st.just(b'{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":9}}'),
    st.just(b'{"error":{"message":"boom"}}'),
    st.just(b"[DONE]"),
)


@given(st.lists(EVENTS, max_size=12), st.sampled_from([VLLM, CHAT]))
@example([event("a"), event("b"), event(""), event('"'), event("c", finish="stop")], VLLM)
@example([event("a", chat=True), event("", chat=True), event("b", chat=True)], CHAT)
def test_event_by_event(events: list[bytes], dialect: Dialect) -> None:
    short = received([b"data: " + data + b"\n\n" for data in events], dialect)
    long = taken_apart(events, dialect)
    assert short.chunk_s == long.chunk_s
    assert seen(short) == seen(long)


@given(st.data(), st.lists(EVENTS, max_size=8), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_cut_anywhere(data: st.DataObject, events: list[bytes], end: bytes) -> None:
    stream = b"".join(b"data: " + payload + end * 2 for payload in events)
    edges = [0, *sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12))), len(stream)]
    pieces = [stream[a:b] for a, b in itertools.pairwise(edges) if b > a]
    short, long = received(pieces), taken_apart(events, VLLM)
    assert len(short.chunk_s) == len(long.chunk_s)
    assert short.chunk_s == sorted(short.chunk_s)
    assert seen(short) == seen(long)


@pytest.mark.parametrize("inside", [b"data: half an ev", b"data: {}\n", b": comment", b"data: {}\r", b"\n"])
def test_what_looks_like_an_event_inside_of_another_is_none(inside: bytes) -> None:
    usual = b"data: " + event("a") + b"\n\n"
    pieces = [usual, usual, inside, usual]
    short, long = received(pieces), taken_apart(SseParser().feed(b"".join(pieces)), VLLM)
    assert len(short.chunk_s) == len(long.chunk_s)
    assert seen(short) == seen(long)


def test_the_time_is_that_of_the_read() -> None:
    usual = b"data: " + event("a") + b"\n\n"
    assert received([usual, usual + usual, usual, usual[:9], usual[9:]]).chunk_s == [1, 2, 2, 3, 5]
