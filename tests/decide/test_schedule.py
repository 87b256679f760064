"""When to start, try again, and end."""

import pytest
from builders import failed, measured, record

from autotune.decide.schedule import attributed, due_retry, stopping_failure, worth_starting
from autotune.domain.failure import Blame
from autotune.domain.space import Configuration
from autotune.domain.trial import Failed, Interrupted, Interruption, Outcome

OK = measured(s1=1.0)


def test_nothing_is_started_that_is_expected_to_outlast_the_budget() -> None:
    records = [record(0, OK, took_s=60.0), record(1, OK, took_s=80.0), record(2, failed(), took_s=5.0)]
    assert worth_starting(records, left_s=71.0)
    assert not worth_starting(records, left_s=69.0)


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
