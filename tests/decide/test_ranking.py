"""Pareto front, gain over the baseline, and the incumbent."""

import math
from dataclasses import replace

import pytest
from builders import failed, measured, objectives, record
from hypothesis import given
from hypothesis import strategies as st

from autotune.decide.ranking import (
    baseline,
    candidates,
    clear_gain,
    failed_by_itself,
    front,
    gain,
    gain_between,
    incumbent,
    score,
)
from autotune.domain.failure import Blame
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


def test_a_configuration_measured_several_times_counts_once_with_the_geometric_mean() -> None:
    objective = objectives("out_tok_s@8")
    records = [
        record(0, measured(s8=100.0), {}),
        record(1, measured(s8=200.0), {"a": 1}),
        record(2, measured(s8=150.0), {"a": 2}),
        record(3, measured(s8=50.0), {"a": 1}),
        record(4, failed(), {"a": 1}),
    ]
    (base, first, second) = candidates(records, objective)
    assert (base.values, base.launches) == ((100.0,), 1)
    assert (first.record, first.values, first.launches) == (records[1], (pytest.approx(100.0),), 2)
    assert incumbent(records, objective) == records[2] == second.record
    assert front(records, objective) == [records[2]]
    assert gain_between(records, records[0], records[3], objective) == pytest.approx(1.0)
    assert gain_between(records, records[0], records[4], objective) == pytest.approx(1.0)
    assert gain_between(records, records[0], record(9, failed()), objective) is None


def test_the_score_of_one_is_to_that_of_another_as_the_gain() -> None:
    both = objectives("out_tok_s@8", "ttft_p50@8")
    scores = [score(record(n, measured(s8=rate)), both) for n, rate in enumerate((100.0, 300.0))]
    assert None not in scores
    assert scores[1] / scores[0] == pytest.approx(gain((300.0, 0.1), (100.0, 0.1), both))  # type: ignore[operator]
    assert score(record(0, measured(s8=0.0)), both) is None
    assert score(record(0, failed()), both) is None


def test_a_gain_is_clear_that_neither_usual_nor_seen_noise_explains() -> None:
    one, eight = objectives("out_tok_s@1"), objectives("out_tok_s@8")
    best = record(1, measured(s1=2.0, s8=2.0))
    assert clear_gain([best], eight, best) == pytest.approx(math.exp(3 * math.sqrt(2) * 0.02))
    assert clear_gain([best], one, best) > clear_gain([best], eight, best)
    drafting = replace(best, argv=(*best.argv, "--speculative-config", "{}"))
    assert clear_gain([drafting], eight, drafting) > 1.5
    wild = [record(n, measured(s8=rate), {}) for n, rate in enumerate((100.0, 200.0))]
    assert clear_gain([*wild, best], eight, best) > 4
    calm = [record(n, measured(s8=100.0), {}) for n in range(9)]
    assert clear_gain([*calm, best], eight, best) == clear_gain([best], eight, best)


def test_what_failed_by_its_own_fault_or_for_an_unknown_reason_is_remembered() -> None:
    blames = list(Blame)
    records = [record(n, failed(blame)) for n, blame in enumerate(blames)]
    own = {Blame.CONFIGURATION, Blame.UNKNOWN}
    digests = {r.configuration.digest for r, blame in zip(records, blames, strict=True) if blame in own}
    assert failed_by_itself([*records, record(99, measured(s8=1.0))]) == digests


def test_hundreds_of_launches_of_one_configuration_have_a_mean() -> None:
    records = [record(i, measured(s1=60.0, s8=700.0), {}) for i in range(400)]
    [base] = candidates(records, objectives())
    assert base.values == pytest.approx((700.0, 60.0))
    assert base.launches == 400
