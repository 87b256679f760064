"""Lengths and workloads: what they can be, and what of them counts."""

from dataclasses import replace
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain.prompt_text import PromptText
from autotune.domain.workload import MAX_TOKENS, Lengths, Workload


@st.composite
def any_lengths(draw: st.DrawFn) -> Lengths:
    low = draw(st.integers(1, 5000))
    high = low + draw(st.integers(0, 5000))
    if draw(st.booleans()):
        return Lengths(low=low, high=high)
    # Spreads so wide or so narrow that a normal distribution runs out of digits belong to them.
    sigma = draw(st.one_of(st.floats(0.01, 3), st.sampled_from([1e-300, 1e300])))
    return Lengths(low=low, high=high, median=draw(st.floats(low, high)), sigma=sigma)


shares = st.floats(0, 1, exclude_max=True)


@given(lengths=any_lengths(), share=shares, more=shares)
def test_every_length_is_within_the_bounds_and_they_rise(lengths: Lengths, share: float, more: float) -> None:
    assert lengths.low <= lengths.at(share) <= lengths.high
    assert lengths.at(min(share, more)) <= lengths.at(max(share, more))


@given(low=st.integers(1, 300), width=st.integers(0, 40))
def test_a_uniform_spread_has_each_length_equally_often(low: int, width: int) -> None:
    lengths = Lengths(low=low, high=low + width)
    count = width + 1
    assert [lengths.at((n + 0.5) / count) for n in range(count)] == list(range(low, low + count))


def test_a_lognormal_spread_has_its_median_and_a_long_tail() -> None:
    lengths = Lengths(low=1, high=100_000, median=300, sigma=0.8)
    assert abs(lengths.at(0.5) - 300) <= 1
    # One sigma up and down: the 84th and the 16th percentile.
    assert lengths.at(0.8413) == pytest.approx(300 * 2.2255, rel=0.01)
    assert lengths.at(0.1587) == pytest.approx(300 / 2.2255, rel=0.01)
    assert mean(lengths.at((n + 0.5) / 2000) for n in range(2000)) == pytest.approx(300 * 1.377, rel=0.01)


def test_a_lognormal_spread_has_no_heap_at_its_bounds() -> None:
    lengths = Lengths(low=100, high=200, median=150, sigma=3.0)
    drawn = [lengths.at((n + 0.5) / 1010) for n in range(1010)]
    assert drawn.count(100) < 25
    assert drawn.count(200) < 25


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"low": 0, "high": 5}, "must be at least 1, but is 0"),
        ({"low": 9, "high": 5}, "goes from 9 to 5"),
        ({"low": 1, "high": MAX_TOKENS + 1}, "must be at most"),
        ({"low": 1, "high": 9, "median": 5}, "both median and sigma"),
        ({"low": 1, "high": 9, "sigma": 1}, "both median and sigma"),
        ({"low": 1, "high": 9, "median": 10, "sigma": 1}, "a median from 1 to 9, but it is 10"),
        ({"low": 1, "high": 9, "median": float("nan"), "sigma": 1}, "a median from 1 to 9"),
        ({"low": 1, "high": 9, "median": 5, "sigma": 0}, "a sigma above 0"),
        ({"low": 1, "high": 9, "median": 5, "sigma": float("inf")}, "a sigma above 0"),
    ],
)
def test_lengths_that_cannot_be(wrong: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Lengths(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"prompts": 0},
        {"turns": 0},
        {"prefix_groups": 0},
        {"streams": ()},
        {"streams": (0, 1)},
        {"streams": (2, 1)},
        {"streams": (1, 1)},
        {"min_window_s": 0.0},
        {"min_window_s": 9.0, "max_window_s": 8.0},
        {"min_window_s": float("nan")},
        {"shared_prefix_tokens": -1},
        {"shared_prefix_tokens": MAX_TOKENS + 1},
        {"rate_per_stream": 0.0},
        {"rate_per_stream": float("inf")},
        {"rate_per_stream": 1.0, "turns": 2},
        {"source": "x.jsonl", "turns": 2},
        {"source": "x.jsonl", "shared_prefix_tokens": 8},
    ],
)
def test_workloads_that_cannot_be_run(wrong: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Workload(**wrong)


def test_the_context_holds_the_longest_request() -> None:
    lengths = {"prompt_tokens": Lengths(low=10, high=100), "output_tokens": Lengths.fixed(20)}
    assert Workload(**lengths).context_tokens == 120
    assert Workload(**lengths, turns=3).context_tokens == 360
    assert Workload(**lengths, turns=3, shared_prefix_tokens=50).context_tokens == 410


def test_a_workload_is_what_it_sends() -> None:
    workload = Workload(name="chats", source="/a/chats.jsonl", source_digest="1" * 64)
    assert replace(workload, name="moved", source="/b/moved.jsonl") == workload
    assert replace(workload, source_digest="2" * 64) != workload
    assert replace(workload, seed=1) != workload


def test_nothing_that_a_user_wrote_is_shown() -> None:
    text = PromptText(line=3, messages=({"role": "user", "content": "my secret"},), answer="my secret")
    assert "secret" not in repr(text) + repr(PromptText(line=1, text="my secret"))
    for wrong in ({}, {"text": "my secret", "messages": ({},)}):
        with pytest.raises(ValueError, match="either a text or messages"):
            PromptText(line=1, **wrong)
