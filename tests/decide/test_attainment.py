"""Which requests keep the service-level objectives, and whose fate is known."""

from dataclasses import replace

import pytest
from hypothesis import given
from raw_requests import points, request

from autotune.decide.estimators import estimate
from autotune.domain.measurement import Point, RequestRecord, RequestState
from autotune.domain.slo import Slo, parse_slos

WINDOW = (10.0, 20.0)


def judged(requests: list[RequestRecord], *slos: str) -> tuple[int, int, float]:
    """Met, of how many, and the goodput in requests per window."""
    point = estimate(requests, WINDOW, 1, parse_slos(slos))
    assert point.goodput_req_s is not None
    goodput = point.goodput_req_s * point.window_s
    return (point.slo.met, point.slo.of, goodput) if point.slo else (0, 0, goodput)


def waiting(sent_s: float, *, shortened: bool = False) -> RequestRecord:
    """A request without output when the load was stopped, just after the window."""
    cut = request(sent_s, [], state=RequestState.CUT, wanted=4, shortened=shortened)
    return replace(cut, ended_s=20.1)


GOOD = request(11.0, [12.0, 12.5, 13.0])  # TTFT 1 s, TPOT 0.5 s, e2e 2 s


@pytest.mark.parametrize(
    ("slos", "met"),
    [
        (("ttft_p95=1s",), 1),
        (("ttft_p95=999ms",), 0),
        (("tpot_p95=500ms",), 1),
        (("tpot_p95=499ms",), 0),
        (("e2e_p95=2s",), 1),
        (("e2e_p95=1.9s",), 0),
        (("ttft_p95=1s", "tpot_p95=499ms"), 0),
        (("ttft_p50=2s", "ttft_p99=900ms"), 0),
    ],
)
def test_a_request_keeps_all_limits_or_none_of_it_counts(slos: tuple[str, ...], met: int) -> None:
    assert judged([GOOD], *slos) == (met, 1, pytest.approx(met))


def test_without_objectives_there_is_nothing_to_keep() -> None:
    point = estimate([GOOD], WINDOW, 1)
    assert (point.slo, point.goodput_req_s) == (None, None)


def test_only_what_ends_in_the_window_is_judged() -> None:
    before, after = request(5.0, [6.0, 9.9]), request(15.0, [16.0, 20.0])
    assert judged([before, after, GOOD], "ttft_p95=2s") == (1, 1, pytest.approx(1.0))


def test_a_failure_in_the_window_is_a_miss_and_one_before_it_is_not_its_business() -> None:
    bad = replace(request(11.0, [], state=RequestState.FAILED, wanted=4, error="x"), ended_s=12.0)
    early = replace(bad, sent_s=1.0, ended_s=9.0)
    assert judged([GOOD, bad, early], "ttft_p95=2s") == (1, 2, pytest.approx(1.0))


def test_a_request_that_waits_longer_than_allowed_is_a_miss_before_it_is_over() -> None:
    assert judged([waiting(17.0)], "ttft_p95=2s") == (0, 1, 0.0)
    assert judged([waiting(19.0)], "ttft_p95=2s") == (0, 0, 0.0)
    assert judged([waiting(17.0)], "e2e_p95=2s") == (0, 1, 0.0)
    assert judged([waiting(17.0)], "tpot_p95=1ms") == (0, 0, 0.0)
    # It has output: its time to the first is over, and whether it keeps the rest is not known yet.
    assert judged([request(11.0, [15.0], state=RequestState.CUT)], "e2e_p95=30s", "ttft_p95=2s") == (
        0,
        0,
        0.0,
    )


def test_a_server_that_hangs_keeps_nothing_although_nothing_ended() -> None:
    point = estimate([waiting(0.0) for _ in range(8)], WINDOW, 8, parse_slos(["ttft_p95=2s"]))
    assert point.slo is not None
    assert (point.slo.share, point.slo.of) == (0.0, 8)


def test_a_shortened_request_is_not_judged_by_its_whole_time() -> None:
    short = replace(GOOD, shortened=True)
    assert judged([short], "e2e_p95=1s") == (0, 0, 0.0)
    assert judged([short], "e2e_p95=1s", "ttft_p95=1s") == (1, 1, pytest.approx(1.0))
    assert judged([waiting(17.0, shortened=True)], "e2e_p95=1s") == (0, 0, 0.0)


def test_one_token_has_no_time_per_token_to_break() -> None:
    assert judged([request(11.0, [12.0])], "tpot_p95=1ms") == (1, 1, pytest.approx(1.0))


@given(points())
def test_a_looser_limit_is_kept_by_no_fewer(data: tuple[list[RequestRecord], tuple[float, float]]) -> None:
    requests, window = data

    def at(limit_s: float) -> Point:
        slos = [Slo(latency=slo.latency, percentile=95, limit_s=limit_s) for slo in parse_slos(ALL)]
        return estimate(requests, window, 1, slos)

    tight, loose = at(0.5), at(2.0)
    assert (tight.goodput_req_s or 0.0) <= (loose.goodput_req_s or 0.0) <= loose.req_s
    if tight.slo and loose.slo:
        assert tight.slo.met <= loose.slo.met
        assert tight.slo.of >= loose.slo.of


ALL = ("ttft_p95=1s", "tpot_p95=1s", "e2e_p95=1s")
