"""The simulated machine on its own clock: what becomes of a launch, and how long it takes.

All that is random in it comes from one generator, so that the same seed and the same launches give the same
results.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from autotune.domain.failure import Failure, Phase
from autotune.domain.space import Value
from search_sim import knobs
from search_sim.failing import failure_of
from search_sim.knobs import Columns
from search_sim.scenario import Scenario
from search_sim.speed import rate
from search_sim.truth import ARGUMENTS, Fate, Luck

LAUNCH_SD, POINT_SD = 0.025, 0.0166
"""Noise of a launch, common to all its points, and of each point: together 3 %, as the logarithm."""
DRIFT, DRIFT_S = 0.01, 3 * 3600.0
"""The machine is by so much faster and slower in the course of so long."""

SETTLE_S, SMOKE_S, WARM_UP_S, STOP_S = 0.5, 1.5, 6.0, 1.5
WINDOW_S, MAX_WINDOW_S = 15.0, 45.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What becomes of one launch. `failed_s` is when it fails, from its begin; `start_s` when it is ready."""

    row: Columns
    fate: Fate
    failure: Failure | None
    start_s: float
    luck: Luck
    noise: float

    @property
    def serves(self) -> bool:
        """Whether it comes to answer `/health`."""
        late = self.fate is Fate.OOM_SERVING or (
            self.failure is not None and self.failure.phase is Phase.FIRST_REQUEST
        )
        return self.fate is Fate.WORKS or late


@dataclass
class World:
    """One machine in one run of a search."""

    scenario: Scenario
    seed: int
    now_s: float = 0.0
    launches: int = 0
    _luck: Random = field(init=False)

    def __post_init__(self) -> None:
        self.truth = self.scenario.truth
        self._luck = Random(f"{self.scenario.name}:{self.seed}")  # noqa: S311 - reproducible on purpose
        self._phase = self._luck.uniform(0, 2 * math.pi)

    def clock(self) -> float:
        """Seconds since the search began."""
        return self.now_s

    def launch(self, settings: Mapping[str, Value]) -> Launch:
        """Decide what becomes of a server with these settings, which is started now."""
        self.launches += 1
        row = knobs.columns([settings], self.truth.defaults)
        luck = Luck(self._luck.gauss(0, 1), self._luck.gauss(0, 1))
        noise = self._luck.gauss(0, LAUNCH_SD)
        fate = Fate(int(self.truth.fates(row, luck)[0]))
        failure = None if fate is Fate.WORKS else failure_of(fate, self.truth, row, luck)
        start_s = self._start_s(fate, failure, row) * math.exp(self._luck.gauss(0, 0.05))
        return Launch(row=row, fate=fate, failure=failure, start_s=start_s, luck=luck, noise=noise)

    def _start_s(self, fate: Fate, failure: Failure | None, row: Columns) -> float:
        """Until it is ready, or fails."""
        startup = self.scenario.startup
        eager = row[knobs.EAGER].item() == 1
        loaded = startup.process_s + startup.load_s + 0.6 * row[knobs.OFFLOAD].item()
        compiled = loaded + (4.0 if eager else startup.compile_s)
        ready = compiled + 3.0 + (0.0 if eager else startup.graphs_s)
        if fate in ARGUMENTS:
            return startup.process_s
        if fate in (Fate.OOM_WEIGHTS, Fate.HOST_OOM):
            return startup.process_s + startup.load_s * self._luck.uniform(0.4, 1.0)
        if fate is Fate.UNSUPPORTED_CACHE:
            return loaded
        if fate in (Fate.OOM_PROFILE, Fate.NO_KV, Fate.KV_TOO_SMALL):
            return compiled
        if fate is Fate.CONFLICT and failure is not None and failure.phase is not Phase.FIRST_REQUEST:
            return loaded
        return ready

    def window_s(self, launch: Launch, streams: int) -> float:
        """How long a point takes: its window, and a request before it that fills the pipeline."""
        tok_s = rate(self.truth, launch.row, streams).item()
        request_s = self.scenario.load.output * min(streams, 64) / max(tok_s, 1e-6)
        return min(MAX_WINDOW_S, WINDOW_S + min(request_s, 15.0))

    def measured(self, launch: Launch, streams: int) -> float:
        """Output tokens a second, as a measurement of this launch gives them."""
        tok_s = rate(self.truth, launch.row, streams).item()
        drift = DRIFT * math.sin(2 * math.pi * self.now_s / DRIFT_S + self._phase)
        return tok_s * math.exp(launch.noise + self._luck.gauss(0, POINT_SD) + drift)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A trial of a rival: the objectives' values, or None where it failed or its time was up."""

    values: tuple[float, ...] | None
    failed: bool
    took_s: float


def attempt(world: World, settings: Mapping[str, Value], end_s: float) -> Attempt:
    """Launch, measure the ladder and stop, in the time that autotune's own trial takes for it."""
    begin_s = world.now_s
    world.now_s += SETTLE_S
    launch = world.launch(settings)
    world.now_s += launch.start_s
    values: dict[int, float] = {}
    if launch.serves:
        world.now_s += SMOKE_S
    if launch.fate is Fate.OOM_SERVING:
        world.now_s += WARM_UP_S + 0.5 * WINDOW_S
    if launch.fate is Fate.WORKS:
        world.now_s += WARM_UP_S
        for streams in world.scenario.streams:
            world.now_s += world.window_s(launch, streams)
            values[streams] = world.measured(launch, streams)
    world.now_s += STOP_S
    failed = launch.failure is not None
    if world.now_s > end_s:
        world.now_s = end_s
        return Attempt(values=None, failed=failed, took_s=end_s - begin_s)
    goals = world.scenario.goals
    return Attempt(
        values=None if failed else tuple(values[goal.streams] for goal in goals),
        failed=failed,
        took_s=world.now_s - begin_s,
    )


def true_values(scenario: Scenario, settings: Mapping[str, Value]) -> tuple[float, ...]:
    """What the objectives are in truth."""
    row = knobs.columns([settings], scenario.truth.defaults)
    return tuple(rate(scenario.truth, row, goal.streams).item() for goal in scenario.goals)
