"""Which failures are run again, in which order, and what the second run says of them."""

from dataclasses import replace

import pytest
from builders import failure, measured, point, record
from hypothesis import given
from hypothesis import strategies as st

from autotune.decide.recheck import UNKNOWN_WORDS, judge, streams_to_recheck, to_recheck
from autotune.domain.failure import Blame, Failure, FailureKind, Phase
from autotune.domain.recheck import Verdict
from autotune.domain.trial import Failed, Interrupted, Interruption, Outcome, TrialRecord
from autotune.files.rules import VLLM_RULES, read_rules


def crash(rule: str | None = None, **changes: object) -> Failure:
    return failure(kind=FailureKind.ENGINE_CRASH, rule=rule, **changes)


def trials(*failures: Outcome | Failure) -> list[TrialRecord]:
    outcomes = [Failed(failure=f) if isinstance(f, Failure) else f for f in failures]
    return [record(number, outcome) for number, outcome in enumerate(outcomes)]


def chosen(records: list[TrialRecord]) -> list[int]:
    return [r.number for r in to_recheck(records)]


def test_one_of_each_failure_comes_first() -> None:
    assert chosen(trials(crash("a"), crash("a"), crash("b"), crash("a"), crash("b"))) == [0, 2, 1, 4, 3]


def test_only_what_another_vllm_could_cure_is_chosen() -> None:
    kinds = {kind: chosen(trials(failure(kind=kind))) == [0] for kind in FailureKind}
    assert {kind.value for kind, again in kinds.items() if again} == {
        "incompatible",
        "unsupported",
        "engine_crash",
        "unknown",
    }
    assert chosen(trials(crash(blame=Blame.ENVIRONMENT), measured(s1=1.0))) == []
    assert chosen(trials(failure(kind=FailureKind.BAD_FLAG, rule="flag-unknown"))) == [0]
    assert chosen(trials(failure(kind=FailureKind.BAD_FLAG, rule="config-length-above-model"))) == []


def test_a_configuration_is_run_once_and_not_when_it_has_worked() -> None:
    first, again, worked, other = trials(crash("a"), crash("a"), measured(s1=1.0), crash("a"))
    again = replace(again, configuration=first.configuration)
    assert chosen([first, again, worked, other]) == [1, 3]
    worked = replace(worked, configuration=first.configuration)
    assert chosen([first, again, worked, other]) == [3]


def test_the_rules_of_unknown_words_are_rules() -> None:
    assert set(UNKNOWN_WORDS) <= read_rules(VLLM_RULES).index.order.keys()


@pytest.mark.parametrize(
    ("phase", "measured_streams", "streams"),
    [
        (Phase.KV_CACHE, (), (1,)),
        (Phase.FIRST_REQUEST, (), (1,)),
        (Phase.SERVING, (), (1,)),
        (Phase.SERVING, (1, 2), (1, 8)),
        (Phase.SERVING, (1, 2, 8), (1,)),
    ],
)
def test_what_failed_under_load_is_put_under_that_load_again(
    phase: Phase, measured_streams: tuple[int, ...], streams: tuple[int, ...]
) -> None:
    points = tuple(point(n, 1.0) for n in measured_streams)
    trial = record(0, Failed(failure=crash(phase=phase), points=points))
    assert streams_to_recheck(trial, (1, 2, 8)) == streams


@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [
        (measured(s1=1.0), Verdict.WORKS),
        (Failed(failure=crash("a", phase=Phase.SERVING)), Verdict.STILL_FAILS),
        (Failed(failure=crash("b")), Verdict.FAILS_OTHERWISE),
        (Failed(failure=crash()), Verdict.FAILS_OTHERWISE),
        (Failed(failure=failure(Blame.ENVIRONMENT)), Verdict.UNDECIDED),
        (Failed(failure=failure(Blame.USER)), Verdict.UNDECIDED),
        (Interrupted(reason=Interruption.BUDGET), Verdict.UNDECIDED),
    ],
)
def test_the_second_run_is_judged_by_the_rule_that_names_it(outcome: Outcome, verdict: Verdict) -> None:
    assert judge(crash("a"), outcome)[0] is verdict


@given(st.integers(0, 2**64), st.integers(0, 2**64))
def test_an_unknown_error_is_the_same_whatever_its_addresses(one: int, other: int) -> None:
    before = crash(root_line=f"FrobError: block {one} at {one:#x}")
    same = Failed(failure=crash(root_line=f"FrobError: block {other} at {other:#x}"))
    assert judge(before, same)[0] is Verdict.STILL_FAILS
    assert judge(before, Failed(failure=crash(root_line="FrobError: no block")))[0] is Verdict.FAILS_OTHERWISE
