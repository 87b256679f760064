"""The loop on real processes: the fake vLLM launched, measured, failing in its ways, stopped and killed."""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import optuna
import pytest
from bed import Bed
from builders import failed, record
from optuna.trial import TrialState

from autotune.domain.failure import Blame, FailureKind
from autotune.domain.interrupt import Interrupt
from autotune.domain.space import Configuration
from autotune.domain.study import Limits
from autotune.domain.trial import Failed, Interrupted, Interruption, Measured, Origin, Step
from autotune.errors import EnvironmentFault
from autotune.tune.study import Ending

DATA = Path(__file__).parent.parent / "data"


@pytest.fixture
def bed(tmp_path: Path, fake_vllm: tuple[str, ...]) -> Bed:
    return Bed(folder=tmp_path, command=fake_vllm)


def _rules(monkeypatch: pytest.MonkeyPatch, rules: Sequence[object]) -> None:
    monkeypatch.setenv("FAKE_VLLM_RULES", json.dumps(rules))


def test_a_study_measures_survives_failures_and_optuna_has_the_same_trials(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    _rules(
        monkeypatch,
        [
            {"if": {"max_num_seqs": 64}, "scenario": "kv_too_small"},
            {"if": {"max_num_seqs": 1}, "scenario": "dies_at_first_request"},
        ],
    )
    assert bed.run_trials(7) is Ending.USER
    records = bed.store().records()
    assert [r.number for r in records] == list(range(7))
    assert records[0].configuration == Configuration()
    assert isinstance(records[0].outcome, Measured)
    assert [p.streams for p in records[0].points] == [1, 2]
    by_value = {r.configuration.values.get("max_num_seqs"): r for r in records}
    kv_failure, crash = by_value[64].failure, by_value[1].failure
    assert kv_failure is not None
    assert kv_failure.kind is FailureKind.KV_CACHE_TOO_SMALL
    assert kv_failure.blame is Blame.CONFIGURATION
    assert crash is not None
    assert crash.phase == "first_request"
    trials = optuna.load_study(study_name="fake", storage=bed.url).trials
    states = {Measured: TrialState.COMPLETE, Failed: TrialState.PRUNED}
    assert [t.state for t in trials] == [states[type(r.outcome)] for r in records]
    assert [t.params for t in trials] == [dict(r.configuration.values) for r in records]
    assert bed.processes_left() == []


@pytest.mark.parametrize(
    ("scenario", "kind"),
    [
        ("kv_too_small", FailureKind.KV_CACHE_TOO_SMALL),
        ("gpu_oom", FailureKind.GPU_OOM),
        ("never_ready", FailureKind.STALL),
        ("ignores_sigterm", None),
        ("grandchild_own_session", None),
        ("floods", None),
    ],
)
def test_every_scenario_ends_with_a_verdict_and_nothing_left(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, scenario: str, kind: FailureKind | None
) -> None:
    monkeypatch.setenv("FAKE_VLLM_SCENARIO", json.dumps(scenario))
    bed.limits = Limits(startup_s=3, smoke_s=3, stop_grace_s=0.5)
    bed.run_trials(1)
    (record,) = bed.store().records()
    assert (record.failure.kind if record.failure else None) == kind
    assert bed.processes_left() == []


def test_a_broken_program_ends_the_study_with_the_reason_and_the_trial_is_kept(bed: Bed) -> None:
    bed.command = (str(bed.folder / "no-such-vllm"),)
    with pytest.raises(EnvironmentFault, match="no-such-vllm"):
        bed.run_trials(1)
    (record,) = bed.store().records()
    assert record.failure is not None
    assert record.failure.blame is Blame.ENVIRONMENT


@pytest.mark.parametrize("step", [Step.LAUNCH, Step.MEASURE])
def test_a_trial_cut_by_the_budget_is_kept_and_tried_first_when_the_study_goes_on(
    bed: Bed, step: Step
) -> None:
    interrupt = Interrupt(time.monotonic, time.monotonic() + 100)

    def out_of_time(number: int, begun: Step) -> None:
        if number == 0 and begun is step:
            interrupt.deadline_s = 0.0

    bed.watch.at_step = out_of_time
    assert bed.loop(interrupt).run().ending is Ending.BUDGET
    (cut,) = bed.store().records()
    assert isinstance(cut.outcome, Interrupted)
    assert cut.outcome.reason is Interruption.BUDGET
    assert bed.processes_left() == []
    bed.run_trials(1)
    assert bed.store().records()[1].configuration == cut.configuration
    assert isinstance(bed.store().records()[1].outcome, Measured)


def test_a_fault_of_the_machine_is_tried_again_once_and_three_end_the_study(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = DATA / "logs" / "cpu-0.32" / "f06-port-in-use.log"
    monkeypatch.setenv("FAKE_VLLM_SCENARIO", json.dumps({"recorded_log": str(log)}))
    assert bed.run_trials(10) is Ending.FAILURE
    records = bed.store().records()
    assert len(records) == 3
    assert records[0].configuration == records[1].configuration != records[2].configuration
    trials = optuna.load_study(study_name="fake", storage=bed.url).trials
    assert [t.state for t in trials] == [TrialState.FAIL] * 3


class Driver:
    """The same study in a process of its own, which prints each step it comes to and can be killed."""

    def __init__(self, folder: Path) -> None:
        program = Path(__file__).parent.parent / "drive_study.py"
        self.process = subprocess.Popen(
            [sys.executable, str(program), str(folder)], stdout=subprocess.PIPE, text=True
        )

    def kill_at(self, step: Step) -> None:
        """kill -9 as soon as trial 1 has come to `step`."""
        assert self.process.stdout is not None
        with self.process:
            reached = any(line.split() == ["1", step.value] for line in self.process.stdout)
            self.process.kill()
        assert reached, "the driver ended before that step"


@pytest.mark.parametrize("step", list(Step))
def test_a_killed_study_goes_on_with_nothing_lost_twice_or_left(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, step: Step
) -> None:
    slow = {"start_s": 0.5, "ttft_s": 0.3, "ignore_sigterm": True}
    monkeypatch.setenv("FAKE_VLLM_SCENARIO", json.dumps(slow))
    driver = Driver(bed.folder)
    driver.kill_at(step)
    monkeypatch.delenv("FAKE_VLLM_SCENARIO")
    bed.run_trials(2)
    records = bed.store().records()
    trials = optuna.load_study(study_name="fake", storage=bed.url).trials
    assert [r.number for r in records] == [t.number for t in trials] == [0, 1, 2, 3]
    assert isinstance(records[0].outcome, Measured)
    killed = records[1]
    assert killed.outcome is not None
    assert killed.outcome == Interrupted(reason=Interruption.KILLED, points=killed.points)
    assert (records[2].origin, records[2].configuration) == (Origin.RETRY, killed.configuration)
    assert all(t.state.is_finished() for t in trials)
    assert bed.processes_left() == []


def test_a_kill_between_the_two_commits_is_told_from_the_evidence(bed: Bed) -> None:
    bed.run_trials(1)
    loop = bed.loop(Interrupt(time.monotonic, time.monotonic() + 100))
    number = loop.search.begin(Configuration(values={"max_num_seqs": 4}), Origin.SAMPLED)
    store = bed.store()
    store.begin_run(1.0, datetime.now(UTC))
    store.begin(record(number, None, {"max_num_seqs": 4}), None)
    store.finish(number, failed(), {}, datetime.now(UTC))
    begun_only = loop.search.begin(Configuration(values={"max_num_seqs": 8}), Origin.SAMPLED)
    loop.reconcile()
    loop.reconcile()
    trials = optuna.load_study(study_name="fake", storage=bed.url).trials
    assert [t.state for t in trials] == [TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL]
    assert [r.number for r in bed.store().records()] == [0, number, begun_only]
