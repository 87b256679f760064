"""Pareto front, gain over the baseline, and the incumbent."""

import math
from dataclasses import replace

import pytest
from builders import failed, measured, objectives, point, record
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
    nearest,
    score,
)
from autotune.domain.failure import Blame
from autotune.domain.measurement import Quantiles
from autotune.domain.metric_limit import parse_metric_limits
from autotune.domain.objective import Objective
from autotune.domain.trial import Interrupted, Interruption, Measured, Origin, TrialRecord

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


LIMITS = parse_metric_limits(["ttft_p50@8<=2s"])


def _timed(number: int, rate: float, ttft_s: float, **changes: object) -> TrialRecord:
    ladder = (point(1, 10.0), point(8, rate, ttft_s=ttft_s))
    made = record(number, Measured(points=ladder), {"a": number} if number else {})
    return replace(made, **changes)  # type: ignore[arg-type]


@given(st.lists(st.tuples(RATES, st.floats(min_value=0.01, max_value=10)), min_size=1, max_size=12))
def test_the_front_under_limits_is_that_of_what_keeps_them(ladders: list[tuple[float, float]]) -> None:
    records = [_timed(n, rate, ttft_s) for n, (rate, ttft_s) in enumerate(ladders)]
    keeping = [r for r, (_, ttft_s) in zip(records, ladders, strict=True) if ttft_s <= 2.0]
    assert front(records, objectives(), LIMITS) == front(keeping, objectives())
    assert incumbent(records, objectives(), limits=LIMITS) == incumbent(keeping, objectives())


def test_what_breaks_a_limit_stays_a_candidate_but_beats_nothing_and_is_never_the_best() -> None:
    records = [_timed(1, 900.0, 2.6), _timed(2, 50.0, 2.0)]
    fast, slow = candidates(records, objectives(), LIMITS)
    assert [held.value for held in fast.broken] == [pytest.approx(2.6)]
    assert (fast.keeps_limits, slow.keeps_limits) == (False, True)
    assert front(records, objectives(), LIMITS) == [records[1]]
    assert incumbent(records, objectives(), limits=LIMITS) == records[1]
    assert incumbent(records[:1], objectives(), limits=LIMITS) is None
    assert incumbent(records, objectives()) == records[0]


def test_a_limit_counts_with_the_mean_of_all_launches_until_there_are_finals() -> None:
    searched = [
        _timed(1, 50.0, 1.0),
        replace(_timed(2, 50.0, 3.0), configuration=_timed(1, 1, 1).configuration),
    ]
    (held,) = candidates(searched, objectives(), LIMITS)[0].held
    assert (held.value, held.launches, held.of_finals) == (pytest.approx(math.sqrt(3)), 2, False)
    assert held.keeps
    assert held.straddles  # two launches do not tell on which side of 2 s the true mean is
    final = replace(searched[1], number=3, origin=Origin.FINAL, block=0)
    (held,) = candidates([*searched, final], objectives(), LIMITS)[0].held
    assert (held.value, held.launches, held.of_finals) == (pytest.approx(3.0), 1, True)
    assert not held.keeps


def test_what_too_little_is_known_of_is_no_candidate_under_the_limit() -> None:
    few = replace(point(8, 900.0), ttft_s=Quantiles(n=10, p50=0.1))
    records = [record(1, Measured(points=(point(1, 10.0), few))), _timed(2, 50.0, 1.0)]
    assert [c.record.number for c in candidates(records, objectives(), LIMITS)] == [2]
    assert len(candidates(records, objectives())) == 2


def test_the_nearest_is_the_one_that_breaks_its_limits_by_the_least_in_all() -> None:
    limits = parse_metric_limits(["ttft_p50@8<=2s", "out_tok_s@8>=100"])
    records = [_timed(1, 100.0, 2.6), _timed(2, 90.0, 2.2), _timed(3, 10.0, 2.0), _timed(4, 200.0, 1.0)]
    closest = nearest(candidates(records, objectives(), limits))
    assert closest is not None
    assert closest.record.number == 2  # 10 % and 10 %, against 30 % and 90 %
    assert nearest(candidates(records[3:], objectives(), limits)) is None
    stuck = nearest(candidates([_timed(5, 0.0, 1.0)], objectives("out_tok_s@1"), limits))
    assert stuck is not None
    assert [held.value for held in stuck.broken] == [0.0]
