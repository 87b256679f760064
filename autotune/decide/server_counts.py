"""What a server counted between the looks at its metrics, held against what the client saw meanwhile."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from autotune.decide.estimators import tokens_per_chunk, tokens_within
from autotune.domain.effective import ServerMetrics
from autotune.domain.measurement import Flag, FlagKind, RequestRecord, RequestState, ServerCounts
from autotune.domain.workload import Workload

MAX_TOKEN_DIFFERENCE = 0.02
"""Share by which client and server may differ in the tokens they count before a point is flagged."""
MAX_PREFIX_HIT_RATE = 0.01
"""Every request has a salt of its own: hits of the prefix cache mean that prompts were not kept apart."""
MIN_RUNNING_SHARE = 0.95
"""Of the streams: with fewer requests at work than that, the others wait to be let in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a server's metrics said at `at_s` on the clock of the point, give or take `unsure_s`."""

    at_s: float
    unsure_s: float
    metrics: ServerMetrics


def server_counts(
    looks: Sequence[Look],
    counters: Mapping[str, tuple[str, ...]],
    requests: Sequence[RequestRecord],
    workload: Workload,
    streams: int,
) -> tuple[ServerCounts, tuple[Flag, ...]] | None:
    """What `counters` counted from the first look to the last, and what does not fit together.

    None with fewer than two looks, or when the counters began anew in between.
    """
    if len(looks) < 2:
        return None
    first, last = looks[0], looks[-1]

    def counted(name: str) -> int | None:
        return _difference(first.metrics.totals, last.metrics.totals, counters.get(name, ()))

    generated = counted("generation_tokens")
    counts = ServerCounts(
        generation_tokens=generated,
        prompt_tokens=counted("prompt_tokens"),
        prefix_queries=counted("prefix_queries"),
        prefix_hits=counted("prefix_hits"),
        preemptions=counted("preemptions"),
        drafts=counted("drafts"),
        draft_tokens=counted("draft_tokens"),
        accepted_tokens=counted("accepted_tokens"),
        out_tok_s=None if generated is None else generated / (last.at_s - first.at_s),
        running=_mean(looks, counters.get("running", ())),
        waiting=_mean(looks, counters.get("waiting", ())),
    )
    if any((getattr(counts, name) or 0) < 0 for name in counters):
        return None
    flags = (
        _miscounted(counts, looks, requests, streams),
        _prefix_hits(counts, workload),
        _admission_bound(counts, streams) if workload.rate_per_stream is None else None,
        _preempted(counts),
    )
    return counts, tuple(flag for flag in flags if flag is not None)


def _difference(
    before: Mapping[str, float], after: Mapping[str, float], metrics: Sequence[str]
) -> int | None:
    for metric in metrics:
        if metric in after:
            return round(after[metric] - before.get(metric, 0.0))
    return None


def _mean(looks: Sequence[Look], metrics: Sequence[str]) -> float | None:
    for metric in metrics:
        seen = [look.metrics.totals[metric] for look in looks if metric in look.metrics.totals]
        if seen:
            return fmean(seen)
    return None


def _miscounted(
    counts: ServerCounts, looks: Sequence[Look], requests: Sequence[RequestRecord], streams: int
) -> Flag | None:
    """Compares the tokens between the first look and the last one, where both sides count the same time.

    What may be counted on one side only is left out: at each of the two looks the tokens of one step of every
    stream, which are on their way, and those that came while the look was answered; and all of a request that
    failed, of which nobody knows how much the server had done.
    """
    served, rate = counts.generation_tokens, counts.out_tok_s
    if served is None or rate is None:
        return None
    begin_s, end_s = looks[0].at_s, looks[-1].at_s
    good = [r for r in requests if r.state is not RequestState.FAILED]
    seen = tokens_within(good, (begin_s, end_s))
    failed = sum(
        r.wanted_output_tokens
        for r in requests
        if r.state is RequestState.FAILED and r.sent_s < end_s and r.ended_s > begin_s
    )
    on_the_way = 2 * streams * tokens_per_chunk(good) + rate * (looks[0].unsure_s + looks[-1].unsure_s)
    if abs(served - seen) <= MAX_TOKEN_DIFFERENCE * max(served, seen) + on_the_way + failed:
        return None
    took_s = end_s - begin_s
    text = (
        f"the server counted {rate:,.1f} output tokens per second, the client {seen / took_s:,.1f} "
        f"in the same {took_s:.0f} s"
    )
    return Flag(kind=FlagKind.MISCOUNTED, text=text)


def _prefix_hits(counts: ServerCounts, workload: Workload) -> Flag | None:
    rate = counts.prefix_hit_rate
    if rate is None or rate <= MAX_PREFIX_HIT_RATE or workload.shares_prefixes:
        return None
    text = f"{100 * rate:.0f} % of the prompt tokens came from the prefix cache; no two prompts are alike"
    return Flag(kind=FlagKind.PREFIX_HITS, text=text)


def _admission_bound(counts: ServerCounts, streams: int) -> Flag | None:
    """Half of the requests that do not run must be in the queue; the others are between two requests."""
    running, waiting = counts.running, counts.waiting
    if running is None or waiting is None or running >= MIN_RUNNING_SHARE * streams:
        return None
    if waiting <= 0 or waiting < (streams - running) / 2:
        return None
    text = (
        f"the server worked on {running:.0f} requests at once for {streams} streams; "
        f"{waiting:.0f} waited in its queue"
    )
    return Flag(kind=FlagKind.ADMISSION_BOUND, text=text)


def _preempted(counts: ServerCounts) -> Flag | None:
    if not counts.preemptions:
        return None
    times = "once" if counts.preemptions == 1 else f"{counts.preemptions:,} times"
    text = f"the KV cache was full: the server threw out a running request {times} and began it anew"
    return Flag(kind=FlagKind.PREEMPTED, text=text)
