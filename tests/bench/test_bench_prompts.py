"""The prompts: exact in length, all different, the same for the same seed."""

import json

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st
from sse_server import SseServer

from autotune.bench.client import Prompt, open_session
from autotune.bench.prompts import NoPrompts, passages, prompt_text, tokenize_prompts
from autotune.domain.workload import Lengths, Workload


def prompts_of(server: SseServer, workload: Workload) -> tuple[Prompt, ...] | NoPrompts:
    async def ask() -> tuple[Prompt, ...] | NoPrompts:
        async with open_session(5.0) as session:
            return await tokenize_prompts(session, server.url, "m", workload)

    return uvloop.run(ask())


def test_the_prose_is_there_and_varied() -> None:
    prose = passages()
    assert len(prose) >= 120
    assert len(set(prose)) == len(prose)
    assert all(passage == passage.strip() and passage for passage in prose)
    assert max(map(len, prose)) < 500


@given(seed=st.integers(0, 5), index=st.integers(0, 200), chars=st.integers(1, 60_000))
def test_a_longer_text_begins_with_the_shorter_one(seed: int, index: int, chars: int) -> None:
    prose = passages()
    text = prompt_text(prose, seed, index, chars)
    assert len(text) >= chars
    assert prompt_text(prose, seed, index, 2 * chars).startswith(text)


def test_no_passage_is_repeated_before_all_were_used() -> None:
    prose = passages()
    text = prompt_text(prose, 0, 3, len("\n\n".join(prose)))
    assert sorted(text.split("\n\n")) == sorted("\n\n".join(prose).split("\n\n"))


@pytest.mark.parametrize("length", [5, 300, 9000])
def test_exact_length_and_all_different(sse_server: SseServer, length: int) -> None:
    prompts = prompts_of(sse_server, Workload(prompt_tokens=Lengths.fixed(length), prompts=20))
    assert not isinstance(prompts, NoPrompts)
    assert {len(json.loads(p.ids_json)) for p in prompts} == {length}
    assert {p.tokens for p in prompts} == {length}
    assert len({p.ids_json for p in prompts}) == 20


@pytest.mark.parametrize("words_per_token", [3, 7])
def test_a_tokenizer_of_long_tokens_gets_more_text(sse_server: SseServer, words_per_token: int) -> None:
    sse_server.words_per_token = words_per_token
    prompts = prompts_of(sse_server, Workload(prompt_tokens=Lengths.fixed(300), prompts=2))
    assert not isinstance(prompts, NoPrompts)
    assert {len(json.loads(p.ids_json)) for p in prompts} == {300}


def test_a_tokenizer_that_gives_nothing_is_named(sse_server: SseServer) -> None:
    sse_server.words_per_token = 10**9
    prompts = prompts_of(sse_server, Workload(prompt_tokens=Lengths.fixed(300)))
    assert prompts == NoPrompts("POST /tokenize gave no more tokens for twice the text")


def test_the_same_for_the_same_seed_only(sse_server: SseServer) -> None:
    first = prompts_of(sse_server, Workload(prompt_tokens=Lengths.fixed(50), prompts=8, seed=1))
    assert prompts_of(sse_server, Workload(prompt_tokens=Lengths.fixed(50), prompts=8, seed=1)) == first
    assert prompts_of(sse_server, Workload(prompt_tokens=Lengths.fixed(50), prompts=8, seed=2)) != first


def test_a_server_without_tokenize_is_named(sse_server: SseServer) -> None:
    sse_server.tokenize_status = 404
    prompts = prompts_of(sse_server, Workload())
    assert isinstance(prompts, NoPrompts)
    assert "/tokenize" in prompts.why
    assert "HTTP 404: Not Found" in prompts.why


def test_a_server_that_is_gone_is_named(sse_server: SseServer) -> None:
    sse_server.die()
    prompts = prompts_of(sse_server, Workload())
    assert isinstance(prompts, NoPrompts)
    assert prompts.why == "POST /tokenize: cannot connect: Connection refused"
