"""A study on servers that exhaust the machine, hang, or leave memory held."""

import json
import os
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from bed import QUIET, WORKLOAD, Bed

from autotune.bench.load import LoadBench
from autotune.domain.aftermath import ProcessMemory
from autotune.domain.failure import Blame, Failure, FailureKind, Phase
from autotune.domain.interrupt import Interrupt
from autotune.domain.measurement import MeasuredPoint
from autotune.domain.study import Limits
from autotune.domain.trial import Interruption, Measured, Origin, Step
from autotune.server import outside, settling
from autotune.server.gpu_memory import GpuMemory, GpuUse
from autotune.server.memory import Memory
from autotune.server.watch import MemoryWatch

DATA = Path(__file__).parent.parent / "data"
GIB = 2**30


@pytest.fixture
def bed(tmp_path: Path, fake_vllm: tuple[str, ...]) -> Bed:
    return Bed(folder=tmp_path, command=fake_vllm)


def _only_failure(bed: Bed) -> Failure:
    bed.run_trials(1)
    (record,) = bed.store().records()
    assert record.failure is not None
    assert bed.processes_left() == []
    return record.failure


@pytest.mark.parametrize(
    ("step", "phase"),
    [(Step.LAUNCH, Phase.ARGS), (Step.SMOKE, Phase.FIRST_REQUEST), (Step.MEASURE, Phase.SERVING)],
)
def test_memory_that_runs_out_ends_the_trial_in_every_step(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, step: Step, phase: Phase
) -> None:
    scenario = {"start_s": 60 if step is Step.LAUNCH else 0.05, "ttft_s": 1.0}
    monkeypatch.setenv("FAKE_VLLM_SCENARIO", json.dumps(scenario))
    exhausted: list[Step] = []

    def read() -> tuple[Memory, ...]:
        left = 0 if step in exhausted else GIB + QUIET.default_floor_bytes
        return (Memory(total_bytes=QUIET.total_bytes, available_bytes=left),)

    monkeypatch.setattr(outside, "MemoryWatch", partial(MemoryWatch, read=read))
    bed.watch.at_step = lambda _number, begun: exhausted.append(begun)
    failure = _only_failure(bed)
    assert (failure.kind, failure.phase) == (FailureKind.HOST_OOM, phase)
    assert "autotune ended the server" in failure.why
    assert failure.numbers["floor_bytes"] == QUIET.default_floor_bytes


@pytest.mark.parametrize(
    ("scenario", "phase"),
    [("never_ready", Phase.DEVICE), ("hangs_mid_stream", Phase.FIRST_REQUEST)],
)
def test_a_hang_is_looked_into_before_it_is_stopped(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, scenario: str, phase: Phase
) -> None:
    monkeypatch.setenv("FAKE_VLLM_SCENARIO", json.dumps(scenario))
    monkeypatch.setattr("autotune.tune.trial.SETTLE_S", 0.1)
    bed.limits = Limits(startup_s=1.5, smoke_s=1, stop_grace_s=0.5)
    failure = _only_failure(bed)
    assert failure.kind is FailureKind.STALL
    assert "VLLM::" in failure.why
    assert "none of its 2 processes used the processor" in failure.why


class _EndingBench(LoadBench):
    """Ends the server when the last answer of a point has come, as an engine that dies idle does."""

    def __init__(self, bed: Bed) -> None:
        super().__init__("tiny", WORKLOAD)
        self._bed = bed

    def measure(
        self, url: str, streams: int, expected_e2e_s: float | None, interrupt: Interrupt
    ) -> MeasuredPoint | None:
        point = super().measure(url, streams, expected_e2e_s, interrupt)
        processes = self._bed.processes_left()
        first = next(process.pid for process in processes if process.ppid() == os.getpid())
        for process in processes:
            process.kill()
        os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)  # it is dead now, and still to be reaped
        return point


def test_a_server_that_ends_after_its_last_answer_has_failed(bed: Bed) -> None:
    interrupt = Interrupt(time.monotonic, time.monotonic() + 100)
    bed.watch.at_step = lambda _number, step: (
        interrupt.request(Interruption.USER) if step is Step.STOP else None
    )
    loop = bed.loop(interrupt)
    loop = replace(loop, runner=replace(loop.runner, bench=_EndingBench(bed)))
    loop.run()
    (record,) = bed.store().records()
    assert record.failure is not None
    assert (record.failure.kind, record.failure.phase) == (FailureKind.HOST_OOM, Phase.SERVING)
    assert record.points == ()


def test_memory_still_held_is_waited_out_and_the_trial_tried_again(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first trial meets memory that somebody holds, who lets go while autotune waits."""
    monkeypatch.setattr(settling, "_POLL_S", 0.01)
    busy = DATA / "logs" / "h200-0.26" / "a3_hog_after_boot.log"
    rules = [{"if": {"env.TRY": 1}, "scenario": {"recorded_log": str(busy)}}]
    monkeypatch.setenv("FAKE_VLLM_RULES", json.dumps(rules))
    monkeypatch.setenv("TRY", "1")
    held_gib = iter([0, 30, 20, 0])
    holder = ProcessMemory(pid=812, name="trainer", memory_bytes=30 * GIB)

    def gpus() -> GpuUse:
        used = next(held_gib, 0)
        if not bed.watch.finished:
            return GpuUse(gpus=(GpuMemory(index=0, used_bytes=0, total_bytes=80 * GIB),))
        if not used:
            monkeypatch.setenv("TRY", "2")
        gpu = GpuMemory(index=0, used_bytes=used * GIB, total_bytes=80 * GIB)
        return GpuUse(gpus=(gpu,), holders=(holder,) if used else ())

    bed.gpus = gpus
    bed.run_trials(2)
    first, second = bed.store().records()
    assert first.failure is not None
    assert (first.failure.kind, first.failure.blame) == (FailureKind.MEMORY_BUSY, Blame.ENVIRONMENT)
    assert isinstance(second.outcome, Measured)
    assert second.configuration == first.configuration
    assert second.origin in (Origin.RETRY, Origin.BASELINE)
    assert [note for note in bed.watch.notes if "GPU 0" in note] == [
        "waiting up to 60 s for memory: GPU 0 30.0 GiB more than at first in use"
    ]
