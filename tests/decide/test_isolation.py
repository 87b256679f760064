"""Which settings conflict is found within the limit, and nothing wrong is learned from chance."""

from collections.abc import Mapping
from random import Random

import pytest
from builders import failed, failure
from hypothesis import given, settings
from hypothesis import strategies as st
from lesson_lab import BOOL, WORKS, Lab, crash, modes, parameter

from autotune.decide.lessons.isolation import same_way
from autotune.domain.expression import Expression
from autotune.domain.failure import Blame, FailureKind
from autotune.domain.lesson import LessonForm
from autotune.domain.space import CategoricalDomain, Configuration, IntDomain, SearchSpace, Value
from autotune.domain.study import Limits
from autotune.domain.trial import Interrupted, Interruption, Measured, Origin, Outcome

SIX = modes(3)


def _conflict(*names: str) -> Lab:
    """A study whose servers crash when all of these switches are on."""

    def server(given: Mapping[str, Value]) -> Outcome:
        return crash() if all(given.get(name) is True for name in names) else WORKS

    return Lab(space=SIX, server=server)


def _all_on(space: SearchSpace) -> Configuration:
    values = {p.name: True if p.domain == BOOL else 7 for p in space.parameters}
    return Configuration(values=values)


def test_two_of_six_suspects_are_found_within_the_limit() -> None:
    lab = _conflict("mode_0", "mode_2")
    lab.launch(Configuration(), Origin.BASELINE)
    lab.launch(_all_on(SIX), Origin.SAMPLED)
    assert lab.settle() == 4, "the numbers at once, then each switch"
    (lesson,) = lab.lessons
    assert lesson.finding.form is LessonForm.NO_GOOD
    assert lesson.finding.forbids.source == "mode_0 == true and mode_2 == true"
    assert lesson.trial == 1
    assert "without any one of mode_0, mode_2" in lesson.why


def test_three_that_only_fail_together_are_all_named() -> None:
    lab = _conflict("mode_0", "mode_1", "mode_2")
    lab.launch(Configuration(), Origin.BASELINE)
    lab.launch(_all_on(SIX), Origin.SAMPLED)
    lab.settle()
    (lesson,) = lab.lessons
    assert lesson.finding.forbids.names == {"mode_0", "mode_1", "mode_2"}


def test_a_number_that_matters_is_found_after_the_switches() -> None:
    lab = _conflict("mode_1")
    crashes = lab.server
    lab.server = lambda given: crashes(given) if given.get("size_2", 0) > 5 else WORKS  # type: ignore[operator]
    lab.limits = Limits(isolation_launches=20)
    lab.launch(Configuration(), Origin.BASELINE)
    lab.launch(_all_on(SIX), Origin.SAMPLED)
    lab.settle()
    assert lab.lessons[0].finding.forbids.source == "mode_1 == true and size_2 == 7"


def test_what_depends_on_a_mode_goes_with_it_and_its_number_is_changed_not_left_out() -> None:
    spec = parameter("spec", CategoricalDomain(choices=("off", "ngram")), omit=("off",))
    tokens = parameter("tokens", IntDomain(low=2, high=6))
    when = Expression.parse("spec == 'ngram'")
    tokens = type(tokens)(name="tokens", domain=tokens.domain, target=tokens.target, when=when)
    space = SearchSpace(name="s", parameters=(parameter("cache", BOOL), spec, tokens))
    launched: list[Mapping[str, Value]] = []

    def server(given: Mapping[str, Value]) -> Outcome:
        launched.append(given)
        return crash() if given.get("cache") is True and given.get("spec") == "ngram" else WORKS

    lab = Lab(space=space, server=server)
    lab.launch(Configuration(), Origin.BASELINE)
    lab.launch(Configuration(values={"cache": True, "spec": "ngram", "tokens": 5}), Origin.SAMPLED)
    lab.settle()
    assert lab.lessons[0].finding.forbids.source == 'cache == true and spec == "ngram"'
    assert all(("tokens" in given) == ("spec" in given) for given in launched)


def test_a_failure_that_does_not_come_back_teaches_nothing() -> None:
    lab = _conflict("mode_0")
    outcomes = iter([WORKS, crash()])
    lab.server = lambda _: next(outcomes, WORKS)
    lab.launch(Configuration(), Origin.BASELINE)
    lab.launch(_all_on(SIX), Origin.SAMPLED)
    assert lab.settle() <= Limits().isolation_launches
    assert lab.lessons == []
    again = [r for r in lab.records if r.configuration == _all_on(SIX)]
    assert [type(r.outcome).__name__ for r in again] == ["Failed", "Measured"]


def test_when_launches_run_out_what_was_not_tried_stays_part_of_the_lesson() -> None:
    space = modes(12)
    lab = _conflict("mode_0")
    lab.space, lab.limits = space, Limits(isolation_launches=3)
    lab.launch(Configuration(), Origin.BASELINE)
    lab.launch(_all_on(space), Origin.SAMPLED)
    assert lab.settle() == 3
    (lesson,) = lab.lessons
    assert "could not be tried without" in lesson.why
    assert lesson.finding.forbids.names == {f"mode_{i}" for i in range(12)} - {"mode_1"}


