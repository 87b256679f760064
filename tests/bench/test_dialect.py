"""Which dialect a server is found to speak, and what is sent and read in each."""

import asyncio
import json
import time

import pytest
from sse_server import Script, SseServer

from autotune.bench.dialect import output_pattern, request_body, without_echo
from autotune.bench.exchange import Completion, Exchange, Prompt
from autotune.bench.pieces import Pieces
from autotune.bench.probe import Refused, find_dialect
from autotune.domain.bench import VLLM, Dialect, Endpoint
from autotune.domain.interrupt import Interrupt
from autotune.domain.trial import Interruption
from autotune.domain.workload import Lengths, Workload

WORKLOAD = Workload(prompt_tokens=Lengths.fixed(64), output_tokens=Lengths.fixed(8))
PLAIN = Dialect(chars_per_token=4.0, extensions=False)
CHAT = Dialect(endpoint=Endpoint.CHAT, chars_per_token=4.0, extensions=False)
VLLM_CHAT = Dialect(endpoint=Endpoint.CHAT, chars_per_token=4.0)


def find(
    server: SseServer, endpoint: Endpoint | None = None, authorization: str | None = None
) -> Dialect | Refused:
    interrupt = Interrupt(time.monotonic, time.monotonic() + 60)
    return find_dialect(server.url, "m", WORKLOAD, endpoint, authorization, 30.0, interrupt)


def kind(found: Dialect | Refused) -> tuple[Endpoint, bool, bool]:
    assert isinstance(found, Dialect), found
    return found.endpoint, found.chars_per_token is None, found.extensions


# The probe


def test_vllm_is_asked_exactly_with_one_request(sse_server: SseServer) -> None:
    assert find(sse_server) == VLLM
    (body,) = sse_server.requests
    assert isinstance(body["prompt"], list)
    assert body["ignore_eos"]


def test_a_server_without_tokenize_gets_text(sse_server: SseServer) -> None:
    sse_server.tokenize_status = 404
    assert kind(find(sse_server)) == (Endpoint.COMPLETIONS, False, False)
    (body,) = sse_server.requests
    assert isinstance(body["prompt"], str)
    assert not body.keys() & {"cache_salt", "min_tokens", "ignore_eos"}


def test_the_length_of_a_token_is_the_servers(sse_server: SseServer) -> None:
    sse_server.tokenize_status = 404
    found = find(sse_server)
    assert isinstance(found, Dialect)
    assert found.chars_per_token is not None
    # This server's tokens are words, of which the prompt has some 40.
    assert 4.2 < found.chars_per_token < 8


def test_a_chat_server_is_asked_by_chat(sse_server: SseServer) -> None:
    sse_server.tokenize_status, sse_server.endpoints = 404, {"chat"}
    assert kind(find(sse_server)) == (Endpoint.CHAT, False, False)
    assert sse_server.paths == ["/v1/completions", "/v1/chat/completions"]


def test_vllm_by_chat_is_still_asked_for_exact_lengths(sse_server: SseServer) -> None:
    assert kind(find(sse_server, Endpoint.CHAT)) == (Endpoint.CHAT, False, True)


def test_a_server_that_refuses_vllms_fields_gets_plain_requests(sse_server: SseServer) -> None:
    sse_server.takes_extensions = False
    assert kind(find(sse_server)) == (Endpoint.COMPLETIONS, False, False)
    assert kind(find(sse_server, Endpoint.CHAT)) == (Endpoint.CHAT, False, False)


def test_a_server_that_passes_over_vllms_fields_gets_plain_requests(sse_server: SseServer) -> None:
    sse_server.answer = lambda number: Script(tokens_off=-3)
    assert kind(find(sse_server)) == (Endpoint.COMPLETIONS, False, False)


@pytest.mark.parametrize(
    ("script", "refused"),
    [
        (Script(status=500), Refused(why="HTTP 500: made to fail", status=500)),
        (Script(usage=False), Refused(why="the stream carried no usage", status=200)),
        (Script(abort_after=1), Refused(why="the connection broke inside the answer", status=200)),
    ],
)
def test_a_server_that_is_broken_is_not_asked_in_every_way(
    sse_server: SseServer, script: Script, refused: Refused
) -> None:
    sse_server.tokenize_status = 404
    sse_server.answer = lambda number: script
    assert find(sse_server) == refused
    assert len(sse_server.requests) == 1


def test_a_server_with_neither_endpoint(sse_server: SseServer) -> None:
    sse_server.endpoints = set()
    found = find(sse_server)
    told = "/v1/completions: HTTP 404: Not Found; /v1/chat/completions: HTTP 404: Not Found"
    assert found == Refused(why=told, status=404)


def test_the_key_opens_the_door(sse_server: SseServer) -> None:
    sse_server.key = "sk-1"
    refused = find(sse_server)
    assert isinstance(refused, Refused)
    assert refused.status == 401
    assert find(sse_server, authorization="Bearer sk-1") == VLLM


def test_a_probe_can_be_interrupted(sse_server: SseServer) -> None:
    sse_server.answer = lambda number: Script(hang_after=1)
    interrupt = Interrupt(time.monotonic, time.monotonic() + 60)
    interrupt.request(Interruption.USER)
    found = find_dialect(sse_server.url, "m", WORKLOAD, None, None, 30.0, interrupt)
    assert found == Refused(why="interrupted before the first completion had come back")


def test_a_probe_does_not_wait_for_ever(sse_server: SseServer) -> None:
    sse_server.answer = lambda number: Script(hang_after=1)
    interrupt = Interrupt(time.monotonic, time.monotonic() + 60)
    found = find_dialect(sse_server.url, "m", WORKLOAD, None, None, 0.3, interrupt)
    assert found == Refused(why="no completion came back within 0.3 s")


