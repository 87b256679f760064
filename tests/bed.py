"""A study in a folder, run in this process on the fake vLLM."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import psutil
from builders import environment, objectives, spec

from autotune.bench.load import LoadBench
from autotune.decide.failures.classify import classify
from autotune.decide.plan import Plan
from autotune.domain.interrupt import Interrupt
from autotune.domain.measurement import Point
from autotune.domain.space import CategoricalDomain, Configuration, Parameter, SearchSpace, Target, TargetKind
from autotune.domain.study import Limits, StudySpec
from autotune.domain.trial import Interruption, Origin, Step, TrialRecord
from autotune.domain.workload import Lengths, Workload
from autotune.files.effective import VLLM_EFFECTIVE, read_effective
from autotune.files.rules import VLLM_RULES, read_rules
from autotune.files.space_document import space_document
from autotune.search.study import OptunaSearch
from autotune.server.gpu_memory import GpuUse
from autotune.server.launcher import LocalLauncher
from autotune.server.memory import Memory
from autotune.server.settling import SettlingMemory
from autotune.store.connection import open_engine
from autotune.store.evidence import EvidenceStore
from autotune.tune.course import Course
from autotune.tune.study import Ending, StudyLoop
from autotune.tune.trial import TrialRunner
from autotune.wiring.lessons import learner_of
from autotune.wiring.read_back import ServerReadBack

SEQS = Parameter(
    name="max_num_seqs",
    domain=CategoricalDomain(choices=(1, 2, 4, 8, 64, 128)),
    target=Target(kind=TargetKind.FLAG, name="--max-num-seqs"),
)
SPACE = SearchSpace(name="seqs", parameters=(SEQS,))
WORKLOAD = Workload(
    prompt_tokens=Lengths.fixed(16),
    output_tokens=Lengths.fixed(8),
    streams=(1, 2),
    prompts=4,
    min_window_s=0.2,
    max_window_s=0.4,
)

SEARCH_ONLY = Limits(startup_s=20, smoke_s=10, stop_grace_s=1.0, control_every=0, finalists=0)
"""Short, and nothing is launched but what the search chooses."""

QUIET = Memory(total_bytes=2**34, available_bytes=2**33)
"""Of a machine on which nothing else happens."""


@dataclass
class Watch:
    """An observer that remembers, and can act when a step begins."""

    at_step: Callable[[int, Step], None] = lambda _number, _step: None
    notes: list[str] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    finished: list[TrialRecord] = field(default_factory=list)

    def study_opened(self, records: Sequence[TrialRecord]) -> None:
        pass

    def planned(self, plan: Plan) -> None:
        self.plans.append(plan)

    def trial_started(self, number: int, origin: Origin, configuration: Configuration) -> None:
        pass

    def step_started(self, number: int, step: Step) -> None:
        self.at_step(number, step)

    def point_measured(self, number: int, point: Point) -> None:
        pass

    def trial_finished(self, record: TrialRecord) -> None:
        self.finished.append(record)

    def note(self, text: str) -> None:
        self.notes.append(text)


@dataclass
class Bed:
    """A study in a folder, on the fake vLLM."""

    folder: Path
    command: tuple[str, ...]
    limits: Limits = SEARCH_ONLY
    watch: Watch = field(default_factory=Watch)
    space: SearchSpace = SPACE
    gpus: Callable[[], GpuUse] = GpuUse
    name: str = "fake"
    seed: int = 7

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder}/{self.name}.db"

    @property
    def spec(self) -> StudySpec:
        changes = {"workload": WORKLOAD, "limits": self.limits, "name": self.name, "seed": self.seed}
        return spec(self.space, objectives=objectives("out_tok_s@2", "out_tok_s@1"), **changes)

    def store(self) -> EvidenceStore:
        return EvidenceStore(open_engine(self.url, create=True))

    def loop(self, interrupt: Interrupt) -> StudyLoop:
        store = self.store()
        if store.info() is None:
            store.create(self.spec, space_document(self.space), environment(), datetime.now(UTC))
        store.begin_run(1.0, datetime.now(UTC))
        launcher = LocalLauncher(
            command=self.command, model="tiny", logs_dir=self.folder / "logs", cache_dir=self.folder / "cache"
        )
        rules = read_rules(VLLM_RULES)
        runner = TrialRunner(
            launcher=launcher,
            bench=LoadBench("tiny", WORKLOAD, counters=read_effective(VLLM_EFFECTIVE).counters),
            store=store,
            diagnose=lambda evidence: classify(evidence, rules),
            read_back=ServerReadBack(
                book=read_effective(VLLM_EFFECTIVE), rules=rules, environment=environment()
            ),
            observer=self.watch,
            interrupt=interrupt,
            pause=time.sleep,
            limits=self.limits,
            streams=WORKLOAD.streams,
        )
        learner = learner_of(self.spec, environment())
        search = OptunaSearch(self.spec, self.url)
        return StudyLoop(
            spec=self.spec,
            launcher=launcher,
            memory=SettlingMemory(self.gpus, read=lambda: (QUIET,)),
            store=store,
            search=search,
            course=Course(
                learner=learner, shelf=store.lessons, store=store, search=search, observer=self.watch
            ),
            runner=runner,
            observer=self.watch,
            interrupt=interrupt,
            now=lambda: datetime.now(UTC),
        )

    def run_trials(self, count: int) -> Ending:
        """Run until `count` further trials are finished, then stop as a user would."""
        interrupt = Interrupt(time.monotonic, time.monotonic() + 100)
        done = len(self.watch.finished) + count
        finished = self.watch.trial_finished

        def stop_after(record: TrialRecord) -> None:
            finished(record)
            if len(self.watch.finished) >= done:
                interrupt.request(Interruption.USER)

        self.watch.trial_finished = stop_after  # type: ignore[method-assign]
        try:
            return self.loop(interrupt).run().ending
        finally:
            self.watch.trial_finished = finished  # type: ignore[method-assign]

    def processes_left(self) -> list[psutil.Process]:
        """Processes whose standard output is a log of this study."""
        left = []
        for process in psutil.process_iter():
            try:
                paths = [f.path for f in process.open_files()]
            except psutil.Error:
                continue
            if any(str(self.folder) in path and path.endswith(".log") for path in paths):
                left.append(process)
        return left