def test_nothing_is_launched_for_the_baseline_or_for_faults_that_are_not_the_settings() -> None:
    for outcome in (failed(Blame.ENVIRONMENT), crash(kind=FailureKind.STALL), failed(Blame.USER)):
        lab = Lab(space=SIX, server=lambda _, outcome=outcome: outcome)  # type: ignore[misc]
        lab.launch(Configuration(), Origin.BASELINE)
        lab.launch(_all_on(SIX), Origin.SAMPLED)
        assert lab.settle() == 0
        assert lab.lessons == []
    lab = Lab(space=SIX, server=lambda _: crash())
    lab.launch(Configuration(), Origin.BASELINE)
    assert lab.settle() == 0


def test_what_fails_without_any_setting_forbids_nothing() -> None:
    lab = Lab(space=SIX, server=lambda _: crash())
    lab.launch(Configuration(), Origin.BASELINE)
    lab.launch(_all_on(SIX), Origin.SAMPLED)
    assert lab.settle() <= Limits().isolation_launches
    assert lab.lessons == []


def test_a_probe_that_was_cut_short_is_not_taken_for_an_answer() -> None:
    lab = _conflict("mode_0", "mode_2")
    works = lab.server
    lab.launch(Configuration(), Origin.BASELINE)
    lab.launch(_all_on(SIX), Origin.SAMPLED)
    lab.server = lambda _: Interrupted(reason=Interruption.KILLED)
    assert lab.advance()
    lab.server = works
    lab.settle()
    assert {"mode_0", "mode_2"} <= lab.lessons[0].finding.forbids.names


def test_the_answer_of_an_earlier_trial_is_not_launched_again() -> None:
    lab = _conflict("mode_0", "mode_2")
    lab.launch(Configuration(), Origin.BASELINE)
    without_numbers = {"mode_0": True, "mode_1": True, "mode_2": True}
    lab.launch(Configuration(values={**without_numbers, "mode_0": False}), Origin.SAMPLED)
    lab.launch(_all_on(SIX), Origin.SAMPLED)
    assert lab.settle() == 3
    assert lab.lessons[0].finding.forbids.source == "mode_0 == true and mode_2 == true"


def test_failures_are_the_same_by_rule_and_line_numbers_aside() -> None:
    one = failure(rule="a", root_line="got 17 of 0xff")
    assert same_way(one, failure(rule="a", root_line="got 4 of 0x1"))
    assert not same_way(one, failure(rule="b", root_line="got 17 of 0xff"))
    assert not same_way(one, failure(rule="a", root_line="got none"))
    bare = failure(root_line="AssertionError", frames=("one (a.py:1)", "two (b.py:2)"))
    assert same_way(bare, failure(root_line="AssertionError", frames=("x (y.py:1)", "two (b.py:9)")))
    assert not same_way(bare, failure(root_line="AssertionError", frames=("three (b.py:2)",)))
    assert not same_way(failure(), failure(kind=FailureKind.UNKNOWN))


@settings(max_examples=25, deadline=None)
@given(
    conflict=st.sets(st.integers(0, 5), min_size=1, max_size=3),
    limit=st.integers(0, 12),
    seed=st.integers(0, 2**32),
)
def test_a_lesson_is_part_of_what_failed_fails_itself_and_never_forbids_what_worked(
    conflict: set[int], limit: int, seed: int
) -> None:
    names = [f"mode_{i}" for i in conflict]
    lab = _conflict(*names)
    lab.space, lab.limits = modes(6), Limits(isolation_launches=limit)
    lab.search(Random(seed), trials=15)  # noqa: S311
    probes = [r for r in lab.records if r.origin is Origin.ISOLATION]
    assert len(probes) <= limit, "all fail in one way, and only the first is isolated"
    for lesson in lab.lessons:
        taught_by = lab.records[lesson.trial].configuration.values
        assert lesson.finding.rejects(taught_by)
        assert lesson.finding.forbids.names <= taught_by.keys()
        assert lesson.finding.forbids.names >= set(names), "what is forbidden fails itself"
        for record in lab.records:
            if isinstance(record.outcome, Measured):
                assert not lesson.finding.rejects(record.configuration.values)


@pytest.mark.parametrize("stop_after", range(2, 8))
def test_a_study_stopped_at_any_trial_isolates_on_as_if_it_had_not(stop_after: int) -> None:
    straight, stopped = _conflict("mode_0", "mode_2"), _conflict("mode_0", "mode_2")
    for lab in (straight, stopped):
        lab.launch(Configuration(), Origin.BASELINE)
        lab.launch(_all_on(SIX), Origin.SAMPLED)
    straight.settle()
    while len(stopped.records) < stop_after and stopped.advance():
        pass
    again = Lab(space=SIX, server=stopped.server, records=stopped.records)
    again.learn()  # the lesson was not kept before the kill
    again.settle()
    assert again.records == straight.records
    assert again.lessons == straight.lessons
