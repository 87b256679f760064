"""The estimators: known answers, and the laws that follow from their definitions."""

import random
import statistics
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from raw_requests import closed_loop, points, request

from autotune.decide.estimators import estimate, quantiles
from autotune.domain.measurement import Point, Quantiles, RequestRecord, RequestState
from autotune.domain.metric import FLOORS
from autotune.domain.slo import Slo


def test_a_window_over_one_request() -> None:
    point = estimate([request(1.0, [2.0, 2.5, 3.0, 3.5, 4.0])], (0.0, 10.0), 1)
    assert point == Point(
        streams=1,
        window_s=10.0,
        out_tok_s=0.5,
        prompt_tok_s=10.0,
        req_s=0.1,
        ttft_s=Quantiles(n=1, p50=1.0),
        tpot_s=Quantiles(n=1, p50=0.5),
        chunk_gap_s=Quantiles(n=4, p50=0.5),
        e2e_s=Quantiles(n=1, p50=3.0),
        done=1,
        failed=0,
    )


def test_the_window_takes_its_beginning_and_not_its_end() -> None:
    point = estimate([request(0.0, [1.0, 2.0, 3.0, 4.0])], (2.0, 4.0), 1)
    assert point.out_tok_s == pytest.approx(2 / 2.0)
    assert (point.done, point.ttft_s, point.e2e_s) == (0, None, None)
    assert point.chunk_gap_s == Quantiles(n=2, p50=1.0)  # those that end at 2 and at 3
    assert estimate([request(0.0, [2.0, 3.0])], (2.0, 4.0), 1).ttft_s == Quantiles(n=1, p50=2.0)


def test_tokens_of_a_request_are_spread_over_its_chunks() -> None:
    point = estimate([request(0.0, [1.0, 2.0, 3.0], tokens=12)], (1.5, 3.5), 1)
    assert point.out_tok_s == pytest.approx(8 / 2.0)
    assert point.tpot_s == Quantiles(n=1, p50=2 / 11)


def test_a_cut_request_weighs_what_finished_ones_did() -> None:
    finished = request(0.0, [1.0, 2.0], tokens=6)
    cut = request(2.0, [3.0, 4.0], state=RequestState.CUT)
    assert estimate([finished, cut], (2.5, 4.5), 1).out_tok_s == pytest.approx(2 * 3 / 2.0)
    assert estimate([cut], (2.5, 4.5), 1).out_tok_s == pytest.approx(2 / 2.0)


def test_a_cut_request_has_prompt_tokens_and_ttft_but_is_not_done() -> None:
    point = estimate([request(1.0, [2.0, 3.0], state=RequestState.CUT)], (0.0, 4.0), 1)
    assert (point.prompt_tok_s, point.req_s, point.done, point.failed) == (25.0, 0.0, 0, 0)
    assert point.ttft_s == Quantiles(n=1, p50=1.0)
    assert (point.tpot_s, point.e2e_s) == (None, None)


def test_failed_requests_are_counted_and_nothing_else() -> None:
    good = request(1.0, [2.0, 3.0])
    bad = [
        request(0.0, [0.5, 2.0], state=RequestState.FAILED, tokens=2, error="HTTP 500: x"),
        request(0.0, [], state=RequestState.FAILED, wanted=2, error="HTTP 500: x"),
        request(0.0, [], state=RequestState.FAILED, wanted=2, error="cannot connect: y"),
    ]
    point = estimate([*bad, good], (1.0, 4.0), 1)
    assert (point.failed, point.errors) == (3, {"HTTP 500: x": 2, "cannot connect: y": 1})
    assert replace(point, failed=0, errors={}) == estimate([good], (1.0, 4.0), 1)


def test_a_request_longer_than_the_window_has_a_latency_where_it_ends() -> None:
    requests = closed_loop(1, ttft_s=1.0, tpot_s=1.0, tokens=20, until_s=100.0)
    point = estimate(requests, (35.0, 45.0), 1)
    assert point.e2e_s == Quantiles(n=1, p50=20.0)
    assert point.tpot_s == Quantiles(n=1, p50=1.0)


