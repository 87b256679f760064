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


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """Two quantiles of a sample of `n` requests, in seconds."""

    n: int
    p50: float
    p95: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCounts:
    """What the server counted while one point ran, warm-up included; None where it has no such counter.

    `flags` are sentences about what does not fit together; the point is kept all the same.
    """

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
    flags: tuple[str, ...] = ()

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
    request fit the window; it is never 0 for "not measured". `total_s` is the median time from sending a
    request to its last token.
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
    errors: Mapping[str, int] = field(default_factory=dict)
    """Each error text with how often it was seen."""
    server: ServerCounts | None = None
    """What the server itself counted; None when it has no metrics."""

    @property
    def total_s(self) -> float | None:
        """Median time of one whole request; None when none finished in the window."""
        return self.e2e_s.p50 if self.e2e_s else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPoint:
    """A point with the requests it was computed from; `window` is (begin, end) on their clock."""

    point: Point
    window: tuple[float, float]
    requests: tuple[RequestRecord, ...]
