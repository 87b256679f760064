"""The prompts: exact in length, all different, the same for the same seed, shared only where asked for."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st
from sse_server import SseServer

from autotune.bench.client import open_session
from autotune.bench.exchange import Prompt
from autotune.bench.prompts import drawn, tokenize_prompts
from autotune.bench.prose import passages, prompt_text
from autotune.bench.tokenizer import NoPrompts
from autotune.domain.prompt_text import PromptText
from autotune.domain.workload import Lengths, Workload
from autotune.errors import HarnessError

SPREAD = Lengths(low=20, high=200, median=60, sigma=0.8)


def prompts_of(
    server: SseServer, workload: Workload, texts: tuple[PromptText, ...] = (), notes: list[str] | None = None
) -> tuple[Prompt, ...] | NoPrompts:
    async def ask() -> tuple[Prompt, ...] | NoPrompts:
        async with open_session(5.0) as session:
            note = (notes if notes is not None else []).append
            return await tokenize_prompts(session, server.url, "m", workload, texts, note)

    return uvloop.run(ask())


def made(server: SseServer, workload: Workload) -> tuple[Prompt, ...]:
    prompts = prompts_of(server, workload)
    assert not isinstance(prompts, NoPrompts)
    return prompts


def ids_of(prompt: Prompt) -> list[int]:
    ids: list[int] = json.loads(prompt.ids_json)
    assert len(ids) == prompt.tokens
    return ids


def test_the_prose_is_there_and_varied() -> None:
    prose = passages()
    assert len(prose) >= 320
    assert len(set(prose)) == len(prose)
    assert all(passage == passage.strip() and passage for passage in prose)
    assert max(map(len, prose)) < 700


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


# Lengths


@given(count=st.integers(1, 300), key=st.text(max_size=3))
def test_lengths_are_in_bounds_and_the_same_for_the_same_key(count: int, key: str) -> None:
    tokens = drawn(SPREAD, count, key)
    assert len(tokens) == count
    assert min(tokens) >= SPREAD.low
    assert max(tokens) <= SPREAD.high
    assert drawn(SPREAD, count, key) == tokens


@given(key=st.text(max_size=3))
def test_a_few_dozen_lengths_are_spread_like_all_of_them(key: str) -> None:
    tokens = sorted(drawn(SPREAD, 64, key))
    # One from each of 64 equal shares: none is off by more than a share.
    for place, length in enumerate(tokens):
        assert SPREAD.at(place / 64) <= length <= SPREAD.at((place + 0.999999) / 64)


def test_each_prompt_has_lengths_of_its_own(sse_server: SseServer) -> None:
    workload = Workload(prompt_tokens=SPREAD, output_tokens=Lengths(low=5, high=9), prompts=40)
    prompts = made(sse_server, workload)
    assert all(SPREAD.low <= len(ids_of(prompt)) <= SPREAD.high for prompt in prompts)
    assert {prompt.output_tokens for prompt in prompts} == {5, 6, 7, 8, 9}
    assert len({prompt.tokens for prompt in prompts}) > 10
    # A long prompt does not go with a long answer.
    by_length = sorted(prompts, key=lambda prompt: prompt.tokens)
    outputs = [prompt.output_tokens for prompt in by_length]
    assert outputs != sorted(outputs)


# Shapes


def test_prefixes_are_shared_within_their_group_and_nothing_else_is(sse_server: SseServer) -> None:
    workload = Workload(prompt_tokens=SPREAD, prompts=12, shared_prefix_tokens=100, prefix_groups=3)
    prompts = [ids_of(prompt) for prompt in made(sse_server, workload)]
    assert len({tuple(ids[:100]) for ids in prompts}) == 3
    for index, ids in enumerate(prompts):
        assert SPREAD.low <= len(ids) - 100 <= SPREAD.high
        assert ids[:100] == prompts[index % 3][:100]
        assert ids[0] == 1  # the token that begins a prompt, once
        assert 1 not in ids[1:]
    # Beyond the prefix no two prompts begin alike.
    assert len({tuple(ids[100:104]) for ids in prompts}) == 12


def test_more_groups_than_prompts_do_no_harm(sse_server: SseServer) -> None:
    workload = Workload(prompt_tokens=SPREAD, prompts=2, shared_prefix_tokens=10, prefix_groups=9)
    assert len({tuple(ids_of(prompt)[:10]) for prompt in made(sse_server, workload)}) == 2


@pytest.mark.parametrize("prefix", [0, 50])
def test_a_turn_sends_all_that_was_before_it_and_adds_something(sse_server: SseServer, prefix: int) -> None:
    workload = Workload(
        prompt_tokens=SPREAD,
        output_tokens=Lengths(low=3, high=30),
        prompts=5,
        turns=4,
        shared_prefix_tokens=prefix,
    )
    prompts = made(sse_server, workload)
    assert len(prompts) == 20
    for first in range(0, 20, 4):
        conversation = prompts[first : first + 4]
        assert SPREAD.low <= conversation[0].tokens - prefix <= SPREAD.high
        for before, turn in pairwise(conversation):
            assert ids_of(turn)[: before.tokens] == ids_of(before)
            new = turn.tokens - before.tokens - before.output_tokens
            assert SPREAD.low <= new <= SPREAD.high
    longest = max(prompt.tokens + prompt.output_tokens for prompt in prompts)
    assert longest <= workload.context_tokens
    assert len({tuple(ids_of(prompts[first])) for first in range(0, 20, 4)}) == 5


# A user's own prompts

LINES = (
    PromptText(line=1, text="one two three four five"),
    PromptText(line=2, messages=({"role": "user", "content": "a b c"},), output_tokens=7),
    PromptText(line=4, text="one two", answer="yes it is so"),
)
OWN = Workload(
    prompt_tokens=Lengths(low=1, high=6), output_tokens=Lengths.fixed(9), source="/x/own.jsonl", prompts=8
)


def test_lines_become_prompts_in_their_own_order(sse_server: SseServer) -> None:
    notes: list[str] = []
    workload = replace(OWN, output_tokens=Lengths(low=4, high=9))
    prompts = prompts_of(sse_server, workload, LINES, notes)
    assert not isinstance(prompts, NoPrompts)
    # A text gets the token that begins a prompt; a chat is what the template makes of it.
    assert [prompt.tokens for prompt in prompts] == [6, 5, 3]
    assert "<user> a b c <assistant>" in sse_server.tokenized
    drawn_length, asked_for, of_the_answer = (prompt.output_tokens for prompt in prompts)
    assert 4 <= drawn_length <= 9
    assert (asked_for, of_the_answer) == (7, 4)
    assert notes == []
    assert prompts_of(sse_server, workload, LINES) == prompts


def test_lines_that_do_not_fit_are_left_out_and_counted(sse_server: SseServer) -> None:
    notes: list[str] = []
    long = PromptText(line=9, text="secret word " * 3)
    prompts = prompts_of(sse_server, OWN, (*LINES, long), notes)
    assert not isinstance(prompts, NoPrompts)
    assert [prompt.output_tokens for prompt in prompts] == [9]
    assert notes == [
        "3 of 4 lines of own.jsonl are left out: 2 for an answer that is not 9 tokens long, "
        "1 for a prompt that is not 1 to 6 tokens long"
    ]


def test_no_line_is_left(sse_server: SseServer) -> None:
    workload = replace(OWN, prompt_tokens=Lengths.fixed(2), output_tokens=Lengths(low=1, high=9))
    assert prompts_of(sse_server, workload, LINES) == NoPrompts(
        "there is nothing to send: 3 of 3 lines of own.jsonl are left out: "
        "3 for a prompt that is not 2 tokens long"
    )


def test_what_a_template_refuses_is_left_out_and_not_quoted(sse_server: SseServer) -> None:
    sse_server.no_chat_template = True
    notes: list[str] = []
    secret = PromptText(line=1, messages=({"role": "user", "content": "my secret"},), output_tokens=9)
    prompts = prompts_of(sse_server, OWN, (secret, LINES[0]), notes)
    assert not isinstance(prompts, NoPrompts)
    assert len(prompts) == 1
    assert notes == ["1 of 2 lines of own.jsonl are left out: 1 for a prompt that the server refuses"]
    alone = prompts_of(sse_server, OWN, (secret,))
    assert isinstance(alone, NoPrompts)
    assert "1 for a prompt that the server refuses" in alone.why
    assert "secret" not in alone.why


def test_a_server_without_tokenize_is_no_fault_of_the_lines(sse_server: SseServer) -> None:
    sse_server.tokenize_status = 404
    assert prompts_of(sse_server, OWN, LINES) == NoPrompts(
        "the prompts need POST /tokenize, which gave HTTP 404", 404
    )


def test_only_as_many_lines_as_wanted_are_chosen_by_the_seed(sse_server: SseServer) -> None:
    texts = tuple(PromptText(line=n + 1, text=f"number {n}", output_tokens=9) for n in range(50))
    chosen = [prompts_of(sse_server, replace(OWN, seed=seed), texts) for seed in (1, 1, 2)]
    assert [len(prompts) for prompts in chosen if not isinstance(prompts, NoPrompts)] == [8, 8, 8]
    assert chosen[0] == chosen[1] != chosen[2]
    assert len(sse_server.tokenized) == 24


def test_lines_that_were_not_read_are_not_replaced_by_prose(sse_server: SseServer) -> None:
    with pytest.raises(HarnessError, match=r"own\.jsonl were not read"):
        prompts_of(sse_server, OWN)
