"""What the loop needs from the outside world; `autotune.wiring` supplies it."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from autotune.decide.plan import Plan
from autotune.decide.told import Told
from autotune.domain.aftermath import Aftermath
from autotune.domain.effective import Effective, Observed, ServerMetrics
from autotune.domain.failure import Evidence, Failure
from autotune.domain.fill import Fill
from autotune.domain.interrupt import Interrupt
from autotune.domain.launch import ServerArgs
from autotune.domain.lesson import Lesson
from autotune.domain.measurement import MeasuredPoint, Point
from autotune.domain.output import Output
from autotune.domain.refusal import Refusal
from autotune.domain.server import LaunchPlan, Readiness, ServerMark
from autotune.domain.space import Configuration, SearchSpace
from autotune.domain.trial import Origin, Outcome, Proposal, Step, TrialRecord
from autotune.domain.validation import Validation


class Server(Protocol):
    """One spawned server."""

    @property
    def mark(self) -> ServerMark:
        """How its processes are found again, pid included."""

    @property
    def exit_code(self) -> int | None:
        """None while the first process lives; negative for a signal."""

    def wait_ready(self, startup_s: float, interrupt: Interrupt) -> Readiness:
        """Block until it is ready, has ended, or may not be waited for any longer."""

    def read_log(self) -> str:
        """What it has written so far; of a very long log, the beginning and the end."""

    def aftermath(self, interrupt: Interrupt, *, hung: bool = False) -> Aftermath:
        """What was seen of it from outside; of one that is `hung`, also what its processes are doing."""

    def stop(self, grace_s: float) -> None:
        """End all its processes and prove that they, and the port, are gone. Can be called twice.

        Raises ProcessStillAlive when that cannot be proved.
        """


class Launcher(Protocol):
    """Starts servers, and ends those of a run that was killed."""

    def prepare(self, number: int, args: ServerArgs) -> LaunchPlan:
        """Choose port, log file and scratch directory of trial `number`. Spawns nothing."""

    def start(self, plan: LaunchPlan) -> Server:
        """Spawn it. Raises EnvironmentFault when the program cannot be executed at all."""

    def reap(self, mark: ServerMark, grace_s: float) -> tuple[int, ...]:
        """End what is left of a server and remove its scratch directory; returns the pids that were ended."""


class Memory(Protocol):
    """The memory of the machine and its GPUs."""

    def settle(self, interrupt: Interrupt, note: Callable[[str], None]) -> bool:
        """Wait, within bounds, until what earlier servers held is free again; False when interrupted.

        `note` is told what is waited for, and who else holds memory.
        """


class Bench(Protocol):
    """Puts load on a server, with the study's workload."""

    def smoke(self, url: str, timeout_s: float, interrupt: Interrupt) -> str | None:
        """Ask for one real completion; None when it came back, else what was wrong with it."""

    def warm_up(self, url: str, interrupt: Interrupt) -> str | None:
        """Make the server compile what the load will need; what was wrong when requests fail, else None.

        Also None when interrupted.
        """

    def measure(
        self, url: str, streams: int, expected_e2e_s: float | None, interrupt: Interrupt
    ) -> MeasuredPoint | None:
        """Measure one point; None when interrupted. Ends soon when every request fails, and ends always."""


class TrialLog(Protocol):
    """Keeps what a running trial tells of itself. Every call is on disk when it returns."""

    def set_mark(self, number: int, mark: ServerMark) -> None:
        """Add the pid of the spawned server."""

    def add_point(self, number: int, measured: MeasuredPoint) -> None:
        """Keep a point and its requests."""

    def set_effective(self, number: int, effective: Effective) -> None:
        """Add what vLLM made of the settings."""

    def set_outputs(self, number: int, outputs: Sequence[Output]) -> None:
        """Add its answers to the fixed prompts."""

    def set_fills(self, number: int, fills: Sequence[Fill]) -> None:
        """Add what of its context it was seen to serve; what was kept before is replaced."""


