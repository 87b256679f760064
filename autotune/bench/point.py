"""One point: the streams of all its groups are watched through warm-up and window, and stopped.

Nothing is drained between warm-up and window, nor at the end: a drained server is not in the state that is
being measured. "N requests by total time" is not used, since it counts the start-up burst and the last
stragglers: 3 to 14 % too low in a simulated closed loop, by an amount that depends on the configuration.
"""

import asyncio
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from math import inf

import aiohttp

from autotune.bench.blocking import TICK_S
from autotune.bench.metrics import RawLook, looking
from autotune.bench.plan import MAX_IN_FLIGHT, Finished, Group, Plan, busiest
from autotune.decide.steadiness import MIN_SILENCE_S, unsteady
from autotune.domain.measurement import ClientLoad, Flag, RequestRecord, RequestState

_ENOUGH_COMPLETIONS = 30
_MIN_WARM_UP_LIMIT_S = 60.0
_WARM_UP_LIMIT_E2E = 20
_MAX_WARM_UP_S = 600.0
"""How long the warm-up may take at most, and while the time of a whole request is not known at all."""
_LONG_WARM_UP_E2E = 4
"""But never less than this: the rest of the first requests, and two more."""
_OPEN_WARM_UP_E2E = 2
"""In an open loop the number of requests under way has settled by then."""
_SILENT_TTFT = 2
_END_S = 15.0
"""For the last looks at the metrics, and for the records to come from other processes."""
_DOWN = "every stream only fails"


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What was seen of a point. `broken_off` says why its window is not whole, where it is not."""

    window: tuple[float, float]
    requests: tuple[RequestRecord, ...]
    looks: tuple[RawLook, ...] = ()
    client: ClientLoad | None = None
    discarded: tuple[Flag, ...] = ()
    broken_off: str | None = None


def point_limit_s(plan: Plan, expected_e2e_s: float | None) -> float:
    """How long a point may take: the warm-up and two windows, after each of which silence is waited out."""
    window_s = plan.workload.max_window_s + plan.idle_s + _END_S
    return _max_warm_up_s(expected_e2e_s) + 2 * window_s


def _max_warm_up_s(expected_e2e_s: float | None) -> float:
    return max(_MAX_WARM_UP_S, _LONG_WARM_UP_E2E * (expected_e2e_s or 0.0))


@dataclass(slots=True, kw_only=True)
class Watch:
    """Watches the `groups` that run the streams of `plan`, and stops them.

    At least `wanted_requests` are to finish in the window, as far as its greatest length allows. `session` is
    for looks at the server's metrics.
    """

    plan: Plan
    groups: Sequence[Group]
    session: aiohttp.ClientSession
    expected_e2e_s: float | None
    wanted_requests: int
    clock: Callable[[], float]
    _finished: list[Finished] = field(init=False, default_factory=list)
    _ready: int = field(init=False, default=0)
    _quiet_since_s: float = field(init=False, default=inf)
    _silent_before_s: float = field(init=False, default=-inf)
    """Requests whose last sign is older are failed at the end."""
    _looks: tuple[RawLook, ...] = field(init=False, default=())
    _client: ClientLoad | None = field(init=False, default=None)

    async def run(self) -> Taken:
        """Measure the point; every request begun is in it, by stream.

        A window in which the speed drifts becomes warm-up, once, and another one follows.
        """
        discarded: list[Flag] = []
        window = (0.0, 0.0)
        broken = await self._warm_up()
        while broken is None:
            window, broken = await self._window()
            drift = None if broken or discarded else unsteady(await self._records(), window)
            if drift is None:
                break
            discarded.append(drift)
            await asyncio.sleep(TICK_S)  # what came while the records were looked at is read before the next
        if broken is not None:
            window = (window[0], self._now())
        requests, broken = await self._stop(broken)
        return Taken(
            window=window,
            requests=requests,
            looks=self._looks,
            client=self._client,
            discarded=tuple(discarded),
            broken_off=broken,
        )

    async def _warm_up(self) -> str | None:
        """Wait until the load is as it will be; why it was not to be, else None."""
        broken = await self._until(lambda: self._is_warm() or self._now() >= self._warm_up_limit_s())
        if broken is None and not self._is_warm():
            return f"the warm-up was not over after {self._now():.0f} s"
        return broken

    def _is_warm(self) -> bool:
        """Every stream has had output of a second request, and a whole request's time is over."""
        e2e_s = self._e2e_s()
        if e2e_s is None:
            return False
        if self.plan.workload.rate_per_stream is not None:
            return self._now() >= _OPEN_WARM_UP_E2E * e2e_s
        return self._now() >= e2e_s and self._ready == self.plan.streams

    def _warm_up_limit_s(self) -> float:
        e2e_s = self._e2e_s()
        most_s = _max_warm_up_s(self.expected_e2e_s)
        return most_s if e2e_s is None else min(most_s, max(_MIN_WARM_UP_LIMIT_S, _WARM_UP_LIMIT_E2E * e2e_s))

    def _e2e_s(self) -> float | None:
        """The time of a whole request: the median of those finished so far, else what was expected."""
        known = [f.e2e_s for f in self._finished if f.e2e_s is not None]
        return statistics.median(known) if known else self.expected_e2e_s

    async def _window(self) -> tuple[tuple[float, float], str | None]:
        """A window, and why it is not whole, if it is not."""
        for group in self.groups:
            await group.begin_window()
        begin_s = self._now()
        async with looking(self.session, self.plan.url, self._now) as looks:
            end_s, broken = await self._window_end_s(begin_s)
            self._client = busiest([await group.end_window() for group in self.groups])
        self._looks = tuple(looks)
        return (begin_s, end_s), broken or await self._hear_the_silent(end_s)

    async def _window_end_s(self, begin_s: float) -> tuple[float, str | None]:
        """Two requests long, three with few of them, and longer while too few are over; within its bounds."""
        workload, e2e_s = self.plan.workload, self._e2e_s() or 0.0
        length_s = min(max(workload.min_window_s, 2 * e2e_s), workload.max_window_s)
        while True:
            end_s = begin_s + length_s
            if broken := await self._until(partial(self._has_come, end_s)):
                return self._now(), broken
            done = sum(begin_s <= f.last_s < end_s for f in self._finished)
            is_short = done < _ENOUGH_COMPLETIONS and length_s < 3 * e2e_s
            if length_s >= workload.max_window_s or not (is_short or done < self.wanted_requests):
                return end_s, None
            length_s = min(length_s + max(e2e_s, TICK_S), workload.max_window_s)

    async def _hear_the_silent(self, end_s: float) -> str | None:
        """Wait until those silent at the end of the window have given a sign, or have failed.

        Else requests that hang would only be cut off, and the window would have a low rate for no reason.
        """
        ttft_s = statistics.median(f.ttft_s for f in self._finished) if self._finished else 0.0
        silent_before_s = end_s - max(MIN_SILENCE_S, _SILENT_TTFT * ttft_s)
        limit_s = self._now() + self.plan.idle_s + TICK_S
        broken = await self._until(
            lambda: self._quiet_since_s >= silent_before_s or self._has_come(limit_s),
        )
        self._silent_before_s = silent_before_s
        return broken

    async def _until(self, reached: Callable[[], bool]) -> str | None:
        """Wait for it; why that is in vain, else None."""
        while True:
            statuses = [await group.status() for group in self.groups]
            self._finished += chain.from_iterable(status.finished for status in statuses)
            self._ready = sum(status.ready for status in statuses)
            signs = [status.quiet_since_s for status in statuses]
            self._quiet_since_s = min((s for s in signs if s is not None), default=inf)
            if sum(status.down for status in statuses) == self.plan.streams:
                return _DOWN
            if any(status.overrun for status in statuses):
                return (
                    f"the server cannot keep up with {self.plan.workload.rate_per_stream:g} requests per "
                    f"second from each stream: {MAX_IN_FLIGHT} requests of one were unanswered"
                )
            if self._has_come(point_limit_s(self.plan, self.expected_e2e_s) - _END_S):
                return f"the point was not over after {self._now():.0f} s"
            if reached():
                return None
            await asyncio.sleep(TICK_S)

    async def _records(self) -> tuple[RequestRecord, ...]:
        parts = [await group.records() for group in self.groups]
        return tuple(chain.from_iterable(parts))

    async def _stop(self, broken: str | None) -> tuple[tuple[RequestRecord, ...], str | None]:
        """End the streams: every request, and why the point is broken off, if it is."""
        parts = [await group.stop() for group in self.groups]
        records = sorted(chain.from_iterable(parts), key=lambda r: (r.stream, r.sequence))
        if broken == _DOWN:
            errors = Counter(r.error for r in records if r.error)
            return tuple(records), errors.most_common(1)[0][0]
        cut = [at for at, r in enumerate(records) if r.state is RequestState.CUT]
        silent = [at for at in cut if last_sign_s(records[at]) < self._silent_before_s]
        why = broken or f"the server sent nothing for {self.plan.idle_s:g} s"
        for at in cut if broken else silent:
            records[at] = replace(records[at], state=RequestState.FAILED, error=why)
        return tuple(records), why if broken or (silent and len(silent) == len(cut)) else None

    def _has_come(self, time_s: float) -> bool:
        return self._now() >= time_s

    def _now(self) -> float:
        return self.clock() - self.plan.began_s


def last_sign_s(request: RequestRecord) -> float:
    """When it was last heard of: its last output, or its sending."""
    return request.chunk_s[-1] if request.chunk_s else request.sent_s
