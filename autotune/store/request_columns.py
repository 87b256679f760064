"""The raw requests of a study as columns: a million of them in seconds, where objects would take minutes."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Select, select

from autotune.store.schema import point, request

Columns = Mapping[str, Sequence[object] | NDArray[np.generic]]

_AT_ONCE = 50_000
"""Requests read at a time, so that the chunk times of a large study are never all in memory."""

_KEPT = (
    "stream", "sequence", "prompt_index", "state", "shortened", "sent_s", "ended_s", "wanted_output_tokens",
    "prompt_tokens", "output_tokens", "error",
)  # fmt: skip


def request_columns(
    connection: Connection, trial: int | None, streams: int | None, *, gaps: bool
) -> Iterator[Columns]:
    """All requests, those of one trial or of one stream count, in parts: each number by its name.

    At least one part comes, which may be empty. Times that a request does not have are NaN. `gaps` adds
    `chunk_gaps_s`, an array for each request: the seconds before each chunk, the first counted from sending.
    """
    result = connection.execution_options(yield_per=_AT_ONCE).execute(_query(trial, streams))
    found = False
    for rows in result.partitions():
        found = True
        yield _part(list(zip(*rows, strict=True)), gaps=gaps)
    if not found:
        yield _part([()] * len(result.keys()), gaps=gaps)


def _query(trial: int | None, streams: int | None) -> Select[*tuple[object, ...]]:
    query = select(
        point.c.trial_number.label("trial"),
        point.c.streams,
        point.c.window_begin_s,
        point.c.window_end_s,
        *(request.c[name] for name in _KEPT),
        request.c.gaps_us,
    ).join(point, request.c.point_id == point.c.id)
    if trial is not None:
        query = query.where(point.c.trial_number == trial)
    if streams is not None:
        query = query.where(point.c.streams == streams)
    return query.order_by(point.c.trial_number, point.c.streams, point.c.id, request.c.id)


def _part(columns: Sequence[tuple[object, ...]], *, gaps: bool) -> Columns:
    *told, packed = columns
    kept = dict(zip(("trial", "streams", "window_begin_s", "window_end_s", *_KEPT), told, strict=True))
    blobs = [each for each in packed if isinstance(each, bytes)]
    gap_s = np.frombuffer(b"".join(blobs), dtype="<u4") / 1e6
    chunks = np.array([len(each) // 4 for each in blobs], dtype=np.int64)
    times = _times(gap_s, chunks, kept["output_tokens"], kept["shortened"])
    if gaps:
        times["chunk_gaps_s"] = np.split(gap_s, np.cumsum(chunks)[:-1]) if blobs else []
    return {**kept, **times}


def _times(
    gap_s: NDArray[np.float64],
    chunks: NDArray[np.int64],
    output_tokens: Sequence[object],
    shortened: Sequence[object],
) -> dict[str, Sequence[object] | NDArray[np.generic]]:
    """The times of `autotune.decide.request_times`, and the longest wait between two chunks."""
    begins = np.cumsum(chunks) - chunks
    has, has_two = chunks > 0, chunks > 1
    until = np.concatenate(([0.0], np.cumsum(gap_s)))
    last_s = until[begins + chunks] - until[begins]
    ttft_s = np.full(len(chunks), np.nan)
    ttft_s[has] = gap_s[begins[has]]
    between = gap_s.copy()
    between[begins[has]] = 0.0
    max_gap_s = np.full(len(chunks), np.nan)
    if has.any():
        longest = np.full(len(chunks), np.nan)
        longest[has] = np.maximum.reduceat(between, begins[has])
        max_gap_s[has_two] = longest[has_two]
    tokens = np.array([np.nan if count is None else count for count in output_tokens], dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        tpot_s = np.where(has & (tokens >= 2), (last_s - ttft_s) / (tokens - 1), np.nan)
    e2e_s = np.where(has & ~np.array(shortened, dtype=bool), last_s, np.nan)
    return {"ttft_s": ttft_s, "tpot_s": tpot_s, "e2e_s": e2e_s, "max_gap_s": max_gap_s, "chunks": chunks}