def test_shortened_requests_are_left_out_of_e2e_only() -> None:
    requests = [request(0.0, [1.0, 2.0], shortened=True), request(2.0, [3.0, 4.0, 5.0, 6.0])]
    point = estimate(requests, (0.0, 10.0), 1)
    assert (point.done, point.e2e_s) == (2, Quantiles(n=1, p50=4.0))
    assert point.tpot_s == Quantiles(n=2, p50=1.0)


def test_one_token_has_no_time_between_tokens() -> None:
    point = estimate([request(0.0, [1.0])], (0.0, 2.0), 1)
    assert (point.tpot_s, point.e2e_s) == (None, Quantiles(n=1, p50=1.0))


def test_nothing_seen_is_no_latency() -> None:
    point = estimate([request(0.0, [], state=RequestState.CUT, wanted=5)], (0.0, 2.0), 1)
    assert (point.ttft_s, point.tpot_s, point.e2e_s, point.done) == (None, None, None, 0)
    assert estimate([], (0.0, 2.0), 3).streams == 3


@pytest.mark.parametrize("window", [(1.0, 1.0), (2.0, 1.0)])
def test_an_empty_window_is_refused(window: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="a window must end after it begins"):
        estimate([], window, 1)


@pytest.mark.parametrize("offset_s", [0.0, 0.13])
def test_a_closed_loop_gives_the_exact_rate_where_total_by_total_does_not(offset_s: float) -> None:
    streams, ttft_s, tpot_s, tokens = 4, 1.001, 0.1, 11
    e2e_s = ttft_s + (tokens - 1) * tpot_s
    requests = closed_loop(streams, ttft_s, tpot_s, tokens, until_s=20.0, offset_s=offset_s)
    point = estimate(requests, (4.05, 4.05 + 3 * e2e_s), streams)
    assert point.out_tok_s == pytest.approx(streams * tokens / e2e_s)
    assert point.req_s == pytest.approx(streams / e2e_s)
    assert point.prompt_tok_s == pytest.approx(streams * 100 / e2e_s)
    # The usual way: so many requests from the first one sent to the last one answered, here with the
    # de-phased start that any real server brings about.
    first = [r for r in closed_loop(streams, ttft_s, tpot_s, tokens, 2.5 * e2e_s, 0.5) if r.output_tokens]
    total_s = max(r.chunk_s[-1] for r in first) - min(r.sent_s for r in first)
    assert sum(r.output_tokens or 0 for r in first) / total_s < 0.9 * streams * tokens / e2e_s


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=700))
def test_quantiles_are_those_of_the_standard_library_and_high_ones_need_enough(values: list[float]) -> None:
    percentiles = statistics.quantiles(values, n=100, method="inclusive")
    found = quantiles(values)
    assert found is not None
    assert (found.n, found.p50) == (len(values), pytest.approx(percentiles[49]))
    for name, floor in FLOORS.items():
        expected = pytest.approx(percentiles[int(name[1:]) - 1]) if len(values) >= floor else None
        assert name == "p50" or found.at(name) == expected


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=700))
def test_quantiles_rise_and_lie_within_their_intervals(values: list[float]) -> None:
    found = quantiles(values)
    assert found is not None
    known = [value for name in FLOORS if (value := found.at(name)) is not None]
    assert [min(values), *known, max(values)] == sorted([min(values), *known, max(values)])
    assert found.highest[1] == known[-1]
    for name, interval in found.intervals.items():
        value = found.at(name)
        assert value is not None
        assert interval.low <= value <= interval.high
        assert {interval.low, interval.high} <= set(values)


