"""autotune itself on a simulated machine: its loop, course, search, lessons and gate are the real ones."""

from datetime import timedelta

from autotune.decide.lessons.gate import scope_of
from autotune.decide.lessons.plan import Learner
from autotune.decide.memory.estimate import memory_model
from autotune.decide.ranking import values_of
from autotune.decide.space.site import Site
from autotune.decide.start_values import StartValues
from autotune.decide.starts import start_points
from autotune.domain.interrupt import Interrupt
from autotune.domain.launch import settings
from autotune.domain.start import StartPoint
from autotune.domain.study import Limits, StudySpec
from autotune.domain.trial import Failed, Origin, TrialRecord
from autotune.files.lessons import read_lessons
from autotune.files.starts import read_starts
from autotune.search.study import OptunaSearch
from autotune.tune.course import Course
from autotune.tune.study import StudyLoop
from autotune.tune.trial import TrialRunner
from search_sim.history import Done, History
from search_sim.kept import BEGIN, Kept, Shelf, Silence
from search_sim.scenario import Scenario
from search_sim.standins import SimBench, SimLauncher, SimMemory, SimReadBack, SimValidator
from search_sim.world import World

LIMITS = Limits(finalists=0)
"""As shipped, but without finals: what is compared is what the searches find."""


def run_ours(scenario: Scenario, seed: int, budget_s: float) -> History:
    """As it ships."""
    return _run(scenario, seed, budget_s, starts=starts_of(scenario))


def run_default_start(scenario: Scenario, seed: int, budget_s: float) -> History:
    """With the default as the only start point: trial 0, and once more with all that it leaves out said."""
    default, _ = StartValues.of(scenario.space, _site(scenario), read_starts()).full({})
    start = StartPoint(configuration=default, origin=Origin.EXPERT, why="the default in full")
    return _run(scenario, seed, budget_s, starts=(start,))


def starts_of(scenario: Scenario) -> tuple[StartPoint, ...]:
    """The shipped start points, as a study of this scenario gets them."""
    return start_points(scenario.space, _site(scenario), read_starts())


def _site(scenario: Scenario) -> Site:
    environment = scenario.environment
    return Site(
        machine=environment.machine,
        vllm=environment.vllm,
        model=scenario.model,
        workload=scenario.workload,
        context_tokens=scenario.context_tokens,
    )


def _run(scenario: Scenario, seed: int, budget_s: float, starts: tuple[StartPoint, ...]) -> History:
    world, store = World(scenario, seed), Kept()
    spec = StudySpec(
        name=scenario.name,
        model=scenario.model.name,
        space=scenario.space,
        workload=scenario.workload,
        objectives=scenario.goals,
        seed=seed,
        limits=LIMITS,
        starts=starts,
        architecture=scenario.model.architecture,
    )
    _loop(world, spec, store, budget_s).run()
    return History(
        scenario=scenario,
        budget_s=budget_s,
        trials=[_done(record, scenario) for record in store.records() if record.finished_at],
        refused={grounds.value: count for grounds, count in store.refused.items()},
    )


def _loop(world: World, spec: StudySpec, store: Kept, budget_s: float) -> StudyLoop:
    scenario, observer = world.scenario, Silence()
    launcher, interrupt = SimLauncher(world), Interrupt(world.clock, budget_s)
    search = OptunaSearch(spec, None)
    learner = Learner(
        study=spec.name,
        space=spec.space,
        scope=scope_of(scenario.environment, spec.model, spec.architecture),
        book=read_lessons(),
        limits=spec.limits,
    )

    def pause(seconds: float) -> None:
        world.now_s += seconds

    return StudyLoop(
        spec=spec,
        launcher=launcher,
        memory=SimMemory(world),
        store=store,
        search=search,
        course=Course(
            learner=learner,
            shelf=Shelf(),
            store=store,
            search=search,
            observer=observer,
            validator=SimValidator(world),
            memory=memory_model(scenario.environment, scenario.model),
        ),
        runner=TrialRunner(
            launcher=launcher,
            bench=SimBench(launcher),
            store=store,
            diagnose=launcher.diagnose,
            read_back=SimReadBack(launcher),
            observer=observer,
            interrupt=interrupt,
            pause=pause,
            limits=spec.limits,
            streams=scenario.streams,
        ),
        observer=observer,
        interrupt=interrupt,
        now=lambda: BEGIN + timedelta(seconds=world.now_s),
    )


def _done(record: TrialRecord, scenario: Scenario) -> Done:
    ended = record.finished_at or BEGIN
    return Done(
        settings=settings(scenario.space, record.configuration),
        ended_s=(ended - BEGIN).total_seconds(),
        took_s=(ended - record.started_at).total_seconds(),
        failed=isinstance(record.outcome, Failed),
        values=values_of(record, scenario.goals),
        origin=record.origin.value,
    )
