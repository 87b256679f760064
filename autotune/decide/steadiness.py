"""Was the server at work all of the window, and as fast at its end as at its begin?

Both questions are asked of the arrival times of the output alone, so the answers hold for any server.
"""

from collections.abc import Sequence
from statistics import median, median_low

import numpy as np
from numpy.typing import NDArray

from autotune.decide.estimators import tokens_per_chunk
from autotune.domain.measurement import Flag, FlagKind, RequestRecord, RequestState

MIN_SILENCE_S = 0.5
"""A shorter silence of all streams is never held against a server. On an H200 the kernels that Triton
compiled under load took 1.2 to 2.6 s in all; a step with a long prompt in it takes up to 0.3 s there."""
TIMES_USUAL = 3
"""How many times longer than usual a silence must be."""
_SAME_STEP_S = 0.1
"""What arrives within that time can be of one step of the server."""
MAX_SILENT_SHARE = 0.02
"""Share of the window that such silences may take before they matter: what a rate can be wrong by then."""

MAX_DRIFT = 0.05
"""By how much of their mean the halves of a window may differ in tokens per second."""
_MIN_TPOT_DRIFT = MAX_DRIFT / 2
_BLOCKS = 8
_MIN_T = 1.5
"""Standard errors by which the halves must differ. With the two other conditions at most 2 in 100 windows of
simulated steady loads are flagged, and 5 in 100 where many streams wait for long prompts most of the time; at
0.5 it is one in three there."""
_MIN_TOKENS = 100
_MIN_GAPS = 4
"""Chunk gaps of a request within one half from which its time per token there is taken."""


def stalled(requests: Sequence[RequestRecord], window: tuple[float, float]) -> Flag | None:
    """The flag of a window in which all streams were silent at once for longer than they ever are.

    A silence is a time in which nothing came although a request was under way; one that runs into an edge of
    the window counts with its part inside. Long ones can be natural, and then they are usual, in one of two
    ways: a slow server, or one that sends many tokens at once, is silent between two chunks of one request;
    and while prompts are read nobody may get output (one stream between two requests, a server without
    chunked prefill), until that prompt's first output. Both are taken as medians over requests, so that a
    stall, which meets few of them, does not count as usual, and the second grows with the length of the
    prompt that is waited for. The medians are the lower ones and use all requests of the point, those of the
    warm-up too, because at one stream a window holds two or three. The time to the first output itself would
    not do: in a queue it is long without any silence.
    """
    silences = _silences(requests, window)
    longest = [s for s in silences if s[1] - s[0] >= MIN_SILENCE_S and s[0] < window[1] and s[1] > window[0]]
    if not longest:
        return None
    between_s = _usual_between_chunks_s(requests)
    waiting_s = _usual_while_waiting_s(requests, silences)
    inside = [
        (max(silence[0], window[0]), min(silence[1], window[1]))
        for silence in longest
        if silence[1] - silence[0]
        >= max(
            MIN_SILENCE_S,
            TIMES_USUAL * between_s,
            TIMES_USUAL * waiting_s * _times_longer_prompt(requests, silence),
        )
    ]
    total_s = sum(end - begin for begin, end in inside)
    length_s = window[1] - window[0]
    if total_s < MAX_SILENT_SHARE * length_s:
        return None
    begin, end = max(inside, key=lambda s: s[1] - s[0])
    text = (
        f"no stream got anything for {total_s:.1f} s of the {length_s:.0f} s window "
        f"(longest {end - begin:.1f} s, from second {begin - window[0]:.1f} on; "
        f"{max(between_s, waiting_s):.2f} s is usual)"
    )
    return Flag(kind=FlagKind.STALLED, text=text)


def _silences(requests: Sequence[RequestRecord], window: tuple[float, float]) -> list[tuple[float, float]]:
    """All silences long enough to be a stall or to be a usual one that excuses others, in order."""
    if not requests:
        return []
    begin = min(r.sent_s for r in requests)
    end = max(window[1], *(r.ended_s for r in requests))
    marks = np.concatenate([[begin], *(np.asarray(r.chunk_s) for r in requests), [end]])
    marks.sort()
    long = np.flatnonzero(np.diff(marks) >= MIN_SILENCE_S / TIMES_USUAL)
    gaps = [(float(marks[i]), float(marks[i + 1])) for i in long]
    return [part for gap in gaps for part in _under_way(requests, gap)]


def _under_way(requests: Sequence[RequestRecord], gap: tuple[float, float]) -> list[tuple[float, float]]:
    """The parts of `gap` in which at least one request was running."""
    spans = sorted(
        (max(r.sent_s, gap[0]), min(r.ended_s, gap[1]))
        for r in requests
        if r.sent_s < gap[1] and r.ended_s > gap[0]
    )
    parts: list[tuple[float, float]] = []
    for begin, end in spans:
        if parts and begin <= parts[-1][1]:
            parts[-1] = (parts[-1][0], max(end, parts[-1][1]))
        else:
            parts.append((begin, end))
    return parts


