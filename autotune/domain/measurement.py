"""What was seen while load ran: raw requests, and the point that summarises those of one stream count."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class RequestState(StrEnum):
    """How a request ended."""

    DONE = "done"
    CUT = "cut"
    """Still running when the point was over, and cancelled by the client; not a failure."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One request. Times are seconds of one monotonic clock, 0 at the start of the point.

    `chunk_s` holds the arrival of each chunk that carried output; a chunk can carry several tokens, so the
    number of tokens comes from the server's `usage` and is None where that never arrived.
    """

    stream: int
    sequence: int
    prompt_index: int
    sent_s: float
    chunk_s: tuple[float, ...]
    ended_s: float
    wanted_output_tokens: int
    prompt_tokens: int | None
    output_tokens: int | None
    state: RequestState
    error: str | None = None
    shortened: bool = False
    """It was asked for less than its share, to bring the streams out of step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Where a true value lies, by the method that the number's definition names."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """Quantiles of a sample of `n`, in seconds.

    A high one is None where the sample is too small for it (`autotune.domain.metric.FLOORS`), and
    `intervals`, by the quantile's name, has none where the sample cannot bound it.
    """

    n: int
    p50: float
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    intervals: Mapping[str, Interval] = field(default_factory=dict)

    def at(self, name: str) -> float | None:
        """The quantile called `p50`, `p90`, `p95` or `p99`."""
        return {"p50": self.p50, "p90": self.p90, "p95": self.p95, "p99": self.p99}[name]

    @property
    def highest(self) -> tuple[str, float]:
        """Name and value of the highest quantile that the sample is large enough for."""
        known = [(name, value) for name in ("p99", "p95", "p90") if (value := self.at(name)) is not None]
        return known[0] if known else ("p50", self.p50)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attainment:
    """How many of `of` requests kept all service-level objectives; `interval` is that of the share."""

    met: int
    of: int
    interval: Interval

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return self.met / self.of


class FlagKind(StrEnum):
    """What is not as it should be with a point."""

    STALLED = "stalled"
    """All streams were silent at once for much longer than they ever are."""
    UNSTEADY = "unsteady"
    """The second half of the window differs from the first: it was not a steady state."""
    CLIENT_BOUND = "client_bound"
    """The load generator was short of processor time: the latencies are partly its own."""
    MISCOUNTED = "miscounted"
    """Client and server disagree on the tokens."""
    PREFIX_HITS = "prefix_hits"
    """The prefix cache served prompts that have nothing in common."""
    ADMISSION_BOUND = "admission_bound"
    """The server ran fewer requests at once than there were streams: the rest waited in its queue."""
    PREEMPTED = "preempted"
    """The server threw out running requests because the KV cache was full, and began them anew."""

    @property
    def is_suspect(self) -> bool:
        """Whether the numbers themselves are in doubt; else the flag explains them."""
        return self in _SUSPECT


_SUSPECT = {FlagKind.STALLED, FlagKind.UNSTEADY, FlagKind.CLIENT_BOUND, FlagKind.MISCOUNTED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """Something a reader of a point has to know, as one sentence."""

    kind: FlagKind
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLoad:
    """What the load generator itself needed during the window."""

    cpu_share: float
    """Of one core, by its busiest process."""
    loop_lag_p99_s: float
    """How late its event loop got to things that were due."""
    run_queue_s: float | None
    """How long it waited for a processor, all of the window; None where the kernel does not say."""
    involuntary_switches: int
    processes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCounts:
    """What the server counted during the window of a point; None where it has no such counter."""

    generation_tokens: int | None = None
    prompt_tokens: int | None = None
    prefix_queries: int | None = None
    """Prompt tokens looked up in the prefix cache."""
    prefix_hits: int | None = None
    """Those of them that were in it."""
    preemptions: int | None = None
    drafts: int | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    out_tok_s: float | None = None
    """Its own rate of output tokens."""
    running: float | None = None
    """Requests it worked on at once, on average over the looks at it."""
    waiting: float | None = None
    """Requests in its queue, on average over the looks at it."""

    @property
    def prefix_hit_rate(self) -> float | None:
        """Share of prompt tokens that the prefix cache saved; None without a look-up."""
        return _ratio(self.prefix_hits, self.prefix_queries)

    @property
    def acceptance_rate(self) -> float | None:
        """Share of the drafted tokens that were right; None when none was drafted."""
        return _ratio(self.accepted_tokens, self.draft_tokens)

    @property
    def mean_accepted_length(self) -> float | None:
        """Tokens that one draft brought on average, with the one the model itself adds."""
        accepted = _ratio(self.accepted_tokens, self.drafts)
        return None if accepted is None else 1 + accepted


def _ratio(part: int | None, whole: int | None) -> float | None:
    return part / whole if part is not None and whole else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One stream count of one trial, measured over a window of `window_s` seconds.

    Definitions (`out_tok_s` and the rest) are in `autotune.decide.estimators`. A latency is None when no
    request fit the window; it is never 0 for "not measured".
    """

    streams: int
    window_s: float
    out_tok_s: float
    prompt_tok_s: float
    req_s: float
    ttft_s: Quantiles | None
    tpot_s: Quantiles | None
    e2e_s: Quantiles | None
    done: int
    failed: int
    chunk_gap_s: Quantiles | None = None
    goodput_req_s: float | None = None
    """None in a workload without service-level objectives."""
    slo: Attainment | None = None
    errors: Mapping[str, int] = field(default_factory=dict)
    """Each error text with how often it was seen."""
    server: ServerCounts | None = None
    """What the server itself counted; None when it has no metrics."""
    client: ClientLoad | None = None
    """What the load generator needed; None where it was not looked at."""
    flags: tuple[Flag, ...] = ()
    discarded: tuple[Flag, ...] = ()
    """Why earlier measurements of this point on this server were thrown away, one for each."""

    @property
    def total_s(self) -> float | None:
        """Median time of one whole request; None when none finished in the window."""
        return self.e2e_s.p50 if self.e2e_s else None

    @property
    def is_suspect(self) -> bool:
        """Whether its numbers are in doubt."""
        return any(flag.kind.is_suspect for flag in self.flags)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPoint:
    """A point with the requests it was computed from; `window` is (begin, end) on their clock."""

    point: Point
    window: tuple[float, float]
    requests: tuple[RequestRecord, ...]
    broken_off: str | None = None
    """Why it ended before its time, None where it did not; then its numbers are of no use."""
