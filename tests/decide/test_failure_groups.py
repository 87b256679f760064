"""Failures by their cause."""

from dataclasses import replace

from builders import BEGIN, failed, failure, measured, record

from autotune.decide.failure_groups import failure_groups
from autotune.domain.expression import Expression
from autotune.domain.failure import FailureKind, Phase
from autotune.domain.lesson import Finding, Lesson, LessonForm, Scope
from autotune.domain.trial import Failed, TrialRecord


def trial(number: int, took_s: float, **changes: object) -> TrialRecord:
    return record(number, Failed(failure=failure(**changes)), took_s=took_s)


def lesson(trial: int, study: str = "tiny") -> Lesson:
    return Lesson(
        number=trial,
        finding=Finding(form=LessonForm.BAN, forbids=Expression.parse("a == 1")),
        why="w",
        kind=FailureKind.INCOMPATIBLE,
        trial=trial,
        study=study,
        scope=Scope(vllm_version="1", model="m", architecture="a", device="d"),
    )


def test_one_rule_is_one_cause_whatever_the_numbers_and_the_costliest_comes_first() -> None:
    records = [
        trial(0, 10, rule="r", root_line="needs 3 GiB", why="needs 3"),
        record(1, measured(s1=1.0, s8=2.0)),
        trial(2, 100, kind=FailureKind.GPU_OOM, rule="oom"),
        trial(3, 30, rule="r", root_line="wants other words", why="needs 4"),
    ]
    groups = failure_groups(records, [], "tiny")
    assert [(group.trials, group.lost_s) for group in groups] == [((2,), 100), ((0, 3), 40)]
    assert groups[1].example.why == "needs 3"


def test_without_a_rule_a_root_line_is_the_same_but_for_numbers_and_addresses() -> None:
    lines = ["RuntimeError at 0x7fA0: 12.5 MiB", "RuntimeError at 0xDEAD: 3 MiB", "RuntimeError: 3 MiB"]
    records = [trial(i, 1, root_line=line, kind=FailureKind.UNKNOWN) for i, line in enumerate(lines)]
    assert [group.trials for group in failure_groups(records, [], "tiny")] == [(0, 1), (2,)]


def test_without_a_root_line_it_is_how_far_the_server_had_come() -> None:
    phases = [Phase.WEIGHTS, Phase.GRAPHS, Phase.WEIGHTS]
    records = [trial(i, 1, phase=phase, kind=FailureKind.SILENT) for i, phase in enumerate(phases)]
    assert [group.trials for group in failure_groups(records, [], "tiny")] == [(0, 2), (1,)]


def test_lessons_go_with_the_trials_that_taught_them_in_this_study() -> None:
    records = [trial(0, 10, rule="r"), trial(3, 5, rule="s")]
    groups = failure_groups(records, [lesson(0), lesson(3, study="another"), lesson(7)], "tiny")
    assert [[own.number for own in group.lessons] for group in groups] == [[0], []]


def test_a_failed_trial_without_an_end_counts_its_steps() -> None:
    open_end = replace(record(0, failed(), took_s=50), finished_at=None, started_at=BEGIN)
    assert failure_groups([open_end], [], "tiny")[0].lost_s == 50


def test_no_failure_no_group() -> None:
    assert failure_groups([record(0, measured(s1=1.0, s8=1.0))], [], "tiny") == ()
