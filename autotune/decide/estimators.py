"""From raw requests to a point: the definition of every number that is measured.

All of them count what *happened* in the window `[begin, end)` of a running closed loop:

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

A latency belongs to the moment it is complete, not to the moment its request was sent: in a steady closed
loop both choices have the same distribution, but the second loses the slow ones (not over at the end of the
window) and has none at all when requests take longer than the window.

Requests that failed give neither tokens nor latencies. All of the point's failures are counted in `failed`,
those of the warm-up too, because a configuration that fails there does not work.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from math import floor, fsum

from autotune.domain.measurement import Point, Quantiles, RequestRecord, RequestState


def estimate(requests: Iterable[RequestRecord], window: tuple[float, float], streams: int) -> Point:
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
    return Point(
        streams=streams,
        window_s=end - begin,
        out_tok_s=_tokens(good, window) / (end - begin),
        prompt_tok_s=sum(r.prompt_tokens or 0 for r in started) / (end - begin),
        req_s=len(done) / (end - begin),
        ttft_s=quantiles([r.chunk_s[0] - r.sent_s for r in started]),
        tpot_s=quantiles([t for r in done if (t := _tpot_s(r)) is not None]),
        e2e_s=quantiles([r.chunk_s[-1] - r.sent_s for r in done if not r.shortened]),
        done=len(done),
        failed=errors.total(),
        errors=dict(sorted(errors.items())),
    )


def quantiles(values: Sequence[float]) -> Quantiles | None:
    """Median and 95th percentile of `values`, None when there are none.

    Between two values the quantile is interpolated linearly, as numpy does by default: of n sorted values,
    quantile q lies at position q * (n - 1).
    """
    ordered = sorted(values)
    if not ordered:
        return None
    return Quantiles(n=len(ordered), p50=_quantile(ordered, 0.50), p95=_quantile(ordered, 0.95))


def _quantile(ordered: Sequence[float], q: float) -> float:
    position = q * (len(ordered) - 1)
    below = floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def _tokens(good: Sequence[RequestRecord], window: tuple[float, float]) -> float:
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


def _tpot_s(request: RequestRecord) -> float | None:
    if request.output_tokens is None or request.output_tokens < 2:
        return None
    return (request.chunk_s[-1] - request.chunk_s[0]) / (request.output_tokens - 1)
