"""Keeps trials: in the evidence and in the Optuna study, through whatever becomes of autotune in between.

The evidence is written before Optuna is told, so a kill between the two loses nothing: the next start tells
Optuna what the evidence says.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from autotune.decide.ladder_stop import LadderStop
from autotune.decide.schedule import attributed
from autotune.decide.told import told
from autotune.domain.failure import Blame, Failure, FailureKind, Phase
from autotune.domain.launch import server_args
from autotune.domain.measurement import Point
from autotune.domain.server import LaunchPlan
from autotune.domain.space import Configuration
from autotune.domain.study import StudySpec
from autotune.domain.trial import Failed, Interrupted, Interruption, Origin, Outcome, Proposal, TrialRecord
from autotune.errors import EnvironmentFault
from autotune.tune.ports import Launcher, Observer, Search, TrialStore
from autotune.tune.trial import TrialResult, TrialRunner


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialKeeper:
    """Runs trials of one study and keeps them."""

    spec: StudySpec
    launcher: Launcher
    store: TrialStore
    search: Search
    runner: TrialRunner
    observer: Observer
    now: Callable[[], datetime]

    def reconcile(self) -> None:
        """End what a killed run left running, and tell Optuna of every trial it has not heard the end of."""
        for record, mark in self.store.unfinished():
            if mark is not None:
                pids = self.launcher.reap(mark, self.spec.limits.stop_grace_s)
                if pids:
                    left = f"{len(pids)} server processes that a killed run had left"
                    self.observer.note(f"trial {record.number}: ended {left}")
            killed = Interrupted(reason=Interruption.KILLED, points=self.store.points(record.number))
            self.store.finish(record.number, killed, record.step_s, self.now())
        outcomes = {record.number: record.outcome for record in self.store.records()}
        for number, configuration, origin in self.search.running():
            if number not in outcomes:
                self._keep_unlaunched(number, configuration, origin, Interrupted(reason=Interruption.KILLED))
            outcome = outcomes.get(number) or Interrupted(reason=Interruption.KILLED)
            self._tell(number, outcome)

    def trial(self, proposal: Proposal) -> None:
        """Run one configuration and keep all of it."""
        configuration, origin = proposal.configuration, proposal.origin
        number = self.search.begin(configuration, origin)
        self.observer.trial_started(number, origin, configuration)
        args = server_args(self.spec.space, configuration)
        try:
            plan = self.launcher.prepare(number, args)
        except EnvironmentFault as error:
            self._keep_unlaunched(number, configuration, origin, _not_startable(error))
            self._tell(number, _not_startable(error))
            raise
        record = replace(self._record(number, configuration, origin, plan), block=proposal.block)
        self.store.begin(record, plan.mark)
        try:
            result = self.runner.run(number, plan, lambda points: self._why_give_up(record, points))
        except EnvironmentFault as error:
            self._finish(number, TrialResult(outcome=_not_startable(error), step_s={}))
            raise
        self._finish(number, result)
        if result.still_alive is not None:
            raise result.still_alive

    def _why_give_up(self, running: TrialRecord, points: tuple[Point, ...]) -> str | None:
        stop = LadderStop(
            records=self.store.records(),
            objectives=self.spec.objectives,
            limits=self.spec.metric_limits,
            streams=self.spec.workload.streams,
        )
        return stop.why(running, points)

    def _finish(self, number: int, result: TrialResult) -> None:
        outcome = attributed(result.outcome, self.store.records())
        self.store.finish(number, outcome, result.step_s, self.now())
        self._tell(number, outcome)
        self.observer.trial_finished(self.store.records()[-1])

    def _tell(self, number: int, outcome: Outcome) -> None:
        self.search.tell(number, told(outcome, self.spec.objectives, self.spec.metric_limits))

    def _record(
        self, number: int, configuration: Configuration, origin: Origin, plan: LaunchPlan | None
    ) -> TrialRecord:
        args = server_args(self.spec.space, configuration)
        return TrialRecord(
            number=number,
            origin=origin,
            configuration=configuration,
            argv=plan.command if plan else (),
            env=args.env,
            started_at=self.now(),
            log_path=plan.mark.log_path if plan else None,
        )

    def _keep_unlaunched(
        self, number: int, configuration: Configuration, origin: Origin, outcome: Outcome
    ) -> None:
        """Keep a trial that never came to a launch, so that evidence and Optuna have the same trials."""
        self.store.begin(self._record(number, configuration, origin, None), None)
        self.store.finish(number, outcome, {}, self.now())


def _not_startable(error: EnvironmentFault) -> Failed:
    return Failed(
        failure=Failure(
            kind=FailureKind.ENVIRONMENT,
            phase=Phase.ARGS,
            blame=Blame.ENVIRONMENT,
            why=str(error),
            cure="mend this and run the same command again; the study goes on where it was",
        )
    )