class TrialStore(TrialLog, Protocol):
    """Keeps the evidence. Every call is one transaction, on disk when it returns."""

    def begin(self, record: TrialRecord, mark: ServerMark | None) -> None:
        """Keep a trial that is about to be launched; without a mark when nothing was prepared for it."""

    def finish(
        self, number: int, outcome: Outcome, step_s: Mapping[Step, float], finished_at: datetime
    ) -> None:
        """Keep how it ended."""

    def count_refused(self, refused: Sequence[Refusal]) -> None:
        """Add to the configurations that came up in this invocation and were not launched."""

    def points(self, number: int) -> tuple[Point, ...]:
        """The points kept of a trial, in rising stream counts."""

    def records(self) -> Sequence[TrialRecord]:
        """All trials in the order of their numbers."""

    def unfinished(self) -> Sequence[tuple[TrialRecord, ServerMark | None]]:
        """Trials without an outcome: those of a run that was killed."""


class LessonShelf(Protocol):
    """Keeps lessons. Every call is one transaction, on disk when it returns."""

    def all(self) -> Sequence[Lesson]:
        """All of them, in the order of their numbers."""

    def add(self, lesson: Lesson) -> None:
        """Keep a lesson."""


Refuses = Callable[[Configuration], Refusal | None]
"""Why a configuration must not be launched; None where it may be."""


class Validator(Protocol):
    """The installed vLLM's own check of a configuration, without a launch."""

    def validate(self, args: ServerArgs) -> Validation:
        """What it says; `NotKnown`, within bounds of time, whenever it cannot be asked. Never raises."""


class Shortage(Protocol):
    """The memory a configuration lacks, by an estimate."""

    @property
    def needed_bytes(self) -> float:
        """What it needs of the memory that it is short of."""

    @property
    def available_bytes(self) -> float:
        """What it has of that."""

    @property
    def ratio(self) -> float:
        """How many times what there is; above 1."""

    @property
    def why(self) -> str:
        """A sentence with the sizes."""


class MemoryGate(Protocol):
    """An estimate of the memory that configurations of one study need."""

    def shortage(self, configuration: Configuration) -> Shortage | None:
        """What `configuration` lacks; None where it fits or nothing can be said."""


class MemoryModel(Protocol):
    """How much memory this model needs on this machine, before anything was launched."""

    def calibrated(self, space: SearchSpace, records: Sequence[TrialRecord]) -> MemoryGate:
        """The estimate, corrected by what `records` have shown."""


class Search(Protocol):
    """Chooses configurations and remembers what came of them, in an Optuna study."""

    def propose(self, refuses: Refuses) -> Proposal | None:
        """The next configuration to try: the same for the same seed, history and refusals.

        Never one that is refused; None when it finds no other.
        """

    def begin(self, configuration: Configuration, origin: Origin) -> int:
        """Register it as running and return its trial number."""

    def tell(self, number: int, told: Told) -> None:
        """Say how it ended; telling the same trial again changes nothing."""

    def running(self) -> Sequence[tuple[int, Configuration, Origin]]:
        """Trials begun and never told."""


class Diagnose(Protocol):
    """Names a failure."""

    def __call__(self, evidence: Evidence, /) -> Failure:
        """Kind, phase, blame, root line and cure; kind `unknown` when nothing is recognised."""


class ReadBack(Protocol):
    """Reads back from a server what it made of its settings."""

    def look(self, url: str) -> ServerMetrics | None:
        """Its metrics now; None when it has none, or does not answer."""

    def effective(self, observed: Observed) -> Effective:
        """Facts, and the settings that are not what was asked for."""


class Observer(Protocol):
    """Watches the loop; must return quickly and never raise."""

    def study_opened(self, records: Sequence[TrialRecord]) -> None:
        """These trials were made by earlier invocations."""

    def planned(self, plan: Plan) -> None:
        """What the time that is left is for, before each trial of the search once one was measured."""

    def trial_started(self, number: int, origin: Origin, configuration: Configuration) -> None:
        """A trial is about to be launched."""

    def step_started(self, number: int, step: Step) -> None:
        """It has come to this step."""

    def point_measured(self, number: int, point: Point) -> None:
        """One stream count is done."""

    def trial_finished(self, record: TrialRecord) -> None:
        """It is over and kept."""

    def note(self, text: str) -> None:
        """Something the user should know."""
