"""Study files as autotune writes them, without a server: through the real store and the real Optuna study.

python tests/studies_made.py PATH [--trials 2000] [--requests 100]
"""

import argparse
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Protocol

from builders import objectives as parsed
from landscape import ENVIRONMENT, MODEL, WORKLOAD, MadeServer, space
from sqlalchemy import Engine, event
from sqlalchemy.pool import PoolProxiedConnection

from autotune.decide.blocks import BASELINE
from autotune.decide.ranking import candidates, gain
from autotune.decide.space.sampling import sample
from autotune.decide.told import Told, told
from autotune.domain.effective import Effective
from autotune.domain.expression import Expression
from autotune.domain.failure import Failure, FailureKind
from autotune.domain.launch import server_args
from autotune.domain.lesson import Finding, Lesson, LessonForm, Scope
from autotune.domain.measurement import MeasuredPoint
from autotune.domain.metric_limit import parse_metric_limits
from autotune.domain.space import Configuration, Parameter, SearchSpace
from autotune.domain.study import StudySpec
from autotune.domain.trial import (
    Failed,
    Interrupted,
    Interruption,
    Measured,
    Origin,
    Outcome,
    Step,
    TrialRecord,
)
from autotune.files.space_document import space_document
from autotune.search.study import OptunaSearch
from autotune.store.connection import open_engine
from autotune.store.evidence import EvidenceStore

BEGIN = datetime(2026, 1, 2, 22, 4, 5, tzinfo=UTC)
TWO = ("out_tok_s@16", "out_tok_s@1")
ONE = ("out_tok_s@16",)
THREE = ("out_tok_s@16", "out_tok_s@1", "ttft_p50@16")
NASTY = (
    "<img src=x onerror=alert(1)>",
    "it's \"quoted\" & $x_1$ <b>bold</b> <a href='javascript:alert(1)'>y</a>",
    "\x1b[31mred\x1b[0m\r\n\u202eright to left and \U0001f980 " + "very long " * 40,
)
"""Markup, quotes, a formula, terminal colours, a change of direction, length."""


@dataclass
class StudyMaker:
    """A study to be written. `trials` counts those of the search; finals, of `blocks` blocks, come on top."""

    path: Path
    trials: int = 12
    objectives: Sequence[str] = TWO
    limits: Sequence[str] = ()
    blocks: int = 3
    control_every: int = 10
    invocations: int = 1
    seed: int = 0
    requests: int = 2
    """Raw requests kept of each point."""
    model: str = MODEL.name
    failure: Callable[[int, MadeServer], Failure | None] = lambda _, server: server.failure()
    """Why a trial fails; None for one that works."""
    outcome_of_last: str = "as it is"
    """`running`: without an outcome, in an invocation that goes on; `killed`: interrupted, without steps."""
    extra: Parameter | None = None
    """One more parameter in the space."""
    with_optuna: bool = True
    """Whether Optuna's study is written too, which takes most of the time: 30 ms for each trial."""

    @property
    def space(self) -> SearchSpace:
        """The derived one, with the one parameter more."""
        made = space()
        return made if self.extra is None else replace(made, parameters=(*made.parameters, self.extra))

    def write(self) -> Path:
        """Write the file, which must not be there yet, and return its path."""
        spec = StudySpec(
            name=self.path.stem,
            model=self.model,
            space=self.space,
            workload=WORKLOAD,
            objectives=parsed(*self.objectives),
            metric_limits=parse_metric_limits(self.limits),
            seed=self.seed,
            architecture=MODEL.architecture,
        )
        url = f"sqlite:///{self.path}"
        engine = open_engine(url, create=True)
        _hasten(engine)
        search = OptunaSearch(spec, url) if self.with_optuna else None
        of_optuna = search._study._storage._backend.engine if search else engine  # type: ignore[attr-defined]
        _hasten(of_optuna)
        writing = _Writing(self, spec, EvidenceStore(engine), search or _Numbers())
        if self.outcome_of_last == "running":
            writing.now = datetime.now(UTC) - timedelta(seconds=_TRIAL_S * (self.trials - 1))
        writing.study()
        # The last connection to be closed writes everything into the one file, which can then be moved.
        of_optuna.dispose()
        return self.path


class _Search(Protocol):
    def begin(self, configuration: Configuration, origin: Origin) -> int: ...

    def tell(self, number: int, told: Told) -> None: ...


@dataclass
class _Numbers:
    """Numbers trials as Optuna would."""

    begun: int = 0

    def begin(self, _configuration: Configuration, _origin: Origin) -> int:
        self.begun += 1
        return self.begun - 1

    def tell(self, number: int, told: Told) -> None:
        """Nobody wants to know."""


