"""The estimators: known answers, and the laws that follow from their definitions."""

import random
import statistics
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.decide.estimators import estimate, quantiles
from autotune.domain.measurement import Point, Quantiles, RequestRecord, RequestState


def request(
    sent_s: float,
    chunk_s: Sequence[float],
    *,
    tokens: int | None = None,
    state: RequestState = RequestState.DONE,
    wanted: int | None = None,
    prompt_tokens: int | None = 100,
    error: str | None = None,
) -> RequestRecord:
    count = len(chunk_s) if tokens is None and state is RequestState.DONE else tokens
    return RequestRecord(
        stream=0,
        sequence=1,
        prompt_index=0,
        sent_s=sent_s,
        chunk_s=tuple(chunk_s),
        ended_s=chunk_s[-1] if chunk_s else sent_s,
        wanted_output_tokens=wanted or count or len(chunk_s),
        prompt_tokens=prompt_tokens,
        output_tokens=count,
        state=state,
        error=error,
    )


def closed_loop(
    streams: int, ttft_s: float, tpot_s: float, tokens: int, until_s: float, offset_s: float = 0.0
) -> list[RequestRecord]:
    """What `streams` clients of a server of constant speed see, each `offset_s` later than the one before."""
    requests = []
    for stream in range(streams):
        sent = stream * offset_s
        while sent < until_s:
            chunks = [sent + ttft_s + k * tpot_s for k in range(tokens)]
            seen = [c for c in chunks if c < until_s]
            cut = len(seen) < tokens
            state = RequestState.CUT if cut else RequestState.DONE
            requests.append(request(sent, seen, state=state, tokens=None if cut else tokens, wanted=tokens))
            sent = chunks[-1]
    return requests


def test_a_window_over_one_request() -> None:
    point = estimate([request(1.0, [2.0, 2.5, 3.0, 3.5, 4.0])], (0.0, 10.0), 1)
    assert point == Point(
        streams=1,
        window_s=10.0,
        out_tok_s=0.5,
        prompt_tok_s=10.0,
        req_s=0.1,
        ttft_s=Quantiles(n=1, p50=1.0, p95=1.0),
        tpot_s=Quantiles(n=1, p50=0.5, p95=0.5),
        e2e_s=Quantiles(n=1, p50=3.0, p95=3.0),
        done=1,
        failed=0,
    )


def test_the_window_takes_its_beginning_and_not_its_end() -> None:
    point = estimate([request(0.0, [1.0, 2.0, 3.0, 4.0])], (2.0, 4.0), 1)
    assert point.out_tok_s == pytest.approx(2 / 2.0)
    assert (point.done, point.ttft_s, point.e2e_s) == (0, None, None)
    assert estimate([request(0.0, [2.0, 3.0])], (2.0, 4.0), 1).ttft_s == Quantiles(n=1, p50=2.0, p95=2.0)


def test_tokens_of_a_request_are_spread_over_its_chunks() -> None:
    point = estimate([request(0.0, [1.0, 2.0, 3.0], tokens=12)], (1.5, 3.5), 1)
    assert point.out_tok_s == pytest.approx(8 / 2.0)
    assert point.tpot_s == Quantiles(n=1, p50=2 / 11, p95=2 / 11)


def test_a_cut_request_weighs_what_finished_ones_did() -> None:
    finished = request(0.0, [1.0, 2.0], tokens=6)
    cut = request(2.0, [3.0, 4.0], state=RequestState.CUT)
    assert estimate([finished, cut], (2.5, 4.5), 1).out_tok_s == pytest.approx(2 * 3 / 2.0)
    assert estimate([cut], (2.5, 4.5), 1).out_tok_s == pytest.approx(2 / 2.0)


def test_a_cut_request_has_prompt_tokens_and_ttft_but_is_not_done() -> None:
    point = estimate([request(1.0, [2.0, 3.0], state=RequestState.CUT)], (0.0, 4.0), 1)
    assert (point.prompt_tok_s, point.req_s, point.done, point.failed) == (25.0, 0.0, 0, 0)
    assert point.ttft_s == Quantiles(n=1, p50=1.0, p95=1.0)
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
    assert point.e2e_s == Quantiles(n=1, p50=20.0, p95=20.0)
    assert point.tpot_s == Quantiles(n=1, p50=1.0, p95=1.0)


def test_shortened_requests_are_left_out_of_e2e_only() -> None:
    requests = [request(0.0, [1.0, 2.0], wanted=2), request(2.0, [3.0, 4.0, 5.0, 6.0], wanted=4)]
    point = estimate(requests, (0.0, 10.0), 1)
    assert (point.done, point.e2e_s) == (2, Quantiles(n=1, p50=4.0, p95=4.0))
    assert point.tpot_s == Quantiles(n=2, p50=1.0, p95=1.0)


def test_one_token_has_no_time_between_tokens() -> None:
    point = estimate([request(0.0, [1.0])], (0.0, 2.0), 1)
    assert (point.tpot_s, point.e2e_s) == (None, Quantiles(n=1, p50=1.0, p95=1.0))


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


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=50))
def test_quantiles_are_those_of_the_standard_library(values: list[float]) -> None:
    twentieths = statistics.quantiles(values, n=20, method="inclusive")
    assert quantiles(values) == Quantiles(
        n=len(values), p50=pytest.approx(twentieths[9]), p95=pytest.approx(twentieths[18])
    )


@pytest.mark.parametrize(
    ("values", "p50", "p95"),
    [([3.0], 3.0, 3.0), ([4.0, 2.0], 3.0, 3.9), ([5.0, 1.0, 3.0], 3.0, 4.8), (list(range(101)), 50.0, 95.0)],
)
def test_known_quantiles(values: list[float], p50: float, p95: float) -> None:
    assert quantiles(values) == Quantiles(n=len(values), p50=pytest.approx(p50), p95=pytest.approx(p95))
    assert quantiles([]) is None


@st.composite
def points(draw: st.DrawFn) -> tuple[list[RequestRecord], tuple[float, float]]:
    """Requests as a point may bring them; times in 1/64 s, so that shifting them is exact."""
    requests = []
    for _ in range(draw(st.integers(0, 12))):
        sent = draw(st.integers(0, 600))
        gaps = draw(st.lists(st.integers(1, 60), max_size=8))
        chunks = [(sent + sum(gaps[: k + 1])) / 64 for k in range(len(gaps))]
        state = draw(st.sampled_from(RequestState if chunks else [RequestState.CUT, RequestState.FAILED]))
        requests.append(
            request(
                sent / 64,
                chunks,
                state=state,
                tokens=draw(st.integers(1, 40)) if state is RequestState.DONE else None,
                wanted=draw(st.sampled_from([20, 40])),
                error="x" if state is RequestState.FAILED else None,
            )
        )
    begin = draw(st.integers(0, 500))
    return requests, (begin / 64, (begin + draw(st.integers(1, 500))) / 64)


def close(a: Point, b: Point) -> bool:
    """Equal but for the last digits."""
    numbers = [
        [p.out_tok_s, p.prompt_tok_s, p.req_s]
        + [x for q in (p.ttft_s, p.tpot_s, p.e2e_s) if q for x in (q.n, q.p50, q.p95)]
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
    assert estimate(shuffled, window, 2) == estimate(requests, window, 2)


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