@pytest.mark.parametrize(
    ("values", "p50"), [([3.0], 3.0), ([4.0, 2.0], 3.0), ([5.0, 1.0, 3.0], 3.0), ([1.0, 2.0, 3.0, 4.0], 2.5)]
)
def test_the_median_is_always_given_and_few_values_bound_nothing(values: list[float], p50: float) -> None:
    assert quantiles(values) == Quantiles(n=len(values), p50=p50)
    assert quantiles([]) is None


def test_chunk_gaps_have_no_interval_since_one_step_makes_many() -> None:
    found = estimate([request(0.0, [float(k) for k in range(1, 800)])], (0.0, 1000.0), 1).chunk_gap_s
    assert found == Quantiles(n=798, p50=1.0, p90=1.0, p95=1.0, p99=1.0)


def test_gaps_of_different_requests_are_not_mixed() -> None:
    requests = [request(0.0, [1.0, 1.5]), request(0.0, []), request(5.0, [6.0]), request(7.0, [8.0, 8.25])]
    requests[1] = replace(requests[1], state=RequestState.CUT)
    gaps = estimate(requests, (0.0, 10.0), 1).chunk_gap_s
    assert gaps == Quantiles(n=2, p50=0.375)


SLOS = tuple(Slo.parse(text) for text in ("ttft_p95=500ms", "tpot_p90=300ms", "e2e_p99=4s"))


def close(a: Point, b: Point) -> bool:
    """Equal but for the last digits."""
    numbers = [
        [p.out_tok_s, p.prompt_tok_s, p.req_s]
        + [x for q in (p.ttft_s, p.tpot_s, p.e2e_s) if q for x in (q.n, q.p50)]
        for p in (a, b)
    ]
    counts = [(p.streams, p.window_s, p.done, p.failed, p.errors) for p in (a, b)]
    return counts[0] == counts[1] and numbers[0] == pytest.approx(numbers[1])


@given(points(), st.randoms(use_true_random=False))
def test_the_order_of_requests_does_not_matter(
    data: tuple[list[RequestRecord], tuple[float, float]], rng: random.Random
) -> None:
    requests, window = data
    shuffled = rng.sample(requests, len(requests))
    assert estimate(shuffled, window, 2, SLOS) == estimate(requests, window, 2, SLOS)


@given(points(), st.integers(-64_000, 64_000))
def test_when_the_point_began_does_not_matter(
    data: tuple[list[RequestRecord], tuple[float, float]], by: int
) -> None:
    requests, (begin, end) = data
    shift = by / 64
    shifted = [
        replace(
            r,
            sent_s=r.sent_s + shift,
            ended_s=r.ended_s + shift,
            chunk_s=tuple(c + shift for c in r.chunk_s),
        )
        for r in requests
    ]
    assert close(estimate(shifted, (begin + shift, end + shift), 2), estimate(requests, (begin, end), 2))


@given(points(), st.integers(2, 5))
def test_how_many_chunks_carry_the_tokens_does_not_matter(
    data: tuple[list[RequestRecord], tuple[float, float]], pieces: int
) -> None:
    requests, window = data
    whole = [*requests, request(0.0, [1.0], tokens=pieces)]  # so that cut requests have a ratio to go by
    split = [replace(r, chunk_s=tuple(c for c in r.chunk_s for _ in range(pieces))) for r in whole]
    assert close(estimate(split, window, 2), estimate(whole, window, 2))


@given(points(), st.integers(1, 499))
def test_two_halves_of_a_window_add_up(
    data: tuple[list[RequestRecord], tuple[float, float]], part: int
) -> None:
    requests, (begin, end) = data
    middle = begin + (end - begin) * part / 500
    halves = [estimate(requests, w, 2) for w in ((begin, middle), (middle, end))]
    whole = estimate(requests, (begin, end), 2)
    assert sum(p.done for p in halves) == whole.done
    assert sum(p.out_tok_s * p.window_s for p in halves) == pytest.approx(whole.out_tok_s * whole.window_s)
