"""One trial, from the launch to the proof that its server is gone.

Whatever becomes of the server is an outcome. Only two things leave as exceptions, because no other trial can
follow them: a program that cannot be started at all, and, in the result, processes that would not die.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from autotune.decide.failures.behaviour import is_silence
from autotune.domain.effective import Observed
from autotune.domain.failure import Blame, Evidence, Failure, FailureKind, Phase
from autotune.domain.interrupt import Interrupt
from autotune.domain.measurement import MeasuredPoint, Point
from autotune.domain.server import LaunchPlan, Readiness
from autotune.domain.study import Limits
from autotune.domain.trial import Abandoned, Failed, Interrupted, Measured, Outcome, Step
from autotune.errors import HarnessError, ProcessStillAlive
from autotune.tune.ports import Bench, Diagnose, Launcher, Observer, ReadBack, Server, TrialLog

MAX_FAILED_SHARE = 0.01
"""Share of failed requests above which a point, and with it the trial, has failed."""

SETTLE_S = 5.0
"""How long a server whose request failed may take to exit before its log is read. An engine that dies takes
the API server with it in about 1 s (vLLM 0.32 on CPU), and the cause is only in the log by then."""

POLL_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """How it ended; `still_alive` when its server could not be proved gone."""

    outcome: Outcome
    step_s: Mapping[Step, float]
    still_alive: ProcessStillAlive | None = None


GiveUp = Callable[[tuple[Point, ...]], str | None]
"""Why the rest of the ladder is not worth it after these points; None if it may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRunner:
    """Runs trials one after another with the same tools."""

    launcher: Launcher
    bench: Bench
    store: TrialLog
    diagnose: Diagnose
    read_back: ReadBack
    observer: Observer
    interrupt: Interrupt
    pause: Callable[[float], None]
    limits: Limits
    streams: tuple[int, ...]

    def run(self, number: int, plan: LaunchPlan, give_up: GiveUp = lambda _points: None) -> TrialResult:
        """Launch, measure and stop the server of `plan`. `give_up` is asked after each point but the last.

        Raises EnvironmentFault when the program cannot be started.
        """
        steps = _Steps(number, self.observer, self.interrupt.clock)
        with steps.timed(Step.LAUNCH):
            server = self.launcher.start(plan)
        try:
            self.store.set_mark(number, server.mark)
            outcome = self._use(number, plan.url, server, steps, give_up)
            was_ready = Step.SMOKE in steps.seconds
            self._keep_effective(number, plan, server, outcome, was_ready=was_ready)
        finally:
            still_alive = self._stop(server, steps)
        return TrialResult(outcome=outcome, step_s=steps.seconds, still_alive=still_alive)

    def _keep_effective(
        self, number: int, plan: LaunchPlan, server: Server, outcome: Outcome, *, was_ready: bool
    ) -> None:
        """Read back what the server made of its settings, before it is stopped."""
        observed = Observed(
            argv=plan.command,
            env=plan.env,
            log=server.read_log(),
            # Before it was ready, another server may be the one that answers there.
            metrics=self.read_back.look(plan.url) if was_ready and server.exit_code is None else None,
            points=outcome.points,
        )
        self.store.set_effective(number, self.read_back.effective(observed))

    def _stop(self, server: Server, steps: "_Steps") -> ProcessStillAlive | None:
        with steps.timed(Step.STOP):
            try:
                server.stop(self.limits.stop_grace_s)
            except ProcessStillAlive as error:
                return error
        return None

    def _use(self, number: int, url: str, server: Server, steps: "_Steps", give_up: GiveUp) -> Outcome:
        with steps.timed(Step.LAUNCH):
            readiness = server.wait_ready(self.limits.startup_s, self.interrupt)
        if readiness is not Readiness.READY:
            return self._not_ready(readiness, server)
        with steps.timed(Step.SMOKE):
            error = self.bench.smoke(url, self.limits.smoke_s, self.interrupt)
        if self.interrupt.reason:
            return Interrupted(reason=self.interrupt.reason)
        if error is not None:
            return Failed(failure=self._diagnose(server, ready=True, client_error=error))
        with steps.timed(Step.MEASURE):
            return self._measure(number, url, server, give_up)

    def _not_ready(self, readiness: Readiness, server: Server) -> Outcome:
        match readiness:
            case Readiness.INTERRUPTED if self.interrupt.reason:
                return Interrupted(reason=self.interrupt.reason)
            case Readiness.NOT_OURS:
                return Failed(failure=_foreign_server(server.mark.port))
            case Readiness.EXITED | Readiness.TIMED_OUT:
                timed_out = readiness is Readiness.TIMED_OUT
                return Failed(failure=self._diagnose(server, timed_out=timed_out))
        raise HarnessError(f"waiting for a server ended as {readiness} with nothing to stop it")

    def _measure(self, number: int, url: str, server: Server, give_up: GiveUp) -> Outcome:
        error = self.bench.warm_up(url, self.interrupt)
        if self.interrupt.reason:
            return Interrupted(reason=self.interrupt.reason)
        if error is not None:
            return Failed(failure=self._diagnose(server, ready=True, served=True, client_error=error))
        points: list[Point] = []
        for streams in self.streams:
            expected_e2e_s = points[-1].total_s if points else None
            measured = self.bench.measure(url, streams, expected_e2e_s, self.interrupt)
            if measured is None:
                reason = self.interrupt.reason
                if reason is None:
                    raise HarnessError(f"the point at {streams} streams was broken off with no reason to")
                return Interrupted(reason=reason, points=tuple(points))
            if error := _what_failed(measured, server):
                failure = self._diagnose(server, ready=True, served=True, client_error=error)
                return Failed(failure=failure, points=tuple(points))
            self.store.add_point(number, measured)
            self.observer.point_measured(number, measured.point)
            points.append(measured.point)
            if streams != self.streams[-1] and (why := give_up(tuple(points))) is not None:
                return Abandoned(why=why, points=tuple(points))
        return Measured(points=tuple(points))

    def _diagnose(
        self,
        server: Server,
        *,
        ready: bool = False,
        served: bool = False,
        timed_out: bool = False,
        client_error: str | None = None,
    ) -> Failure:
        """Name what went wrong, once the server has had the time to say it."""
        until_s = self.interrupt.clock() + (SETTLE_S if client_error else 0.0)
        while server.exit_code is None and self.interrupt.clock() < until_s and not self.interrupt.reason:
            self.pause(POLL_S)
        hung = timed_out or (client_error is not None and is_silence(client_error))
        aftermath = server.aftermath(self.interrupt, hung=hung)
        return self.diagnose(
            Evidence(
                log=server.read_log(),
                exit_code=server.exit_code,
                ready=ready,
                served=served,
                timed_out=timed_out,
                client_error=client_error,
                aftermath=aftermath,
            )
        )


