"""Pareto front, gain over the baseline, and the incumbent."""

import math

import pytest
from builders import failed, measured, objectives, record
from hypothesis import given
from hypothesis import strategies as st

from autotune.decide.ranking import CLEAR_GAIN, baseline, front, gain, incumbent, winner
from autotune.domain.objective import Objective
from autotune.domain.trial import Interrupted, Interruption, TrialRecord

RATES = st.floats(min_value=0.1, max_value=1e4)
LADDERS = st.lists(st.tuples(RATES, RATES), min_size=1, max_size=12)


def _records(ladders: list[tuple[float, float]]) -> list[TrialRecord]:
    return [record(i, measured(s1=one, s8=eight)) for i, (one, eight) in enumerate(ladders)]


@given(LADDERS)
def test_no_member_of_the_front_is_dominated_and_the_front_of_the_front_is_itself(
    ladders: list[tuple[float, float]],
) -> None:
    records = _records(ladders)
    chosen = front(records, objectives())
    assert chosen
    assert front(chosen, objectives()) == chosen
    for member in chosen:
        mine = ladders[member.number]
        assert not any(o[0] >= mine[0] and o[1] >= mine[1] and o != mine for o in ladders)


@given(LADDERS)
def test_the_incumbent_is_on_the_front(ladders: list[tuple[float, float]]) -> None:
    records = _records(ladders)
    best = incumbent(records, objectives())
    assert best in front(records, objectives())


def test_what_was_not_measured_can_never_win() -> None:
    latency = (Objective.parse("ttft_p50@8"),)
    records = [record(0, failed()), record(1, Interrupted(reason=Interruption.BUDGET)), record(2, None)]
    assert incumbent(records, latency) is None
    assert front(records, latency) == []
    assert incumbent([*records, record(3, measured(s8=1.0))], latency) == record(3, measured(s8=1.0))


def test_a_lower_latency_is_a_gain_and_the_mean_is_geometric() -> None:
    both = objectives("out_tok_s@8", "ttft_p50@8")
    assert gain((200.0, 0.05), (100.0, 0.1), both) == pytest.approx(2.0)
    assert gain((200.0, 0.2), (100.0, 0.1), both) == pytest.approx(1.0)
    assert gain((5.0,), (0.0,), objectives("out_tok_s@8")) == math.inf


def test_a_preference_overrules_the_mean() -> None:
    records = [record(1, measured(s1=30.0, s8=40.0)), record(2, measured(s1=10.0, s8=100.0))]
    assert incumbent(records, objectives(), Objective.parse("out_tok_s@1")) == records[0]
    assert incumbent(records, objectives(), Objective.parse("out_tok_s@8")) == records[1]


def test_of_equal_trials_the_earliest_wins() -> None:
    records = [record(n, measured(s1=10.0, s8=50.0)) for n in (3, 4)]
    assert incumbent(records, objectives()) == records[0]


def test_the_baseline_is_the_measured_trial_without_parameters() -> None:
    assert baseline([record(0, failed(), {}), record(1, measured(s1=1.0))]) is None
    assert baseline([record(0, measured(s1=1.0), {})]) == record(0, measured(s1=1.0), {})


def test_a_gain_within_the_noise_wins_nothing() -> None:
    base = record(0, measured(s1=10.0, s8=100.0), {})
    luck = record(1, measured(s1=10.0, s8=100.0 * (CLEAR_GAIN**2 - 0.001)))
    better = record(2, measured(s1=10.0, s8=100.0 * (CLEAR_GAIN**2 + 0.001)))
    assert winner([base, luck], objectives()) == base
    assert winner([base, luck, better], objectives()) == better
    assert winner([base, luck], objectives(), Objective.parse("out_tok_s@8")) == luck
    assert winner([luck], objectives()) == luck
    assert winner([record(0, failed(), {})], objectives()) is None
