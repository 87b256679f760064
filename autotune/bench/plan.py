"""What the streams of a point are to send, and what can be seen of them while they run, here or elsewhere."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from autotune.bench.exchange import Completion, Prompt
from autotune.bench.requests import stream_requests
from autotune.domain.bench import VLLM, Dialect
from autotune.domain.measurement import ClientLoad, RequestRecord
from autotune.domain.workload import Workload

MAX_IN_FLIGHT = 64
"""Unanswered requests of one stream of an open loop at which the server counts as overrun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the streams of a point send, as plain data: it can be handed to another process.

    `began_s` is the moment on the clock from which the times of the point count. A request has failed when
    the server sends nothing for `idle_s` seconds.
    """

    url: str
    model: str
    prompts: tuple[Prompt, ...]
    workload: Workload
    streams: int
    salt: str
    idle_s: float
    began_s: float
    dialect: Dialect = VLLM
    authorization: str | None = field(default=None, repr=False)
    """The HTTP header of that name."""


def requests_of(plan: Plan, stream: int) -> Iterator[Completion]:
    """What that stream sends, without end."""
    return stream_requests(
        plan.model, plan.prompts, plan.workload, plan.streams, stream, plan.salt, plan.dialect
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A request that was answered whole, with its last output at `last_s`.

    `e2e_s` is how long one of usual length takes by it; None if that cannot be told.
    """

    last_s: float
    ttft_s: float
    e2e_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How some streams stand."""

    ready: int
    """Streams that have had output of a second request, or are down: no warm-up need wait for them."""
    down: int
    """Streams of which the last requests all failed."""
    overrun: bool
    """One has `MAX_IN_FLIGHT` requests unanswered."""
    quiet_since_s: float | None
    """The last sign of the running request that has been silent for longest; None when none is running."""
    finished: tuple[Finished, ...]
    """Since the status before."""


class Group(Protocol):
    """Some streams of a point that are running, here or in another process."""

    async def status(self) -> Status:
        """How they stand now."""

    async def begin_window(self) -> None:
        """Begin to watch what the load costs this side."""

    async def end_window(self) -> ClientLoad:
        """What it has cost since."""

    async def records(self) -> tuple[RequestRecord, ...]:
        """Every request begun so far; they go on."""

    async def stop(self) -> tuple[RequestRecord, ...]:
        """Cancel what is running; every request begun."""


def busiest(loads: Sequence[ClientLoad]) -> ClientLoad:
    """What several processes needed, by the one that was worst off; switches are those of all of them."""
    waits = [load.run_queue_s for load in loads if load.run_queue_s is not None]
    return ClientLoad(
        cpu_share=max(load.cpu_share for load in loads),
        loop_lag_p99_s=max(load.loop_lag_p99_s for load in loads),
        run_queue_s=max(waits, default=None),
        involuntary_switches=sum(load.involuntary_switches for load in loads),
        processes=len(loads),
    )