def _usual_between_chunks_s(requests: Sequence[RequestRecord]) -> float:
    gaps = [float(np.median(np.diff(r.chunk_s))) for r in requests if len(r.chunk_s) > 1]
    return median_low(gaps) if gaps else 0.0


def _usual_while_waiting_s(
    requests: Sequence[RequestRecord], silences: Sequence[tuple[float, float]]
) -> float:
    """The silence that the first output of a request ends; one too short to matter counts as 0."""
    ended = [
        max(
            (
                end - max(begin, r.sent_s)
                for begin, end in silences
                if 0 <= r.chunk_s[0] - end <= _SAME_STEP_S and r.sent_s < end
            ),
            default=0.0,
        )
        for r in requests
        if r.chunk_s
    ]
    return median_low(ended) if ended else 0.0


def _times_longer_prompt(requests: Sequence[RequestRecord], silence: tuple[float, float]) -> float:
    """How many times longer than the median is the longest prompt that was waited for in a silence."""
    begin, end = silence
    waiting = [
        r.prompt_tokens or 0
        for r in requests
        if r.sent_s < end and r.ended_s > begin and not (r.chunk_s and r.chunk_s[0] <= begin)
    ]
    usual = median([r.prompt_tokens or 0 for r in requests])
    return max(1.0, max(waiting, default=0) / usual) if usual else 1.0


def unsteady(requests: Sequence[RequestRecord], window: tuple[float, float]) -> Flag | None:
    """The flag of a window whose halves differ by more than 5 % in tokens per second, and not by chance.

    Not by chance: the difference stands out from the scatter of eighths of the window (prompts are read
    whole, so a half can hold one more of them), and the median time per token has moved the other way. The
    time per token is that within each half, not that of requests which began before. With fewer than 100
    tokens in a half nothing is said, nor is a stall in one of them a change of speed.
    """
    good = [r for r in requests if r.state is not RequestState.FAILED and len(r.chunk_s) > 0]
    usual = tokens_per_chunk(good)
    weights = [usual if r.output_tokens is None else r.output_tokens / len(r.chunk_s) for r in good]
    tokens = _tokens_by_block(good, weights, window)
    half = _BLOCKS // 2
    first, second = tokens[:half], tokens[half:]
    if min(first.sum(), second.sum()) < _MIN_TOKENS:
        return None
    change = (second.mean() - first.mean()) / tokens.mean()
    # From each eighth to the next, so that a steady rise or a single step does not count as scatter.
    scatter = np.sqrt(np.mean(np.square(np.diff(tokens))) / 2) / tokens.mean()
    error = scatter * np.sqrt(2 / half)
    if abs(change) <= MAX_DRIFT or abs(change) <= _MIN_T * error:
        return None
    middle = (window[0] + window[1]) / 2
    tpot = [_tpot_within_s(good, weights, part) for part in ((window[0], middle), (middle, window[1]))]
    if tpot[0] is None or tpot[1] is None:
        return None
    slower = tpot[1] / tpot[0] - 1
    if abs(slower) < _MIN_TPOT_DRIFT or (slower > 0) == (change > 0) or stalled(requests, window):
        return None
    text = (
        f"tokens per second {'rose' if change > 0 else 'fell'} by {100 * abs(change):.0f} % from the first "
        f"half of the window to the second, while the time per token went from {1000 * tpot[0]:.3g} to "
        f"{1000 * tpot[1]:.3g} ms"
    )
    return Flag(kind=FlagKind.UNSTEADY, text=text)


def _tokens_by_block(
    good: Sequence[RequestRecord], weights: Sequence[float], window: tuple[float, float]
) -> NDArray[np.float64]:
    """Tokens that came in each eighth of the window."""
    edges = np.linspace(*window, _BLOCKS + 1)
    total = np.zeros(_BLOCKS)
    for request, weight in zip(good, weights, strict=True):
        total += weight * np.diff(np.searchsorted(request.chunk_s, edges))
    return total


def _tpot_within_s(
    good: Sequence[RequestRecord], weights: Sequence[float], part: tuple[float, float]
) -> float | None:
    """Median over requests of the time per token within a part of the window."""
    times: list[float] = []
    for request, weight in zip(good, weights, strict=True):
        first, after = np.searchsorted(request.chunk_s, part)
        if after - first > _MIN_GAPS:
            spent_s = request.chunk_s[after - 1] - request.chunk_s[first]
            times.append(spent_s / ((after - first - 1) * weight))
    return median(times) if times else None