class _Steps:
    """Tells the observer which step a trial has come to, and adds up how long each took."""

    def __init__(self, number: int, observer: Observer, clock: Callable[[], float]) -> None:
        self._number = number
        self._observer = observer
        self._clock = clock
        self.seconds: dict[Step, float] = {}

    @contextmanager
    def timed(self, step: Step) -> Iterator[None]:
        if step not in self.seconds:
            self._observer.step_started(self._number, step)
        begin_s = self._clock()
        try:
            yield
        finally:
            self.seconds[step] = self.seconds.get(step, 0.0) + self._clock() - begin_s


def _what_failed(measured: MeasuredPoint, server: Server) -> str | None:
    """Why a point, and with it the trial, has failed; None when it has not.

    One that only stalled now and then has not: its numbers are suspect, but its server works. With a server
    that stays silent a point is broken off.
    """
    if measured.broken_off is not None:
        return measured.broken_off
    point = measured.point
    # Requests longer than the window finish in none, and are measured by their tokens all the same.
    if point.failed > MAX_FAILED_SHARE * (point.done + point.failed) or point.out_tok_s == 0:
        return max(point.errors, key=lambda e: point.errors[e]) if point.errors else "no request finished"
    if server.exit_code is not None:  # after the last answer, so that no request has met it
        return "the server has ended"
    return None


def _foreign_server(port: int) -> Failure:
    return Failure(
        kind=FailureKind.ENVIRONMENT,
        phase=Phase.ARGS,
        blame=Blame.ENVIRONMENT,
        why=f"another program listens on port {port}, so what answers there is not the server of this trial",
        cure="nothing to do: the next try uses another port",
    )
