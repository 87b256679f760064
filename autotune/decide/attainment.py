"""Which requests kept all service-level objectives, and how many of those whose fate is known in a window.

A request keeps them when each of its times is within the limit of every objective that has one for it; the
percentiles say what share of requests should. Known in the window is the fate of

- those that finished in it;
- those that failed in it: they kept none;
- those still without output at its end that have waited longer than an objective allows for the first output
  or for the whole answer: they kept none. Left out, the slowest would be missing, and a server that hangs
  would look best.

Shortened requests are not judged by their whole time, and are left out where that is all there is to judge.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.decide.intervals import wilson_interval
from autotune.decide.request_times import e2e_s, tpot_s, ttft_s
from autotune.domain.measurement import Attainment, RequestRecord, RequestState
from autotune.domain.slo import Latency, Slo


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """`finished` requests kept all objectives; `share` is None when no request's fate is known."""

    finished: int
    share: Attainment | None


_TIMES = {Latency.TTFT: ttft_s, Latency.TPOT: tpot_s, Latency.E2E: e2e_s}


def attainment(requests: Sequence[RequestRecord], window: tuple[float, float], slos: Sequence[Slo]) -> Kept:
    """How many of `requests` kept all of `slos` (at least one), of those whose fate is known in `window`."""
    limits: dict[Latency, float] = {}
    for slo in slos:
        limits[slo.latency] = min(slo.limit_s, limits.get(slo.latency, slo.limit_s))
    fates = [fate for r in requests if (fate := _fate(r, window, limits)) is not None]
    met, of = sum(fates), len(fates)
    share = Attainment(met=met, of=of, interval=wilson_interval(met, of)) if of else None
    return Kept(finished=met, share=share)


def _fate(
    request: RequestRecord, window: tuple[float, float], limits: Mapping[Latency, float]
) -> bool | None:
    """Whether it kept the limits; None when that is not known in the window."""
    begin, end = window
    if request.state is RequestState.FAILED and request.ended_s < end:
        return False if begin <= request.ended_s else None
    if request.state is RequestState.DONE and request.chunk_s and request.chunk_s[-1] < end:
        return _kept(request, limits) if begin <= request.chunk_s[-1] else None
    has_output = bool(request.chunk_s) and request.chunk_s[0] < end
    return None if has_output or not _is_overdue(request, end, limits) else False


def _kept(request: RequestRecord, limits: Mapping[Latency, float]) -> bool | None:
    times = {name: measure(request) for name, measure in _TIMES.items() if name in limits}
    if request.shortened and limits.keys() == {Latency.E2E}:
        return None
    # A time it does not have, as that per token of a single token, breaks nothing.
    return all(time_s is None or time_s <= limits[name] for name, time_s in times.items())


def _is_overdue(request: RequestRecord, end: float, limits: Mapping[Latency, float]) -> bool:
    waited_s = min(end, request.ended_s) - request.sent_s
    waits = [Latency.TTFT] if request.shortened else [Latency.TTFT, Latency.E2E]
    return any(waited_s > limits[name] for name in waits if name in limits)
