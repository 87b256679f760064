"""What a server counted between two looks at its metrics, held against what the client saw."""

from collections.abc import Mapping, Sequence

from autotune.decide.estimators import tokens_per_chunk
from autotune.domain.effective import ServerMetrics
from autotune.domain.measurement import Flag, FlagKind, RequestRecord, RequestState, ServerCounts

MAX_TOKEN_DIFFERENCE = 0.02
"""Share by which client and server may differ in the tokens they count before a point is flagged."""
MAX_PREFIX_HIT_RATE = 0.01
"""Every request has a salt of its own: hits of the prefix cache mean that prompts were not kept apart."""
IN_FLIGHT_STEPS = 4
"""Steps whose tokens may be counted on one side only, for each stream and at each end of a point: the server
works on for a moment after a request is cut off, also on those of the point before."""


def server_counts(
    before: ServerMetrics | None,
    after: ServerMetrics | None,
    counters: Mapping[str, tuple[str, ...]],
    requests: Sequence[RequestRecord],
) -> tuple[ServerCounts, tuple[Flag, ...]] | None:
    """The differences of `counters`, and what does not fit together.

    None without metrics, or when the counters began anew in between.
    """
    if before is None or after is None:
        return None

    def counted(name: str) -> int | None:
        return _difference(before.totals, after.totals, counters.get(name, ()))

    counts = ServerCounts(
        generation_tokens=counted("generation_tokens"),
        prompt_tokens=counted("prompt_tokens"),
        prefix_queries=counted("prefix_queries"),
        prefix_hits=counted("prefix_hits"),
        preemptions=counted("preemptions"),
        drafts=counted("drafts"),
        draft_tokens=counted("draft_tokens"),
        accepted_tokens=counted("accepted_tokens"),
    )
    if any(count < 0 for name in counters if (count := getattr(counts, name)) is not None):
        return None
    return counts, _flags(counts, requests)


def _difference(
    before: Mapping[str, float], after: Mapping[str, float], metrics: Sequence[str]
) -> int | None:
    for metric in metrics:
        if metric in after:
            return round(after[metric] - before.get(metric, 0.0))
    return None


def _flags(counts: ServerCounts, requests: Sequence[RequestRecord]) -> tuple[Flag, ...]:
    flags: list[Flag] = []
    served = counts.generation_tokens
    if served is not None:
        seen, unsure = _seen_tokens(requests)
        if abs(served - seen) > MAX_TOKEN_DIFFERENCE * max(served, seen) + unsure:
            text = f"the server counted {served:,} output tokens, the client {seen:,.0f}"
            flags.append(Flag(kind=FlagKind.MISCOUNTED, text=text))
    rate = counts.prefix_hit_rate
    if rate is not None and rate > MAX_PREFIX_HIT_RATE:
        text = f"{100 * rate:.0f} % of the prompt tokens came from the prefix cache; no two prompts are alike"
        flags.append(Flag(kind=FlagKind.PREFIX_HITS, text=text))
    return tuple(flags)


def _seen_tokens(requests: Sequence[RequestRecord]) -> tuple[float, float]:
    """Output tokens the client saw, and by how many that may be wrong; failed requests are all unsure."""
    good = [r for r in requests if r.state is not RequestState.FAILED]
    usual = tokens_per_chunk(good)
    seen = sum(
        float(r.output_tokens) if r.output_tokens is not None else usual * len(r.chunk_s) for r in good
    )
    streams = len({r.stream for r in requests})
    failed = sum(r.wanted_output_tokens for r in requests if r.state is RequestState.FAILED)
    return seen, 2 * IN_FLIGHT_STEPS * usual * streams + failed