@dataclass
class _Writing:
    """A study being written; `now` is the clock of the night."""

    maker: StudyMaker
    spec: StudySpec
    store: EvidenceStore
    search: _Search
    now: datetime = BEGIN

    def study(self) -> None:
        """All of it: invocations of about the same number of trials, finals in the last one, lessons."""
        self.store.create(self.spec, space_document(self.spec.space), ENVIRONMENT, self.now)
        plan = list(self._plan())
        size = -(-len(plan) // self.maker.invocations)
        for part in range(self.maker.invocations):
            goes_on = part == self.maker.invocations - 1 and self.maker.outcome_of_last == "running"
            begun = self.now
            self.store.begin_run(budget_s=3600.0 * 24, now=begun)
            for configuration, origin in plan[part * size : (part + 1) * size]:
                self._trial(configuration, origin)
            if goes_on:
                break
            if part == self.maker.invocations - 1:
                self._finals()
            self.now += timedelta(seconds=5)
            self.store.end_run((self.now - begun).total_seconds(), "budget")
            self.now += timedelta(hours=9)
        for lesson in _lessons(self.store.records(), self.spec):
            self.store.lessons.add(lesson)

    def _plan(self) -> Iterator[tuple[Configuration, Origin]]:
        rng = Random(self.maker.seed)  # noqa: S311
        for number in range(self.maker.trials):
            if number == 0:
                yield Configuration(), Origin.BASELINE
            elif self.maker.control_every and number % self.maker.control_every == 0:
                yield Configuration(), Origin.CONTROL
            else:
                configuration = sample(self.spec.space, rng)
                assert configuration is not None
                yield configuration, Origin.SAMPLED

    def _finals(self) -> None:
        measured = candidates(self.store.records(), self.spec.objectives, self.spec.metric_limits)
        base = next((c for c in measured if c.record.configuration.digest == BASELINE), None)
        if base is None or len(measured) < 2:
            return
        others = [each for each in measured if each is not base and each.keeps_limits]
        others.sort(key=lambda candidate: -gain(candidate.values, base.values, self.spec.objectives))
        for block in range(self.maker.blocks):
            for finalist in (base, *others[:2]):
                self._trial(finalist.record.configuration, Origin.FINAL, block)

    def _trial(self, configuration: Configuration, origin: Origin, block: int | None = None) -> None:
        number = self.search.begin(configuration, origin)
        args = server_args(self.spec.space, configuration)
        record = TrialRecord(
            number=number,
            origin=origin,
            configuration=configuration,
            argv=(*ENVIRONMENT.vllm.command, "serve", self.spec.model, *args.flags),
            env=args.env,
            started_at=self.now,
            log_path=f"/tmp/{self.spec.name}.logs/{number}.log",
            block=block,
        )
        self.store.begin(record, None)
        server = MadeServer(configuration.values, seed=self.maker.seed * 100_000 + number)
        if number == self.maker.trials - 1 and self.maker.outcome_of_last != "as it is":
            self._last(number, server)
            return
        outcome, points = self._outcome(number, server)
        for point in points:
            self.store.add_point(number, point)
        if points:
            facts = {"max_model_len": configuration.values.get("max_model_len", 131072)}
            self.store.set_effective(number, Effective(facts=facts))
        steps = _steps(outcome, Random(f"{self.maker.seed}:{number}"))  # noqa: S311
        self.now += timedelta(seconds=sum(steps.values()) + 0.4)
        self.store.finish(number, outcome, steps, self.now)
        self.search.tell(number, told(outcome, self.spec.objectives, self.spec.metric_limits))
        self.now += timedelta(seconds=2.5)

    def _outcome(self, number: int, server: MadeServer) -> tuple[Outcome, Sequence[MeasuredPoint]]:
        failure = self.maker.failure(number, server)
        if failure is not None:
            return Failed(failure=failure), ()
        points = [server.point(streams, self.maker.requests) for streams in self.spec.workload.streams]
        return Measured(points=tuple(point.point for point in points)), points

    def _last(self, number: int, server: MadeServer) -> None:
        """A trial that is under way, or that was killed with its autotune and noted a day later."""
        self.store.add_point(number, server.point(self.spec.workload.streams[0], self.maker.requests))
        if self.maker.outcome_of_last == "killed":
            outcome = Interrupted(reason=Interruption.KILLED, points=self.store.points(number))
            self.store.finish(number, outcome, {}, self.now + timedelta(days=1))
            self.search.tell(number, told(outcome, self.spec.objectives, self.spec.metric_limits))


_TRIAL_S = 140.0
"""More than any of them takes: one that runs has been begun, and not just now."""


def _steps(outcome: Outcome, rng: Random) -> dict[Step, float]:
    if isinstance(outcome, Failed):
        late = outcome.failure.kind is FailureKind.INCOMPATIBLE
        launch = {Step.LAUNCH: rng.uniform(35, 48) if late else rng.uniform(12, 40)}
        return {**launch, **({Step.SMOKE: 1.5} if late else {}), Step.STOP: rng.uniform(0.5, 6)}
    measure = rng.uniform(66, 75)
    return {Step.LAUNCH: rng.uniform(35, 48), Step.SMOKE: 0.8, Step.MEASURE: measure, Step.STOP: 1.2}


def _lessons(records: Sequence[TrialRecord], spec: StudySpec) -> Iterator[Lesson]:
    """One from the first failure of each kind that teaches something here."""
    forbids = {
        FailureKind.INCOMPATIBLE: (
            LessonForm.NO_GOOD,
            'speculative_config__method == "mtp" and enable_prefix_caching == true',
        ),
        FailureKind.GPU_OOM: (LessonForm.BOUND, "gpu_memory_utilization >= 0.95"),
    }
    number = 0
    for kind, (form, expression) in forbids.items():
        first = next((r for r in records if r.failure and r.failure.kind is kind), None)
        if first is None or first.failure is None:
            continue
        number += 1
        yield Lesson(
            number=number,
            finding=Finding(form=form, forbids=Expression.parse(expression)),
            why=first.failure.why,
            kind=kind,
            trial=first.number,
            study=spec.name,
            scope=Scope(
                vllm_version=ENVIRONMENT.vllm.version,
                model=spec.model,
                architecture=str(spec.architecture),
                device="NVIDIA GeForce RTX 4090",
            ),
        )


def _hasten(engine: Engine) -> None:
    """Do not wait for the disk: what is made anew each time need not survive a crash."""
    event.listen(engine, "connect", _no_sync)


def _no_sync(connection: sqlite3.Connection, _record: PoolProxiedConnection) -> None:
    connection.execute("PRAGMA synchronous=OFF")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument(
        "--requests", type=int, default=250, help="of each point: 250 make a million for 2000 trials"
    )
    given = parser.parse_args()
    StudyMaker(path=given.path, trials=given.trials, requests=given.requests).write()
