"""Where the time went: nothing is counted twice, nothing is missing, and pauses are no time at all."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from builders import BEGIN, failed, measured, point, record
from hypothesis import given
from hypothesis import strategies as st

from autotune.decide.timeline import Activity, Purpose, timeline
from autotune.domain.invocation import Invocation
from autotune.domain.trial import Abandoned, Interrupted, Interruption, Origin, Outcome, Step, TrialRecord

STEPS = {Step.LAUNCH: 40.0, Step.SMOKE: 1.0, Step.MEASURE: 60.0, Step.STOP: 2.0}
WORKS = measured(s1=10.0, s8=50.0)


def trial(number: int, begin_s: float, outcome: Outcome | None = WORKS, took_s: float = 105.0) -> TrialRecord:
    begun = BEGIN + timedelta(seconds=begin_s)
    return replace(
        record(number, outcome),
        started_at=begun,
        finished_at=begun + timedelta(seconds=took_s) if outcome else None,
        step_s=STEPS if outcome else {},
    )


def invocation(begin_s: float, spent_s: float | None, budget_s: float = 3600.0) -> Invocation:
    return Invocation(began_at=BEGIN + timedelta(seconds=begin_s), budget_s=budget_s, spent_s=spent_s)


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def test_the_steps_of_a_trial_follow_each_other_and_the_rest_comes_before_the_stop() -> None:
    line = timeline([trial(0, 10.0)], [invocation(0, 120)], at(500))
    shown = [(s.activity, s.begin_s, s.end_s) for s in line.segments]
    assert shown == [
        (Activity.IDLE, 0, 10),
        (Activity.LAUNCH, 10, 50),
        (Activity.SMOKE, 50, 51),
        (Activity.MEASURE, 51, 111),
        (Activity.OTHER, 111, 113),
        (Activity.STOP, 113, 115),
        (Activity.IDLE, 115, 120),
    ]


def test_time_is_told_by_what_it_was_for() -> None:
    records = [
        trial(0, 0),
        trial(1, 110, failed()),
        replace(trial(2, 220), origin=Origin.CONTROL),
        replace(trial(3, 330), origin=Origin.FINAL, block=0),
        trial(4, 440, Interrupted(reason=Interruption.BUDGET)),
        replace(trial(5, 550, failed()), origin=Origin.FINAL, block=0),
    ]
    line = timeline(records, [invocation(0, 660)], at(660))
    assert line.by_purpose() == {
        Purpose.MEASURED: 105,
        Purpose.FINALS: 105,
        Purpose.CONTROL: 105,
        Purpose.FAILED: 210,
        Purpose.INTERRUPTED: 105,
        Purpose.IDLE: 30,
    }
    assert line.failed_share == pytest.approx(210 / 660)
    assert line.by_activity()[Activity.MEASURE] == 360


def test_the_clock_stands_still_between_invocations() -> None:
    week_s = 7 * 86400.0
    records = [trial(0, 0), trial(1, week_s + 20)]
    line = timeline(records, [invocation(0, 200), invocation(week_s, 300)], at(week_s + 1000))
    assert line.total_s == 500
    assert line.segments[-2].end_s == 200 + 20 + 105
    [pause] = line.pauses
    assert (pause.at_s, pause.ended_at, pause.continued_at) == (200, at(200), at(week_s))
    assert line.clock(at(week_s / 2)) == 200
    assert line.clock(at(week_s + 30)) == 230
    assert line.clock(at(-5)) == 0
    assert line.clock(at(9 * week_s)) == 500


def test_a_trial_killed_with_its_autotune_does_not_last_until_the_study_went_on() -> None:
    killed = replace(
        trial(0, 10, Interrupted(reason=Interruption.KILLED, points=(point(1, 9.0),)), took_s=86400),
        step_s={},
    )
    line = timeline([killed], [invocation(0, None), invocation(86000, 50)], at(90000))
    assert line.by_purpose()[Purpose.INTERRUPTED] == point(1, 9.0).window_s
    assert line.total_s == 20 + 50


@pytest.mark.parametrize(
    ("seen_s", "until_s"), [(70, 70), (4000, 3600)], ids=["it runs", "it was killed, or its budget is over"]
)
def test_a_running_trial_lasts_until_now_but_never_beyond_the_budget(seen_s: float, until_s: float) -> None:
    line = timeline([trial(0, 10, None)], [invocation(0, None)], at(seen_s))
    assert line.by_purpose() == {Purpose.RUNNING: until_s - 10, Purpose.IDLE: 10}


def test_without_trials_or_invocations_there_is_no_time() -> None:
    line = timeline([], [], at(0))
    assert (line.total_s, line.segments, line.failed_share) == (0, (), 0)
    assert line.clock(at(5)) == 0


GAPS = st.lists(st.floats(0, 500), min_size=1, max_size=8)


@given(GAPS, st.integers(1, 3), st.data())
def test_the_segments_cover_all_time_once(gaps: Sequence[float], parts: int, data: st.DataObject) -> None:
    given_up = Abandoned(why="far behind", points=())
    outcomes: list[Outcome] = [WORKS, failed(), given_up, Interrupted(reason=Interruption.USER)]
    moment, records, invocations = 0.0, [], []
    for number, gap in enumerate(gaps):
        if number % parts == 0:
            invocations.append(invocation(moment, 0))
        moment += gap
        records.append(trial(number, moment, data.draw(st.sampled_from(outcomes))))
        moment += 105
    line = timeline(records, invocations, at(moment))
    assert line.total_s == pytest.approx(sum(s.duration_s for s in line.segments))
    at_s = 0.0
    for segment in line.segments:
        assert segment.begin_s == pytest.approx(at_s)
        assert segment.end_s > segment.begin_s
        at_s = segment.end_s
    assert sum(line.by_purpose().values()) == pytest.approx(line.total_s)
    assert sum(line.by_activity().values()) == pytest.approx(line.total_s)
