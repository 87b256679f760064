"""How long things take, what the time is planned for, and when a search is given up."""

from dataclasses import replace

import pytest
from builders import failed, measured, objectives, record

from autotune.decide.durations import cautious_s
from autotune.decide.patience import is_spent
from autotune.decide.plan import plan
from autotune.domain.space import Configuration
from autotune.domain.study import Limits
from autotune.domain.trial import Abandoned, Origin, Step, TrialRecord

OK = measured(s1=1.0)
EAGER = ("vllm", "serve", "--enforce-eager")
COMPILED = ("vllm", "serve", "tiny")
ONE = objectives("out_tok_s@1")


def _launched(number: int, launch_s: float, measure_s: float, argv: tuple[str, ...]) -> TrialRecord:
    return replace(
        record(number, OK), step_s={Step.LAUNCH: launch_s, Step.MEASURE: measure_s, Step.STOP: 1.0}, argv=argv
    )


def test_a_launch_is_expected_by_its_kind_and_a_ladder_by_all() -> None:
    records = [_launched(n, 20.0, 40.0, EAGER) for n in range(3)]
    records += [_launched(n, 100.0, 40.0, COMPILED) for n in range(3, 6)]
    assert cautious_s(records, flags=("--enforce-eager",)) == 61.0
    assert cautious_s(records, flags=("--max-num-seqs", "8")) == 141.0
    assert cautious_s(records) == 61.0  # nothing is known of the next one: it may be of the quicker kind
    assert cautious_s(records[2:], flags=("--enforce-eager",)) == 141.0  # one launch tells little of its kind


def test_a_trial_is_expected_to_take_what_three_of_four_kept_to_and_known_ones_what_they_took() -> None:
    records = [
        _launched(n, seconds, 9.0, COMPILED) for n, seconds in enumerate((10.0, 20.0, 30.0, 90.0, 40.0))
    ]
    assert cautious_s(records, flags=()) == 50.0
    assert cautious_s(records, Configuration(values={"a": 3})) == 100.0
    assert cautious_s([record(0, failed())]) is None


def test_a_launch_of_a_trial_that_failed_later_counts() -> None:
    broke = replace(record(3, failed()), step_s={Step.LAUNCH: 200.0, Step.SMOKE: 1.0}, argv=COMPILED)
    records = [_launched(n, 100.0, 40.0, COMPILED) for n in range(3)]
    assert cautious_s([*records, broke], flags=()) == 41.0 + 125.0


def test_the_plan_is_trials_and_then_as_many_finalists_as_fit_three_times() -> None:
    records = [record(0, OK, {}, took_s=60.0)]
    found = plan(records, 29 * 60.0, Limits())
    assert found is not None
    # A third of 30 minutes: 10 launches.
    assert (found.search_trials, found.finals_blocks, found.finals_launches) == (19, 3, 9)
    assert (found.trial_s, found.finals_s) == (60.0, 540.0)
    later = plan([*records, record(1, failed(), took_s=20.0)], 29 * 60.0 - 20.0, Limits())
    assert later is not None
    assert later.trial_s == 40.0
    assert later.search_trials == 28
    assert plan([record(0, failed())], 1000.0, Limits()) is None


@pytest.mark.parametrize(("limits", "left_s"), [(Limits(finalists=0), 29 * 60.0), (Limits(), 7 * 60.0)])
def test_without_finals_all_is_searched(limits: Limits, left_s: float) -> None:
    found = plan([record(0, OK, {}, took_s=60.0)], left_s, limits)
    assert found is not None
    assert (found.search_trials, found.finals_launches) == (left_s // 60, 0)


def test_a_plan_is_told_again_when_it_changes_much() -> None:
    first = plan([record(0, OK, {}, took_s=60.0)], 60 * 60.0, Limits())
    assert first is not None
    expected = replace(first, left_s=first.left_s - 600, search_trials=first.search_trials - 10)
    assert expected.is_like(first)
    assert not replace(expected, search_trials=expected.search_trials + 12).is_like(first)
    assert not replace(first, finals_launches=3).is_like(first)


def test_patience_is_spent_by_trials_that_worked_and_together_brought_no_more_than_one_percent() -> None:
    rates = (100.0, 110.0, 110.5, 90.0, 111.0)
    records = [record(n, measured(s1=rate), {"a": n} if n else {}) for n, rate in enumerate(rates)]
    assert is_spent(records, ONE, (), 3)
    assert not is_spent(records, ONE, (), 4)  # the fourth from the end brought 10 %
    assert not is_spent(records, ONE, (), 0)
    assert not is_spent(records[:3], ONE, (), 3)
    more = [*records, record(5, measured(s1=112.3), {"a": 5})]
    assert not is_spent(more, ONE, (), 3)


def test_of_patience_failures_spend_nothing_and_what_was_given_up_does() -> None:
    records = [record(0, measured(s1=100.0), {}), record(1, measured(s1=120.0))]
    assert not is_spent([*records, record(2, failed()), record(3, failed())], ONE, (), 2)
    given_up = [record(n, Abandoned(why="far behind", points=OK.points)) for n in (2, 3)]
    assert is_spent([*records, *given_up], ONE, (), 2)
    again = [replace(record(n, measured(s1=100.0), {}), origin=Origin.CONTROL) for n in (2, 3)]
    assert not is_spent([*records, *again], ONE, (), 2)


def test_with_several_objectives_it_is_the_volume_of_the_front_that_grows() -> None:
    both = objectives("out_tok_s@8", "out_tok_s@1")
    records = [
        record(0, measured(s8=100.0, s1=10.0), {}),
        record(1, measured(s8=50.0, s1=15.0)),  # the front has grown, though neither is best by both
        record(2, measured(s8=40.0, s1=9.0)),
    ]
    assert not is_spent(records, both, (), 2)
    assert is_spent(records, both, (), 1)