# What is sent


def body(dialect: Dialect, prompt: object) -> dict[str, object]:
    found: dict[str, object] = json.loads(request_body(dialect, "m", json.dumps(prompt), 8, "s1"))
    return found


def test_bodies() -> None:
    asked = {"model": "m", "max_tokens": 8, "temperature": 0, "stream": True}
    asked["stream_options"] = {"include_usage": True}
    exact = {"min_tokens": 8, "ignore_eos": True, "cache_salt": "s1"}
    assert body(VLLM, [1, 2]) == {**asked, **exact, "prompt": [1, 2]}
    assert body(PLAIN, 'say "a"') == {**asked, "prompt": 's1\nsay "a"'}
    assert body(VLLM_CHAT, "x\u2028y") == {
        **asked, **exact, "messages": [{"role": "user", "content": "x\u2028y"}],
    }  # fmt: skip
    assert body(CHAT, "x") == {**asked, "messages": [{"role": "user", "content": "s1\nx"}]}


def test_a_chat_cannot_be_asked_with_token_ids() -> None:
    with pytest.raises(ValueError, match="no token ids"):
        Dialect(endpoint=Endpoint.CHAT)


def test_what_is_not_exact_is_said() -> None:
    assert VLLM.notes == ()
    assert len(VLLM_CHAT.notes) == 1
    assert "approximate" in VLLM_CHAT.notes[0]
    assert len(PLAIN.notes) == 3


# What is read


def exchange(dialect: Dialect, *events: object, wanted: int = 3) -> Exchange:
    prompt_json = "[1]" if dialect.chars_per_token is None else '"Once upon a time there was a fox"'
    prompt = Prompt(ids_json=prompt_json, tokens=1, output_tokens=wanted)
    completion = Completion(model="m", prompt=prompt, output_tokens=wanted, salt="s", dialect=dialect)
    found = Exchange(completion=completion, sent_s=0.0)
    for at, event in enumerate(events):
        found.take(event if isinstance(event, bytes) else json.dumps(event).encode(), float(at))
    return found


def delta(**fields: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


@pytest.mark.parametrize("dialect", [CHAT, VLLM_CHAT])
def test_a_chat_begins_with_its_first_words_not_with_the_role(dialect: Dialect) -> None:
    found = exchange(
        dialect,
        delta(role="assistant", content=""),
        delta(role="assistant", content=None),
        delta(reasoning_content="hm"),
        delta(reasoning="hm"),
        delta(content='"content":"'),
        delta(content="\u2028"),
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3}},
    )
    assert found.chunk_s == [2.0, 3.0, 4.0, 5.0]
    assert (found.prompt_tokens, found.output_tokens) == (9, 3)


def test_text_that_looks_like_a_field_is_no_output() -> None:
    found = exchange(CHAT, delta(role='"content":"x"'), {"choices": [{"delta": {"id": '"text":"y"'}}]})
    assert found.chunk_s == []


def test_a_token_without_text_is_output_on_vllm_alone() -> None:
    empty = {"choices": [{"index": 0, "text": "", "finish_reason": None}]}
    assert exchange(VLLM, empty).chunk_s == [0.0]
    assert exchange(PLAIN, empty).chunk_s == []
    assert output_pattern(VLLM) is not output_pattern(PLAIN)


@pytest.mark.parametrize(
    ("dialect", "tokens", "error"),
    [
        (VLLM, 2, "2 output tokens came back, 3 were asked for"),
        (VLLM_CHAT, 2, "2 output tokens came back, 3 were asked for"),
        (PLAIN, 2, None),
        (CHAT, 1, None),
        (PLAIN, 4, "4 output tokens came back, 3 were asked for"),
        (PLAIN, 0, "the stream carried no output"),
    ],
)
def test_an_answer_may_be_short_where_the_model_may_end_it(
    dialect: Dialect, tokens: int, error: str | None
) -> None:
    words = delta(content="a") if dialect.endpoint is Endpoint.CHAT else {"choices": [{"text": "a"}]}
    usage = {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": tokens}}
    found = exchange(dialect, *([words] if tokens else []), usage, b"[DONE]")
    found.check()
    assert found.error == error


def test_a_quoted_prompt_is_left_out_of_an_error() -> None:
    found = exchange(PLAIN)
    found.refuse("HTTP 400: bad prompt 'Once upon a time there was a fox', try another")
    assert found.error == "HTTP 400: bad prompt '[...]', try another"
    assert without_echo("all is well", '"nothing of that kind"') == "all is well"
    mine = exchange(VLLM)
    mine.refuse("HTTP 400: Once upon a time there was a fox")
    assert mine.error == "HTTP 400: Once upon a time there was a fox"


# Pieces


@pytest.mark.parametrize("chars", [1.0, 3.7, 4.0, 100.0])
@pytest.mark.parametrize("text", ["", "a", "abcdefgh", 'two "words"\n\u2028 and more of them' * 5])
def test_pieces_make_the_text_again(chars: float, text: str) -> None:
    pieces = Pieces(chars)
    ids = asyncio.run(pieces.text_ids(text))
    assert json.loads(pieces.prompt_json(ids)) == text
    assert abs(len(ids) - len(text) / chars) <= 1
    assert text.startswith(json.loads(pieces.prompt_json(ids[: len(ids) // 2])))


def test_a_chat_becomes_one_text() -> None:
    pieces = Pieces(4.0)
    chat = {"messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": [{"a": 1}]}]}
    ids = asyncio.run(pieces.private_ids(chat))
    assert json.loads(pieces.prompt_json(ids)) == 'system: Be short.\n\nuser: [{"a": 1}]'
    assert asyncio.run(pieces.private_ids({"prompt": "abc"})) == asyncio.run(pieces.text_ids("abc"))
