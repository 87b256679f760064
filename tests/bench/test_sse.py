"""The event-stream parser: where the bytes are cut must not matter, and nothing but CR and LF ends a line."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.bench.sse import SseParser


def events(*chunks: bytes) -> list[bytes]:
    parser = SseParser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


def cut(stream: bytes, at: list[int]) -> list[bytes]:
    edges = [0, *sorted(at), len(stream)]
    return [stream[a:b] for a, b in itertools.pairwise(edges)]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b"data: [DONE]\n\n", [b"[DONE]"]),
        (b"data:a\n\n", [b"a"]),
        (b"data:  a\n\n", [b" a"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data\n\n", [b""]),
        (b": ping\n\ndata: a\n: ping\n\n", [b"a"]),
        (b"event: x\nid: 7\nretry: 10\ndata: a\n\n", [b"a"]),
        (b"event: x\n\n", []),
        (b"\n\n\n", []),
        (b"data: not over\n", []),
        (b'data: {"a": "b: c"}\n\n', [b'{"a": "b: c"}']),
        (b"database: a\n\n", []),
    ],
)
def test_known_streams(stream: bytes, expected: list[bytes]) -> None:
    assert events(stream) == expected
    assert events(*(stream[i : i + 1] for i in range(len(stream)))) == expected


@pytest.mark.parametrize("text", ["a\u2028b", "a\u2029b", "a\x85b", "a\x0bb\x0cc", "\U0001f600", "a\x1cb"])
def test_what_other_line_splitters_break_on_stays_whole(text: str) -> None:
    data = json.dumps({"text": text}, ensure_ascii=False).encode()
    assert events(b"data: " + data + b"\n\n") == [data]


LINE = st.one_of(
    st.binary(max_size=12).map(lambda b: b"data: " + b.replace(b"\r", b"").replace(b"\n", b"")),
    st.sampled_from([b"", b"", b": comment", b"event: x", b"data", b"data:", b"id"]),
)
END = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(st.data(), st.lists(st.tuples(LINE, END), max_size=20))
def test_any_cutting_gives_the_same_events(data: st.DataObject, lines: list[tuple[bytes, bytes]]) -> None:
    stream = b"".join(line + end for line, end in lines)
    at = data.draw(st.lists(st.integers(0, len(stream)), max_size=12))
    assert events(*cut(stream, at)) == events(stream)


@given(st.lists(st.binary(max_size=30).filter(lambda b: not set(b) & {10, 13}), max_size=10), END)
def test_every_payload_comes_back(payloads: list[bytes], end: bytes) -> None:
    assert events(b"".join(b"data: " + p + end * 2 for p in payloads)) == payloads
