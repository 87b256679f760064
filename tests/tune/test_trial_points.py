"""What becomes of a trial whose points are odd, on the fake vLLM."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import optuna
import pytest
from bed import WORKLOAD, Bed
from builders import measured_point
from optuna.trial import TrialState

from autotune.bench.load import LoadBench
from autotune.decide.ladder_stop import LadderStop
from autotune.domain.failure import FailureKind, Phase
from autotune.domain.interrupt import Interrupt
from autotune.domain.measurement import Flag, FlagKind, MeasuredPoint
from autotune.domain.trial import Abandoned, Failed, Interrupted, Interruption, Measured, Step, TrialRecord

SILENCE = "the server sent nothing for 60 s"


@pytest.fixture
def bed(tmp_path: Path, fake_vllm: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> Bed:
    monkeypatch.setattr("autotune.tune.trial.SETTLE_S", 0.1)
    return Bed(folder=tmp_path, command=fake_vllm)


@dataclass
class Told:
    """A bench whose smoke request is real, and the rest as it was told."""

    real: LoadBench
    warm: Callable[[Interrupt], str | None] = lambda _: None
    point: Callable[[int], MeasuredPoint] = lambda streams: measured_point(streams, 10.0)

    def smoke(self, url: str, timeout_s: float, interrupt: Interrupt) -> str | None:
        return self.real.smoke(url, timeout_s, interrupt)

    def warm_up(self, url: str, interrupt: Interrupt) -> str | None:
        return self.warm(interrupt)

    def measure(
        self, url: str, streams: int, expected_e2e_s: float | None, interrupt: Interrupt
    ) -> MeasuredPoint | None:
        return self.point(streams)


def run(bed: Bed, **changes: object) -> TrialRecord:
    """One trial with such a bench."""
    interrupt = Interrupt(time.monotonic, time.monotonic() + 100)
    bed.watch.at_step = lambda _number, step: (
        interrupt.request(Interruption.USER) if step is Step.STOP else None
    )
    loop = bed.loop(interrupt)
    bench = Told(LoadBench("tiny", WORKLOAD), **changes)  # type: ignore[arg-type]
    replace(loop, runner=replace(loop.runner, bench=bench)).run()
    (record,) = bed.store().records()
    return record


def test_a_point_that_was_broken_off_fails_the_trial_whatever_its_numbers_are(bed: Bed) -> None:
    """Of thousands of requests it is only the last few that failed: less than 1 %."""
    record = run(bed, point=lambda streams: replace(measured_point(streams, 10.0), broken_off=SILENCE))
    assert isinstance(record.outcome, Failed)
    assert (record.outcome.failure.kind, record.outcome.failure.phase) == (FailureKind.STALL, Phase.SERVING)
    assert record.points == ()


def test_a_ladder_that_is_given_up_ends_with_what_was_measured(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LadderStop, "why", lambda _self, running, points: f"{running.number}: {len(points)}")
    record = run(bed)
    assert record.outcome == Abandoned(why="0: 1", points=record.points)
    assert [point.streams for point in record.points] == [1]
    assert Step.STOP in record.step_s
    (trial,) = optuna.load_study(study_name="fake", storage=bed.url).trials
    assert trial.state is TrialState.PRUNED
    assert trial.constraints == {"works": -1.0}


def test_a_point_that_stalled_now_and_then_is_measured_and_suspect(bed: Bed) -> None:
    flag = Flag(kind=FlagKind.STALLED, text="no stream got anything for 0.7 s")

    def point(streams: int) -> MeasuredPoint:
        found = measured_point(streams, 10.0)
        return replace(found, point=replace(found.point, flags=(flag,), discarded=(flag, flag)))

    record = run(bed, point=point)
    assert isinstance(record.outcome, Measured)
    assert [p.is_suspect for p in record.points] == [True, True]
    assert [p.discarded for p in record.points] == [(flag, flag)] * 2


def test_requests_that_fail_before_the_first_point_fail_the_trial(bed: Bed) -> None:
    record = run(bed, warm=lambda _: "HTTP 500: made to fail")
    assert isinstance(record.outcome, Failed)
    assert record.outcome.failure.phase is Phase.SERVING
    assert "HTTP 500: made to fail" in record.outcome.failure.why


def test_a_stop_before_the_first_point_is_no_failure(bed: Bed) -> None:
    record = run(bed, warm=lambda interrupt: interrupt.request(Interruption.USER))
    assert record.outcome == Interrupted(reason=Interruption.USER)
