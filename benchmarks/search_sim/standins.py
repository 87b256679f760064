"""What the loop works with, on a simulated machine instead of processes, HTTP and GPU memory.

They obey the Protocols of `autotune.tune.ports`, so that the loop is the real one.
"""

from collections.abc import Callable, Mapping

from autotune.domain.aftermath import Aftermath
from autotune.domain.effective import Effective, Observed, ServerMetrics
from autotune.domain.failure import Evidence, Failure
from autotune.domain.interrupt import Interrupt
from autotune.domain.launch import ServerArgs
from autotune.domain.measurement import MeasuredPoint, Point, Quantiles
from autotune.domain.server import LaunchPlan, Readiness, ServerMark
from autotune.domain.space import Value
from autotune.domain.validation import Accepted, Refused, Validation
from search_sim import knobs
from search_sim.failing import failure_of
from search_sim.truth import ARGUMENTS, Fate, Luck
from search_sim.world import SETTLE_S, SMOKE_S, STOP_S, WARM_UP_S, WINDOW_S, Launch, World


class SimLauncher:
    """Starts simulated servers; the `Launcher` of the loop."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.failures: dict[str, Failure] = {}
        self.servers: dict[int, SimServer] = {}

    def prepare(self, number: int, args: ServerArgs) -> LaunchPlan:
        """A plan whose log path and port are the number of the trial."""
        mark = ServerMark(token=str(number), log_path=str(number), tmp_dir="", port=number, boot_id="")
        command = ("vllm", "serve", self.world.scenario.model.name, *args.flags)
        return LaunchPlan(command=command, listen=(), env=args.env, mark=mark)

    def start(self, plan: LaunchPlan) -> "SimServer":
        """A server that is not ready yet."""
        args = ServerArgs(flags=plan.command[3:], env=plan.env)
        server = SimServer(self.world, plan, self.world.launch(knobs.read_args(args)))
        self.servers[plan.mark.port] = server
        if server.launch.failure is not None:
            self.failures[server.read_log()] = server.launch.failure
        return server

    def reap(self, mark: ServerMark, grace_s: float) -> tuple[int, ...]:
        """Nothing is ever left of a simulated server."""
        return ()

    def diagnose(self, evidence: Evidence, /) -> Failure:
        """What the log, which is a name here, stands for."""
        return self.failures[evidence.log]


class SimServer:
    """A simulated server; the `Server` of the loop."""

    def __init__(self, world: World, plan: LaunchPlan, launch: Launch) -> None:
        self.world = world
        self.launch = launch
        self.mark = plan.mark
        self.exit_code: int | None = None

    def wait_ready(self, startup_s: float, interrupt: Interrupt) -> Readiness:
        """Let the time pass that it takes to be ready or to fail."""
        if not pass_time(self.world, min(startup_s, self.launch.start_s), interrupt):
            return Readiness.INTERRUPTED
        if self.launch.serves:
            return Readiness.READY
        self.exit_code = 1
        return Readiness.EXITED

    def read_log(self) -> str:
        """The name of the launch."""
        return f"launch of trial {self.mark.port}"

    def aftermath(self, interrupt: Interrupt, *, hung: bool = False) -> Aftermath:
        """Nothing to be seen from outside."""
        return Aftermath()

    def stop(self, grace_s: float) -> None:
        """Gone after a moment; the second call finds nothing to stop."""
        if self.exit_code is None or self.exit_code > 0:
            self.world.now_s += STOP_S
        self.exit_code = -15


class SimBench:
    """Load on the simulated servers; the `Bench` of the loop."""

    def __init__(self, launcher: SimLauncher) -> None:
        self._launcher = launcher
        self._world = launcher.world

    def _server(self, url: str) -> SimServer:
        return self._launcher.servers[int(url.rpartition(":")[2])]

    def smoke(self, url: str, timeout_s: float, interrupt: Interrupt) -> str | None:
        """The first request is where some conflicts show."""
        server = self._server(url)
        if not pass_time(self._world, SMOKE_S, interrupt):
            return "interrupted"
        if server.launch.fate is Fate.CONFLICT:
            server.exit_code = 1
            return "the connection was reset"
        return None

    def warm_up(self, url: str, interrupt: Interrupt) -> str | None:
        """Never fails."""
        pass_time(self._world, WARM_UP_S, interrupt)
        return None

    def measure(
        self, url: str, streams: int, expected_e2e_s: float | None, interrupt: Interrupt
    ) -> MeasuredPoint | None:
        """A point, or the end of a server that runs out of memory under load."""
        server = self._server(url)
        launch = server.launch
        if launch.fate is Fate.OOM_SERVING:
            if not pass_time(self._world, 0.5 * WINDOW_S, interrupt):
                return None
            server.exit_code = 1
            return _measured_point(streams, 0.0, self._world, broken_off="the connection was reset")
        window_s = self._world.window_s(launch, streams)
        if not pass_time(self._world, window_s, interrupt):
            return None
        return _measured_point(streams, self._world.measured(launch, streams), self._world)


def _measured_point(streams: int, rate: float, world: World, broken_off: str | None = None) -> MeasuredPoint:
    load = world.scenario.load
    total_s = load.output * streams / rate if rate else 0.0
    done = max(1, round(WINDOW_S * rate / load.output))
    point = Point(
        streams=streams,
        window_s=WINDOW_S,
        out_tok_s=rate,
        prompt_tok_s=rate * load.prompt / load.output,
        req_s=rate / load.output,
        ttft_s=None,
        tpot_s=None,
        e2e_s=Quantiles(n=done, p50=total_s) if rate else None,
        done=done,
        failed=0,
    )
    return MeasuredPoint(point=point, window=(0.0, WINDOW_S), requests=(), broken_off=broken_off)


def pass_time(world: World, seconds: float, interrupt: Interrupt) -> bool:
    """Let time pass; False when the deadline, where it stops, came before that."""
    if world.now_s + seconds >= interrupt.deadline_s:
        world.now_s = max(world.now_s, interrupt.deadline_s)
        return False
    world.now_s += seconds
    return interrupt.reason is None


class SimMemory:
    """Memory that settles at once; the `Memory` of the loop."""

    def __init__(self, world: World) -> None:
        self._world = world

    def settle(self, interrupt: Interrupt, note: Callable[[str], None]) -> bool:
        """True unless the time is up."""
        return pass_time(self._world, SETTLE_S, interrupt)


class SimReadBack:
    """What vLLM's log would tell of the memory; the `ReadBack` of the loop."""

    def __init__(self, launcher: SimLauncher) -> None:
        self._launcher = launcher

    def look(self, url: str) -> ServerMetrics | None:
        """No metrics."""
        return None

    def effective(self, observed: Observed) -> Effective:
        """The facts that a server writes before it is ready, as far as this one came."""
        number = int(observed.log.rpartition(" ")[2])
        launch, truth = self._launcher.servers[number].launch, self._launcher.world.truth
        facts: dict[str, Value] = {}
        if launch.fate not in (*ARGUMENTS, Fate.HOST_OOM, Fate.OOM_WEIGHTS):
            facts["weights_gib"] = round(truth.weights_gib(launch.row).item(), 2)
        profiled = (Fate.WORKS, Fate.KV_TOO_SMALL, Fate.NO_KV, Fate.OOM_GRAPHS, Fate.OOM_SERVING)
        if launch.fate in profiled and not truth.device.on_cpu:
            facts["kv_cache_gib"] = round(truth.room_gib(launch.row, launch.luck).item(), 2)
            facts["activation_gib"] = round(truth.working_gib(launch.row).item(), 2)
        if launch.fate in (Fate.WORKS, Fate.OOM_SERVING) and not truth.device.on_cpu:
            facts["graphs_gib"] = round(truth.graphs_gib(launch.row).item(), 2)
            tokens = truth.room_gib(launch.row, launch.luck) / truth.kv_token_gib(launch.row)
            facts["kv_cache_tokens"] = int(tokens.item())
        return Effective(facts=facts)


class SimValidator:
    """vLLM's own check of the arguments, which knows nothing of memory; the `Validator` of the loop."""

    def __init__(self, world: World) -> None:
        self._truth = world.truth
        self._known: dict[tuple[object, ...], Validation] = {}

    def validate(self, args: ServerArgs) -> Validation:
        """Refused where the arguments contradict each other."""
        words = (args.flags, tuple(args.env.items()))
        if words not in self._known:
            self._known[words] = self._judged(knobs.read_args(args))
        return self._known[words]

    def _judged(self, settings: Mapping[str, Value]) -> Validation:
        row = knobs.columns([settings], self._truth.defaults)
        fate = Fate(int(self._truth.fates(row)[0]))
        if fate in ARGUMENTS:
            return Refused(text=failure_of(fate, self._truth, row, Luck()).root_line or fate.name)
        effective: dict[str, Value] = {name: column.item() for name, column in row.items()}
        return Accepted(effective=effective)
