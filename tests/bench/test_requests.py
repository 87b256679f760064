"""What the streams send: the same in every trial, and in the prefix cache only what belongs there."""

from collections import Counter
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.bench.exchange import Completion, Prompt
from autotune.bench.requests import arrival_gaps_s, stream_requests
from autotune.domain.workload import Workload

shapes = st.builds(
    Workload,
    prompts=st.integers(1, 12),
    turns=st.integers(1, 4),
    shared_prefix_tokens=st.sampled_from([0, 16]),
    seed=st.integers(0, 3),
)
stream_counts = st.integers(1, 30)


def sent(workload: Workload, streams: int, stream: int, count: int) -> list[Completion]:
    prompts = tuple(
        Prompt(ids_json=f"[{n}]", tokens=1, output_tokens=100 + n)
        for n in range(workload.prompts * workload.turns)
    )
    return list(islice(stream_requests("m", prompts, workload, streams, stream, "s"), count))


@given(workload=shapes, streams=stream_counts, counts=st.lists(st.integers(1, 60), min_size=30, max_size=30))
def test_no_prompt_is_sent_twice_with_one_salt(workload: Workload, streams: int, counts: list[int]) -> None:
    """Whatever the speeds of the streams: a server must never find a whole prompt in its cache."""
    keys = Counter(
        (request.salt, request.prompt_index)
        for stream in range(streams)
        for request in sent(workload, streams, stream, counts[stream])
    )
    assert set(keys.values()) == {1}


@given(workload=shapes, streams=stream_counts)
def test_the_same_in_every_trial(workload: Workload, streams: int) -> None:
    stream = streams // 2
    requests = sent(workload, streams, stream, 40)
    assert sent(workload, streams, stream, 40) == requests
    assert [request.sequence for request in requests] == list(range(40))
    for request in requests:
        assert request.prompt.ids_json == f"[{request.prompt_index}]"
        assert request.stream == stream


@given(workload=shapes, streams=stream_counts)
def test_only_the_first_request_is_shortened(workload: Workload, streams: int) -> None:
    first, *rest = sent(workload, streams, 0, 20)
    assert first.shortened
    assert 0.1 * first.prompt.output_tokens - 1 <= first.output_tokens <= first.prompt.output_tokens
    assert all(r.output_tokens == r.prompt.output_tokens and not r.shortened for r in rest)


@given(workload=shapes, streams=stream_counts)
def test_the_turns_of_a_conversation_follow_each_other_with_one_salt(
    workload: Workload, streams: int
) -> None:
    requests = sent(workload, streams, 0, 50)
    turns = workload.turns
    for before, request in pairwise(requests):
        if request.prompt_index % turns:
            assert request.prompt_index == before.prompt_index + 1
            assert request.salt == before.salt
        else:
            assert before.prompt_index % turns == turns - 1


@given(workload=shapes, streams=stream_counts)
def test_each_stream_gets_to_all_prompts(workload: Workload, streams: int) -> None:
    every = workload.prompts * workload.turns
    requests = sent(workload, streams, 0, every * (1 + min(streams, workload.prompts)))
    assert {request.prompt_index for request in requests} == set(range(every))


def test_streams_are_in_different_turns_at_the_beginning() -> None:
    workload = Workload(turns=5)
    assert {sent(workload, 32, stream, 1)[0].prompt_index % 5 for stream in range(32)} == set(range(5))


def test_without_anything_in_common_every_request_has_its_own_salt() -> None:
    salts = [r.salt for stream in range(8) for r in sent(Workload(prompts=4), 8, stream, 50)]
    assert len(set(salts)) == len(salts)


@pytest.mark.parametrize(("streams", "tables"), [(1, 1), (4, 1), (8, 1), (9, 2), (24, 3)])
def test_streams_share_a_salt_where_prompts_share_their_beginnings(streams: int, tables: int) -> None:
    workload = Workload(prompts=8, shared_prefix_tokens=16)
    first_salts = {sent(workload, streams, stream, 1)[0].salt for stream in range(streams)}
    assert len(first_salts) == tables
    # In one round the players of a table send all prompts between them, each once.
    players = min(streams, 8)
    indices = [
        request.prompt_index
        for stream in range(players)
        for request in sent(workload, streams, stream, 100)
        if request.salt == "s-0.3"
    ]
    assert sorted(indices) == list(range(8))


def test_an_open_loop_keeps_its_rate() -> None:
    gaps = list(islice(arrival_gaps_s(Workload(rate_per_stream=4.0), 2, 0), 4000))
    assert sum(gaps) / len(gaps) == pytest.approx(0.25, rel=0.05)
    # A Poisson process: the spread of the gaps is their mean.
    variance = sum((gap - 0.25) ** 2 for gap in gaps) / len(gaps)
    assert variance**0.5 == pytest.approx(0.25, rel=0.1)
    assert gaps == list(islice(arrival_gaps_s(Workload(rate_per_stream=4.0), 2, 0), 4000))
    assert gaps[:5] != list(islice(arrival_gaps_s(Workload(rate_per_stream=4.0), 2, 1), 5))
    with pytest.raises(ValueError, match="closed loop"):
        next(arrival_gaps_s(Workload(), 2, 0))
