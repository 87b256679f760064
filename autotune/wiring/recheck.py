"""Runs again, shortly, what failed in a study, with the vLLM of the study or another one."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from autotune.bench.load import LoadBench
from autotune.decide.plan import Plan
from autotune.decide.recheck import judge, streams_to_recheck
from autotune.domain.effective import Effective
from autotune.domain.fill import Fill
from autotune.domain.interrupt import Interrupt
from autotune.domain.launch import server_args
from autotune.domain.machine import Environment
from autotune.domain.measurement import MeasuredPoint, Point
from autotune.domain.output import Output
from autotune.domain.recheck import Recheck, Verdict
from autotune.domain.server import ServerMark
from autotune.domain.space import Configuration
from autotune.domain.study import Limits
from autotune.domain.trial import Interrupted, Origin, Step, TrialRecord
from autotune.domain.workload import Workload
from autotune.errors import HarnessError
from autotune.files.prompt_lines import source_texts
from autotune.host.cache import cache_dir
from autotune.server.gpu_memory import NvidiaSmi
from autotune.server.launcher import LocalLauncher
from autotune.server.settling import SettlingMemory
from autotune.store.connection import writer_lock
from autotune.store.rechecks import RecheckStore
from autotune.tune.trial import TrialRunner
from autotune.wiring.open import open_store
from autotune.wiring.read_back import judges_of
from autotune.wiring.recheck_plan import RecheckPlan

_WINDOW_S = (1.0, 5.0)
"""Of the one point that is measured: whether it works is asked, not how fast it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecheckWatch:
    """Who is told what happens."""

    step: Callable[[TrialRecord, Step], None]
    done: Callable[[TrialRecord, Recheck], None]
    note: Callable[[str], None]


def recheck_interrupt(plan: RecheckPlan, end_s: float) -> Interrupt:
    """Stops in time to end the last server before `end_s` on the monotonic clock."""
    return Interrupt(time.monotonic, end_s - plan.limits.stop_reserve_s)


def run_rechecks(plan: RecheckPlan, watch: RecheckWatch, interrupt: Interrupt) -> tuple[Recheck, ...]:
    """Run the trials of `plan` until `interrupt` says stop; those broken off are not among the results.

    Raises EnvironmentFault when a server cannot be started at all or the study runs elsewhere, FileError when
    the study's prompts are a file that is gone or was changed, and ProcessStillAlive when a server would not
    go; what was found until then is kept.
    """
    with writer_lock(plan.url), open_store(plan.url) as store:
        return _Rechecker(plan, store.rechecks, watch, interrupt).run()


def end_killed_rechecks(
    store: RecheckStore, launcher: LocalLauncher, limits: Limits, note: Callable[[str], None]
) -> None:
    """End the servers of rechecks whose autotune was killed. Raises ProcessStillAlive."""
    for key, mark in store.unfinished():
        pids = launcher.reap(mark, limits.stop_grace_s)
        if pids:
            note(f"ended {len(pids)} server processes that a killed recheck had left")
        store.finish(key, Verdict.UNDECIDED, None, _now())


