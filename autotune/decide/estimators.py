"""From raw requests to a point: the definition of every number that is measured.

All of them count what *happened* in the window `[begin, end)` of a running load:

- `out_tok_s`: output tokens that arrived in it, by second. The server's own count of a request is spread
  evenly over the request's chunks, because one chunk can carry several tokens (speculative decoding,
  `--stream-interval`, a busy client). A request that was cut off has no count: each of its chunks weighs what
  chunks weighed in the finished requests of the point, and 1 token where none finished.
- `prompt_tok_s`: prompt tokens of the requests whose first output arrived in it, by second.
- `req_s`, `done`: requests whose last token arrived in it.
- `ttft_s`: from sending to the first output, for the requests whose first output arrived in it.
- `tpot_s`: (last chunk - first chunk) / (output tokens - 1), and `e2e_s`: from sending to the last token,
  both for the requests whose last token arrived in it. Shortened ones (the de-phased start) are left out of
  `e2e_s`.
- `chunk_gap_s`: between two chunks of one request, for the gaps that end in it.
- `goodput_req_s`, `slo`: see `autotune.decide.attainment`.

A latency belongs to the moment it is complete, not to the moment its request was sent: in a steady closed
loop both choices have the same distribution, but the second loses the slow ones (not over at the end of the
window) and has none at all when requests take longer than the window.

Requests that failed give neither tokens nor latencies. All of the point's failures are counted in `failed`,
those of the warm-up too, because a configuration that fails there does not work.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from math import floor, fsum

import numpy as np
from numpy.typing import NDArray

from autotune.decide.attainment import attainment
from autotune.decide.intervals import order_statistic_ranks
from autotune.decide.request_times import e2e_s, tpot_s, ttft_s
from autotune.domain.measurement import Interval, Point, Quantiles, RequestRecord, RequestState
from autotune.domain.metric import FLOORS
from autotune.domain.slo import Slo

ESTIMATOR_VERSION = 1
"""Of the definitions in this module, in `attainment` and in `intervals`; kept with every point.

Raise it whenever the same requests would give another point than before: a definition, a floor, an interval
or a field of the point that is estimated has changed. Points of an older version are then estimated anew from
the raw requests when their study is opened to be continued. A change that leaves all numbers as they are does
not raise it.
"""

_SHARES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}


def estimate(
    requests: Iterable[RequestRecord], window: tuple[float, float], streams: int, slos: Sequence[Slo] = ()
) -> Point:
    """The point of `requests` over `window` (begin, end), in the order of neither.

    Raises ValueError when the window is empty.
    """
    begin, end = window
    if not begin < end:
        raise ValueError(f"a window must end after it begins, but this one is {window}")
    everything = tuple(requests)
    good = [r for r in everything if r.state is not RequestState.FAILED and r.chunk_s]
    errors = Counter(str(r.error) for r in everything if r.state is RequestState.FAILED)
    started = [r for r in good if begin <= r.chunk_s[0] < end]
    done = [r for r in good if r.state is RequestState.DONE and begin <= r.chunk_s[-1] < end]
    kept = attainment(everything, window, slos) if slos else None
    return Point(
        streams=streams,
        window_s=end - begin,
        out_tok_s=tokens_within(good, window) / (end - begin),
        prompt_tok_s=sum(r.prompt_tokens or 0 for r in started) / (end - begin),
        req_s=len(done) / (end - begin),
        ttft_s=quantiles(_times(ttft_s, started)),
        tpot_s=quantiles(_times(tpot_s, done)),
        chunk_gap_s=quantiles(_chunk_gaps(good, window), independent=False),
        e2e_s=quantiles(_times(e2e_s, done)),
        goodput_req_s=kept.finished / (end - begin) if kept else None,
        slo=kept.share if kept else None,
        done=len(done),
        failed=errors.total(),
        errors=dict(sorted(errors.items())),
    )


def _times(
    measure: Callable[[RequestRecord], float | None], requests: Iterable[RequestRecord]
) -> list[float]:
    return [time_s for request in requests if (time_s := measure(request)) is not None]


def quantiles(values: Sequence[float] | NDArray[np.float64], *, independent: bool = True) -> Quantiles | None:
    """The median of `values`, and the higher quantiles that they are enough for; None when there are none.

    Between two values a quantile is interpolated linearly, as numpy does by default: of n sorted values,
    quantile q lies at position q * (n - 1). Each has its interval by order statistics where the values are
    `independent` and can bound it.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    n = len(ordered)
    if not n:
        return None
    at = {name: _quantile(ordered, q) for name, q in _SHARES.items() if name == "p50" or n >= FLOORS[name]}
    bounds = {name: _bounds(ordered, _SHARES[name]) for name in at} if independent else {}
    return Quantiles(
        n=n,
        p50=at["p50"],
        p90=at.get("p90"),
        p95=at.get("p95"),
        p99=at.get("p99"),
        intervals={name: interval for name, interval in bounds.items() if interval is not None},
    )


def _bounds(ordered: NDArray[np.float64], q: float) -> Interval | None:
    ranks = order_statistic_ranks(len(ordered), q)
    if ranks is None:
        return None
    low, high = ranks
    return Interval(low=float(ordered[low - 1]), high=float(ordered[high - 1]))


def _quantile(ordered: NDArray[np.float64], q: float) -> float:
    position = q * (len(ordered) - 1)
    below = floor(position)
    above = min(below + 1, len(ordered) - 1)
    return float(ordered[below] + (position - below) * (ordered[above] - ordered[below]))


def _chunk_gaps(good: Sequence[RequestRecord], window: tuple[float, float]) -> NDArray[np.float64]:
    """The gaps that end in the window; there can be millions."""
    times = np.fromiter(chain.from_iterable(r.chunk_s for r in good), dtype=np.float64)
    gaps = np.diff(times)
    inside = (times[1:] >= window[0]) & (times[1:] < window[1])
    # From the last chunk of one request to the first of the next is no gap.
    inside[np.cumsum([len(r.chunk_s) for r in good], dtype=np.intp)[:-1] - 1] = False
    return gaps[inside]


def tokens_within(good: Sequence[RequestRecord], window: tuple[float, float]) -> float:
    """Output tokens that arrived in the window."""
    usual = tokens_per_chunk(good)
    parts: list[float] = []
    for request in good:
        chunks = bisect_left(request.chunk_s, window[1]) - bisect_left(request.chunk_s, window[0])
        if chunks:
            known = request.output_tokens
            parts.append(chunks * (usual if known is None else known / len(request.chunk_s)))
    return fsum(parts)  # exact, so that the order of the requests does not matter


def tokens_per_chunk(good: Sequence[RequestRecord]) -> float:
    """What a chunk carried on average in the finished requests; 1 where none finished."""
    counted = [r for r in good if r.state is RequestState.DONE and r.output_tokens is not None]
    chunks = sum(len(r.chunk_s) for r in counted)
    return sum(r.output_tokens or 0 for r in counted) / chunks if chunks else 1.0
