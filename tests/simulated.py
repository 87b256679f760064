"""A study on a clock of its own: the real loop decides, and only servers are made up.

How long a launch takes and what it gives depends on the seed, the configuration and how often that was
launched before, and on nothing else: so a study that is killed and goes on meets the same world.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count
from random import Random
from typing import Protocol

from bed import Bed, Watch
from builders import failed, measured_point, objectives, spec

from autotune.decide.told import Told
from autotune.domain.interrupt import Interrupt
from autotune.domain.launch import ServerArgs
from autotune.domain.lesson import Lesson
from autotune.domain.measurement import MeasuredPoint, Point
from autotune.domain.server import LaunchPlan, ServerMark
from autotune.domain.space import Configuration, IntDomain, Parameter, SearchSpace, Target, TargetKind
from autotune.domain.study import Limits
from autotune.domain.trial import (
    Abandoned,
    Interrupted,
    Measured,
    Origin,
    Outcome,
    Proposal,
    Step,
    TrialRecord,
)
from autotune.tune.study import StudyLoop
from autotune.tune.trial import GiveUp, TrialResult

LAUNCH_S, MEASURE_S = 60.0, 40.0
SPACE = SearchSpace(
    name="seqs",
    parameters=(
        Parameter(
            name="max_num_seqs",
            domain=IntDomain(low=1, high=128, log=True),
            target=Target(kind=TargetKind.FLAG, name="--max-num-seqs"),
        ),
    ),
)


class Killed(BaseException):
    """kill -9: nothing may catch it."""


class Kept(Protocol):
    """What a made-up server needs of the evidence."""

    def records(self) -> Sequence[TrialRecord]: ...

    def add_point(self, number: int, measured: MeasuredPoint) -> None: ...


@dataclass
class Clock:
    """Seconds that pass only while a trial runs."""

    deadline_s: float
    now_s: float = 0.0

    def interrupt(self) -> Interrupt:
        return Interrupt(lambda: self.now_s, self.deadline_s)


@dataclass
class World:
    """A runner whose servers are made up: the faster, the more sequences may run at once."""

    clock: Clock
    store: Kept
    interrupt: Interrupt
    seed: int = 0
    spread: float = 0.2
    """How much durations differ, as a share."""
    breaks: Callable[[Configuration], bool] = lambda configuration: _seqs(configuration) > 100
    noise: float = 0.005
    boost: Callable[[int], float] = lambda _number: 1.0
    """How many times faster what was first tried in this trial is than it would be."""

    def run(self, number: int, _plan: LaunchPlan, give_up: GiveUp) -> TrialResult:
        """Take the time that it takes, and give what it gives."""
        records = self.store.records()
        running = records[-1]
        same = [r for r in records if r.configuration == running.configuration]
        before = sum(map(was_run, same))
        luck = Random(f"{self.seed}:{running.configuration.digest}:{before}")  # noqa: S311 - reproducible
        launch_s, measure_s = (
            seconds * (1 + luck.uniform(-self.spread, self.spread)) for seconds in (LAUNCH_S, MEASURE_S)
        )
        if self.breaks(running.configuration):
            return self._over(failed(), {Step.LAUNCH: launch_s / 2})
        boost = self.boost(same[0].number)
        outcome = self._ladder(number, boost * (1 + _seqs(running.configuration)) ** 0.5, luck, give_up)
        return self._over(outcome, {Step.LAUNCH: launch_s, Step.MEASURE: measure_s})

    def _ladder(self, number: int, speed: float, luck: Random, give_up: GiveUp) -> Outcome:
        points: list[Point] = []
        for streams in (1, 2):
            measured = measured_point(streams, speed * luck.gauss(100.0, 100 * self.noise))
            self.store.add_point(number, measured)
            points.append(measured.point)
            if streams == 1 and (why := give_up(tuple(points))):
                return Abandoned(why=why, points=tuple(points))
        return Measured(points=tuple(points))

    def _over(self, outcome: Outcome, step_s: dict[Step, float]) -> TrialResult:
        """The clock has moved on, and what the deadline cut is interrupted."""
        self.clock.now_s += sum(step_s.values())
        if self.clock.now_s > self.interrupt.deadline_s and self.interrupt.reason:
            self.clock.now_s = self.interrupt.deadline_s
            return TrialResult(outcome=Interrupted(reason=self.interrupt.reason), step_s=step_s)
        return TrialResult(outcome=outcome, step_s=step_s)


def world_of(bed: Bed, clock: Clock, **changes: object) -> StudyLoop:
    """The loop of an invocation that ends at the clock's deadline, with the real search, course and store."""
    interrupt = clock.interrupt()
    world = World(clock=clock, store=bed.store(), interrupt=interrupt, **changes)  # type: ignore[arg-type]
    return replace(bed.loop(interrupt), runner=world)  # type: ignore[arg-type]


