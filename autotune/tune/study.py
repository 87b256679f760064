"""The loop of a study: bring order into what a killed run left, then trial after trial, then the finals.

The evidence is written before Optuna is told, so a kill between the two loses nothing: the next start tells
Optuna what the evidence says.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from autotune.decide.finals import Block, Finals
from autotune.decide.schedule import attributed, stopping_failure, worth_starting
from autotune.decide.told import told
from autotune.domain.failure import Blame, Failure, FailureKind, Phase
from autotune.domain.interrupt import Interrupt
from autotune.domain.launch import server_args
from autotune.domain.server import LaunchPlan
from autotune.domain.space import Configuration
from autotune.domain.study import StudySpec
from autotune.domain.trial import Failed, Interrupted, Interruption, Origin, Outcome, Proposal, TrialRecord
from autotune.errors import EnvironmentFault
from autotune.tune.course import Course
from autotune.tune.ports import Launcher, Memory, Observer, Search, TrialStore
from autotune.tune.trial import TrialResult, TrialRunner
from autotune.units import format_duration


class Ending(StrEnum):
    """Why an invocation ended."""

    BUDGET = "budget"
    USER = "user"
    FAILURE = "failure"
    """A failure that no other configuration can avoid."""
    EXHAUSTED = "exhausted"
    """Lessons forbid all that is left of the search space."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyEnd:
    """`failure` is the one that ended it, for `Ending.FAILURE`."""

    ending: Ending
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyLoop:
    """One invocation of a study."""

    spec: StudySpec
    launcher: Launcher
    memory: Memory
    store: TrialStore
    search: Search
    course: Course
    runner: TrialRunner
    observer: Observer
    interrupt: Interrupt
    now: Callable[[], datetime]

    def run(self) -> StudyEnd:
        """Search, then hold finals, until the budget is used, the user stops it, or no trial can succeed.

        Raises EnvironmentFault when a server cannot be started at all, ProcessStillAlive when one would not
        go; what happened until then is kept.
        """
        self.reconcile()
        before = self.store.records()
        self.observer.study_opened(before)
        end = self._search(len(before), self.interrupt.left_s)
        if end.ending in (Ending.BUDGET, Ending.EXHAUSTED):
            return self._finals(len(before)) or end
        return end

    def _search(self, begun: int, budget_s: float) -> StudyEnd:
        """Try configurations for as long as the budget leaves enough for the finals."""
        while True:
            records = self.store.records()
            lessons = self.course.learn(records)
            if stop := self._stop(records[begun:]):
                return stop
            left_s = self.interrupt.left_s - self._decide.reserve_s(records, budget_s)
            if not worth_starting(records, left_s):
                return StudyEnd(ending=Ending.BUDGET)
            if not self.memory.settle(self.interrupt, self.observer.note):
                continue
            proposal = self.course.next(records, lessons, left_s)
            if proposal is None:
                return StudyEnd(ending=Ending.EXHAUSTED)
            self.trial(proposal)

    def _finals(self, begun: int) -> StudyEnd | None:
        """Measure the finalists beside the baseline; None when that has come to its end."""
        block = self._decide.first_block(self.store.records(), self.interrupt.left_s)
        while block is not None:
            self.observer.note(_announcement(block, self.store.records()))
            for configuration in block.order:
                records = self.store.records()
                if stop := self._stop(records[begun:]):
                    return stop
                if not worth_starting(records, self.interrupt.left_s, configuration):
                    return None
                if self.memory.settle(self.interrupt, self.observer.note):
                    final = Proposal(configuration=configuration, origin=Origin.FINAL, block=block.number)
                    self.trial(final)
            block = self._decide.next_block(block, self.store.records(), self.interrupt.left_s)
        return self._stop(self.store.records()[begun:])

    def _stop(self, own: Sequence[TrialRecord]) -> StudyEnd | None:
        """Why this invocation, whose trials are `own`, has to end at once; None if it may go on."""
        if failed := stopping_failure(own):
            return StudyEnd(ending=Ending.FAILURE, failure=failed.failure)
        return StudyEnd(ending=Ending.USER) if self.interrupt.reason is Interruption.USER else None

    @property
    def _decide(self) -> Finals:
        return Finals(objectives=self.spec.objectives, limits=self.spec.limits, seed=self.spec.seed)

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
            self.search.tell(number, told(outcome, self.spec.objectives))

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
            self.search.tell(number, told(_not_startable(error), self.spec.objectives))
            raise
        record = replace(self._record(number, configuration, origin, plan), block=proposal.block)
        self.store.begin(record, plan.mark)
        try:
            result = self.runner.run(number, plan)
        except EnvironmentFault as error:
            self._finish(number, TrialResult(outcome=_not_startable(error), step_s={}))
            raise
        self._finish(number, result)
        if result.still_alive is not None:
            raise result.still_alive

    def _finish(self, number: int, result: TrialResult) -> None:
        outcome = attributed(result.outcome, self.store.records())
        self.store.finish(number, outcome, result.step_s, self.now())
        self.search.tell(number, told(outcome, self.spec.objectives))
        self.observer.trial_finished(self.store.records()[-1])

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


def _announcement(block: Block, records: Sequence[TrialRecord]) -> str:
    """What a block is about to do; the first one tells how much is planned."""
    numbers = [
        str(next(record.number for record in records if record.configuration == finalist))
        for finalist in block.finalists
    ]
    which = f"trial{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"
    if block.index:
        return f"finals, block {block.index + 1} of {block.until}: {which}"
    return (
        f"finals: {which} beside vLLM's defaults, {block.until} blocks of {len(block.order)} launches, "
        f"about {format_duration(block.until * block.expected_s)}"
    )


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
