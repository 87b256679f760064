"""The intervals hold what they promise: checked exactly, and by simulation."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.decide.estimators import quantiles
from autotune.decide.intervals import order_statistic_ranks, wilson_interval
from autotune.domain.metric import FLOORS


def coverage(n: int, q: float, low: int, high: int) -> float:
    """The chance that the true quantile lies from the value of rank `low` to that of rank `high`."""
    return sum(math.comb(n, k) * q**k * (1 - q) ** (n - k) for k in range(low, high))


@given(st.integers(1, 800), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_ranks_cover_at_least_95_percent_and_could_not_be_closer(n: int, q: float) -> None:
    ranks = order_statistic_ranks(n, q)
    if ranks is None:
        assert max(q**n, (1 - q) ** n) > 0.025  # not even the extremes bound it
        return
    low, high = ranks
    assert coverage(n, q, low, high) >= 0.95
    assert 1 - coverage(n, q, low + 1, n + 1) > 0.025
    assert 1 - coverage(n, q, 0, high - 1) > 0.025


def test_ranks_of_a_million_are_those_of_the_normal_approximation() -> None:
    n, q = 10**6, 0.99
    spread = 1.959964 * math.sqrt(n * q * (1 - q))
    assert order_statistic_ranks(n, q) == pytest.approx((n * q - spread, n * q + spread + 1), abs=2)


@pytest.mark.parametrize("n", [0, 1, 5])
def test_few_values_do_not_bound_a_median(n: int) -> None:
    assert order_statistic_ranks(n, 0.5) is None
    assert order_statistic_ranks(6, 0.5) == (1, 6)


@pytest.mark.parametrize("name", FLOORS)
def test_a_floor_is_the_smallest_sample_with_two_above_the_quantile_almost_surely(name: str) -> None:
    def fewer_than_two_above(n: int) -> float:
        q = int(name[1:]) / 100
        return q**n + n * (1 - q) * q ** (n - 1)

    assert fewer_than_two_above(FLOORS[name]) <= 0.01 < fewer_than_two_above(FLOORS[name] - 1)


@pytest.mark.parametrize(("n", "name", "q"), [(20, "p50", 0.5), (100, "p90", 0.9), (200, "p95", 0.95)])
def test_order_statistics_hold_the_quantile_of_a_skewed_distribution(n: int, name: str, q: float) -> None:
    rng, runs = random.Random(11), 2000  # noqa: S311 - a simulation
    truth = -math.log(1 - q)  # of an exponential distribution with mean 1
    held = 0
    for _ in range(runs):
        found = quantiles([rng.expovariate(1.0) for _ in range(n)])
        assert found is not None
        interval = found.intervals[name]
        held += interval.low <= truth <= interval.high
    # At least 95 %, less three standard deviations of such a simulation.
    assert held / runs >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / runs)


@pytest.mark.parametrize("n", [30, 200])
def test_wilson_holds_the_share_on_average_over_shares(n: int) -> None:
    rng, runs = random.Random(5), 4000  # noqa: S311 - a simulation
    held = 0
    for _ in range(runs):
        share = rng.uniform(0.02, 0.98)
        interval = wilson_interval(sum(rng.random() < share for _ in range(n)), n)
        held += interval.low <= share <= interval.high
    assert held / runs == pytest.approx(0.95, abs=0.015)


@given(st.integers(1, 10_000).flatmap(lambda of: st.tuples(st.integers(0, of), st.just(of))))
def test_wilson_stays_within_0_and_1_and_holds_the_share_seen(counts: tuple[int, int]) -> None:
    met, of = counts
    interval = wilson_interval(met, of)
    assert 0.0 <= interval.low <= met / of <= interval.high <= 1.0
    mirrored = wilson_interval(of - met, of)
    assert (mirrored.low, mirrored.high) == pytest.approx((1 - interval.high, 1 - interval.low))


def test_a_known_wilson_interval() -> None:
    interval = wilson_interval(81, 263)  # Newcombe 1998, table I
    assert (round(interval.low, 4), round(interval.high, 4)) == (0.2553, 0.3662)


@pytest.mark.parametrize(("met", "of"), [(0, 0), (-1, 5), (6, 5)])
def test_what_is_no_share_has_no_interval(met: int, of: int) -> None:
    with pytest.raises(ValueError, match="no share"):
        wilson_interval(met, of)