class _Rechecker:
    """One invocation."""

    def __init__(
        self, plan: RecheckPlan, store: RecheckStore, watch: RecheckWatch, interrupt: Interrupt
    ) -> None:
        self._plan = plan
        self._store = store
        self._watch = watch
        self._interrupt = interrupt
        environment = Environment(machine=plan.info.environment.machine, vllm=plan.vllm)
        self._diagnose, self._read_back = judges_of(environment)
        self._texts = source_texts(plan.info.workload)
        gpus = [gpu.index for gpu in plan.info.environment.machine.gpus]
        self._memory = SettlingMemory(NvidiaSmi(gpus))
        self._launcher = LocalLauncher(
            command=plan.vllm.command,
            model=plan.info.model,
            logs_dir=plan.logs_dir,
            cache_dir=cache_dir(),
        )

    def run(self) -> tuple[Recheck, ...]:
        """Run the planned trials again until time is up or the user stops it; what was done is kept."""
        end_killed_rechecks(self._store, self._launcher, self._plan.limits, self._watch.note)
        results: list[Recheck] = []
        for record in self._plan.trials:
            if self._interrupt.reason or self._interrupt.left_s < record.step_s.get(Step.LAUNCH, 0.0):
                break
            if not self._memory.settle(self._interrupt, self._watch.note):
                break
            result = self._recheck(record)
            if result is None:
                break
            results.append(result)
            self._watch.done(record, result)
        return tuple(results)

    def _recheck(self, record: TrialRecord) -> Recheck | None:
        """Run one trial again and keep what came of it; None when it was broken off."""
        if record.failure is None:
            raise HarnessError(f"trial {record.number} did not fail, and is to be run again")
        started_at = _now()
        plan = self._launcher.prepare(record.number, server_args(self._plan.space, record.configuration))
        key = self._store.begin(record.number, self._plan.vllm.version, plan.mark, started_at)
        result = self._runner(record, key).run(record.number, plan)
        verdict, failure = judge(record.failure, result.outcome)
        finished_at = _now()
        self._store.finish(key, verdict, failure, finished_at)
        if result.still_alive is not None:
            raise result.still_alive
        if isinstance(result.outcome, Interrupted):
            return None
        return Recheck(
            trial_number=record.number,
            vllm_version=self._plan.vllm.version,
            started_at=started_at,
            finished_at=finished_at,
            verdict=verdict,
            failure=failure,
            log_path=plan.mark.log_path,
        )

    def _runner(self, record: TrialRecord, key: int) -> TrialRunner:
        info = self._plan.info
        streams = streams_to_recheck(record, info.workload.streams)
        return TrialRunner(
            launcher=self._launcher,
            bench=LoadBench(info.model, _short(info.workload, streams), texts=self._texts),
            store=_Log(self._store, key),
            diagnose=self._diagnose,
            read_back=self._read_back,
            observer=_Steps(lambda step: self._watch.step(record, step), self._watch.note),
            interrupt=self._interrupt,
            pause=time.sleep,
            limits=self._plan.limits,
            streams=streams,
        )


@dataclass(frozen=True, slots=True)
class _Log:
    """The `TrialLog` of a recheck: its server can be found again, its points are not kept."""

    store: RecheckStore
    key: int

    def set_mark(self, number: int, mark: ServerMark) -> None:
        self.store.set_mark(self.key, mark)

    def add_point(self, number: int, measured: MeasuredPoint) -> None:
        pass

    def set_effective(self, number: int, effective: Effective) -> None:
        pass

    def set_outputs(self, number: int, outputs: Sequence[Output]) -> None:
        pass

    def set_fills(self, number: int, fills: Sequence[Fill]) -> None:
        pass


@dataclass(frozen=True, slots=True)
class _Steps:
    """An `Observer` that hands on the steps and the notes alone."""

    step: Callable[[Step], None]
    tell: Callable[[str], None]

    def study_opened(self, records: Sequence[TrialRecord]) -> None:
        """Nothing to show."""

    def planned(self, plan: Plan) -> None:
        pass

    def trial_started(self, number: int, origin: Origin, configuration: Configuration) -> None:
        pass

    def step_started(self, number: int, step: Step) -> None:
        self.step(step)

    def point_measured(self, number: int, point: Point) -> None:
        pass

    def trial_finished(self, record: TrialRecord) -> None:
        pass

    def note(self, text: str) -> None:
        self.tell(text)


def _short(workload: Workload, streams: Sequence[int]) -> Workload:
    low_s, high_s = _WINDOW_S
    low_s = min(low_s, workload.min_window_s)
    return replace(
        workload,
        streams=tuple(streams),
        min_window_s=low_s,
        max_window_s=max(low_s, min(high_s, workload.max_window_s)),
    )


def _now() -> datetime:
    return datetime.now(UTC)
