"""When to start, try again, and end."""

from dataclasses import replace

import pytest
from builders import failed, measured, record

from autotune.decide.schedule import attributed, control_due, due_retry, stopping_failure, worth_starting
from autotune.domain.failure import Blame
from autotune.domain.space import Configuration
from autotune.domain.trial import Failed, Interrupted, Interruption, Origin, Outcome, TrialRecord

OK = measured(s1=1.0)


def test_nothing_is_started_that_is_expected_to_outlast_the_budget() -> None:
    records = [record(0, OK, took_s=60.0), record(1, OK, took_s=80.0), record(2, failed(), took_s=5.0)]
    assert worth_starting(records, left_s=76.0)
    assert not worth_starting(records, left_s=74.0)  # three of four are expected to take 75 s or less


def test_before_the_first_measured_trial_anything_is_worth_trying_while_time_is_left() -> None:
    assert worth_starting([record(0, failed())], left_s=1.0)
    assert not worth_starting([], left_s=0.0)


@pytest.mark.parametrize(
    ("outcomes", "due"),
    [
        ([OK], False),
        ([failed()], False),
        ([failed(Blame.UNKNOWN)], False),
        ([failed(Blame.ENVIRONMENT)], True),
        ([failed(Blame.ENVIRONMENT), failed(Blame.ENVIRONMENT)], False),
        ([failed(Blame.ENVIRONMENT), OK], False),
        ([Interrupted(reason=Interruption.KILLED)], True),
        ([Interrupted(reason=Interruption.KILLED)] * 2, False),
        ([Interrupted(reason=Interruption.BUDGET)] * 3, True),
        ([Interrupted(reason=Interruption.USER), OK], False),
        ([failed(Blame.USER)], True),
    ],
)
def test_what_was_cut_short_is_tried_again_and_a_fault_only_once(outcomes: list[Outcome], due: bool) -> None:
    records = [record(n, outcome, {"a": 1}) for n, outcome in enumerate(outcomes)]
    assert (due_retry(records, retries=1) == Configuration(values={"a": 1})) is due


@pytest.mark.parametrize("origin", [Origin.CONTROL, Origin.FINAL])
def test_a_control_or_a_final_that_was_cut_short_is_not_made_good(origin: Origin) -> None:
    cut = replace(record(1, Interrupted(reason=Interruption.BUDGET), {"a": 1}), origin=origin)
    assert due_retry([record(0, OK, {"a": 1}), cut], retries=1) is None


def _trials(*origins: Origin) -> list[TrialRecord]:
    """The baseline is what has no parameters: a control, and here every final, too."""
    bare = (Origin.BASELINE, Origin.CONTROL, Origin.FINAL)
    return [
        replace(record(n, OK, {} if origin in bare else {"a": n}), origin=origin)
        for n, origin in enumerate(origins)
    ]


def test_the_baseline_is_measured_again_after_so_many_trials_that_are_new() -> None:
    base, new, again = Origin.BASELINE, Origin.SAMPLED, Origin.RETRY
    assert not control_due(_trials(base, *[new] * 5), every=6)
    assert control_due(_trials(base, *[new] * 6), every=6)
    assert control_due(_trials(base, *[new] * 5, Origin.ISOLATION), every=6)
    assert not control_due(_trials(base, *[new] * 5, again), every=6)
    assert not control_due(_trials(base, *[new] * 6, Origin.CONTROL, *[new] * 5), every=6)
    assert not control_due(_trials(base, *[new] * 6, Origin.FINAL), every=6)
    assert not control_due(_trials(base, *[new] * 60), every=0)
    assert not control_due([record(0, failed(), {}), *_trials(*[new] * 9)], every=6)


def test_a_fault_of_one_configuration_is_not_counted_to_another() -> None:
    records = [record(n, failed(Blame.ENVIRONMENT), {"a": n // 2}) for n in range(3)]
    assert due_retry(records, retries=1) == Configuration(values={"a": 1})


def test_a_study_is_stopped_by_what_the_user_must_mend_and_by_three_faults_in_a_row() -> None:
    fault, user = failed(Blame.ENVIRONMENT), failed(Blame.USER)
    assert stopping_failure([]) is None
    assert stopping_failure([record(0, user)]) == user
    assert stopping_failure([record(0, user), record(1, OK)]) is None
    assert stopping_failure([record(n, fault) for n in range(2)]) is None
    assert stopping_failure([record(n, fault) for n in range(3)]) == fault
    assert stopping_failure([record(0, fault), record(1, failed()), record(2, fault)]) is None


def test_once_something_worked_a_missing_file_belongs_to_the_settings_and_ends_nothing() -> None:
    user = failed(Blame.USER)
    assert attributed(user, [record(0, failed())]) == user
    later = attributed(user, [record(0, OK), record(1, failed())])
    assert isinstance(later, Failed)
    assert later.failure.blame is Blame.CONFIGURATION
    assert later.failure.why == user.failure.why
    for other in (OK, failed(Blame.ENVIRONMENT), Interrupted(reason=Interruption.USER)):
        assert attributed(other, [record(0, OK)]) == other
