"""Levels of a ladder over several launches."""

import math
from dataclasses import replace

import pytest
from builders import failed, measured, point, record
from hypothesis import given
from hypothesis import strategies as st

from autotune.decide.ladder import estimate, ladder, launches_by_configuration
from autotune.domain.measurement import Interval, Quantiles
from autotune.domain.trial import Measured


def test_one_launch_has_the_interval_of_its_requests_for_latencies_and_none_for_a_rate() -> None:
    seen = Quantiles(n=20, p50=0.2, intervals={"p50": Interval(low=0.15, high=0.3)})
    [level] = ladder([record(0, Measured(points=(replace(point(8, 100.0), ttft_s=seen, tpot_s=None),)))])
    assert level.out_tok_s is not None
    assert (level.out_tok_s.value, level.out_tok_s.interval) == (100.0, None)
    assert level.ttft_s is not None
    assert (level.ttft_s.value, level.ttft_s.interval) == (0.2, Interval(low=0.15, high=0.3))
    assert (level.tpot_s, level.launches) == (None, 1)


def test_several_launches_have_the_t_interval_of_their_logarithms() -> None:
    [low, _high] = ladder([record(i, measured(s1=rate, s8=rate)) for i, rate in enumerate((90.0, 110.0))])
    assert low.launches == 2
    assert low.out_tok_s is not None
    assert low.out_tok_s.value == pytest.approx(math.sqrt(90 * 110))
    # t of 1 degree of freedom at 97.5 % is 12.706; half the distance of two logarithms is their error.
    reach = math.exp(12.7062 * math.log(110 / 90) / 2)
    assert low.out_tok_s.interval is not None
    assert low.out_tok_s.interval.high == pytest.approx(low.out_tok_s.value * reach, rel=1e-4)
    assert low.out_tok_s.interval.low == pytest.approx(low.out_tok_s.value / reach, rel=1e-4)


@given(st.lists(st.floats(0.1, 1e4), min_size=1, max_size=6))
def test_the_mean_lies_within_its_interval_and_between_the_launches(rates: list[float]) -> None:
    found = estimate([point(1, rate) for rate in rates], "out_tok_s")
    assert found is not None
    assert min(rates) * (1 - 1e-9) <= found.value <= max(rates) * (1 + 1e-9)
    if found.interval is not None:
        assert found.interval.low <= found.value <= found.interval.high


def test_nothing_above_0_has_no_estimate() -> None:
    assert estimate([point(1, 0.0)], "out_tok_s") is None
    assert estimate([], "out_tok_s") is None


def test_only_measured_trials_are_launches_of_a_configuration() -> None:
    records = [
        record(0, measured(s1=1.0), values={"a": 1}),
        record(1, failed(), values={"a": 1}),
        record(2, measured(s1=2.0), values={"a": 1}),
        record(3, measured(s1=3.0), values={"a": 2}),
    ]
    found = launches_by_configuration(records)
    assert [[r.number for r in own] for own in found.values()] == [[0, 2], [3]]