def was_run(record: TrialRecord) -> bool:
    """Whether a trial came to an end of its own."""
    return record.outcome is not None and bool(record.step_s) and not isinstance(record.outcome, Interrupted)


def ended(bed: Bed) -> list[tuple[Configuration, int | None]]:
    """What was launched and came to an end, in order, with the block of the finals."""
    return [(r.configuration, r.block) for r in bed.store().records() if was_run(r)]


@dataclass
class Memory:
    """A store, a search that draws at random, a course that asks it alone, and a launcher: all in memory."""

    seed: int
    trials: list[TrialRecord] = field(default_factory=list)

    def begin(self, record: TrialRecord, _mark: ServerMark | None) -> None:
        self.trials.append(record)

    def finish(self, number: int, outcome: Outcome, step_s: Mapping[Step, float], at: datetime) -> None:
        self.trials[number] = replace(
            self.trials[number], outcome=outcome, step_s=dict(step_s), finished_at=at
        )

    def add_point(self, _number: int, _measured: MeasuredPoint) -> None:
        """Its trial's outcome has it."""

    def records(self) -> Sequence[TrialRecord]:
        return list(self.trials)

    def unfinished(self) -> Sequence[tuple[TrialRecord, ServerMark | None]]:
        return []


@dataclass
class Draws:
    """The search and the course: the baseline, then what was not tried yet, at random."""

    store: Memory

    def begin(self, _configuration: Configuration, _origin: Origin) -> int:
        return len(self.store.trials)

    def tell(self, number: int, told: Told) -> None:
        """It does not learn."""

    def running(self) -> Sequence[tuple[int, Configuration, Origin]]:
        return []

    def learn(self, _records: Sequence[TrialRecord]) -> Sequence[Lesson]:
        return []

    def next(
        self, records: Sequence[TrialRecord], _lessons: Sequence[Lesson], _left_s: float
    ) -> Proposal | None:
        if not records:
            return Proposal(configuration=Configuration(), origin=Origin.BASELINE)
        tried = {_seqs(record.configuration) for record in records}
        draws = (Random(f"{self.store.seed}:{len(records)}:{n}").randint(1, 4000) for n in count())  # noqa: S311
        seqs = next(seqs for seqs in draws if seqs not in tried)
        return Proposal(configuration=Configuration(values={"max_num_seqs": seqs}), origin=Origin.SAMPLED)

    def prepare(self, _number: int, args: ServerArgs) -> LaunchPlan:
        mark = ServerMark(token="t", log_path="", tmp_dir="", port=1, boot_id="b")
        return LaunchPlan(command=("vllm", "serve", *args.flags), listen=(), env={}, mark=mark)

    def settle(self, _interrupt: Interrupt, _note: Callable[[str], None]) -> bool:
        return True


def quick(clock: Clock, limits: Limits, seed: int = 0, **changes: object) -> tuple[StudyLoop, Memory, Watch]:
    """A study of hundreds of trials in a second: the real loop, and nothing that is kept on disk."""
    store, watch, interrupt = Memory(seed=seed), Watch(), clock.interrupt()
    draws = Draws(store)
    given: dict[str, object] = {"breaks": lambda _configuration: False, **changes}
    world = World(clock=clock, store=store, interrupt=interrupt, seed=seed, **given)  # type: ignore[arg-type]
    loop = StudyLoop(
        spec=spec(SPACE, objectives=objectives("out_tok_s@2", "out_tok_s@1"), limits=limits, seed=seed),
        launcher=draws,  # type: ignore[arg-type]
        memory=draws,
        store=store,  # type: ignore[arg-type]
        search=draws,  # type: ignore[arg-type]
        course=draws,  # type: ignore[arg-type]
        runner=world,  # type: ignore[arg-type]
        observer=watch,
        interrupt=interrupt,
        now=lambda: datetime.now(UTC),
    )
    return loop, store, watch


def _seqs(configuration: Configuration) -> int:
    return int(configuration.values.get("max_num_seqs", 0))
