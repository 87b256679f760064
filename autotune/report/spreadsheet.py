"""Points and requests as CSV: one row each, flat columns with the unit in their names."""

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from itertools import pairwise

from autotune.decide.request_times import e2e_s, tpot_s, ttft_s
from autotune.domain.measurement import ClientLoad, MeasuredPoint, Point, ServerCounts
from autotune.domain.metric import LATENCIES, METRICS, IntervalBy, Metric
from autotune.domain.trial import TrialRecord
from autotune.report import words

Cell = str | int | float | bool | None
_DERIVED = ("prefix_hit_rate", "acceptance_rate", "mean_accepted_length")


def csv_text(rows: Sequence[Mapping[str, Cell]]) -> str:
    """A header and a line for each of `rows`; what one does not have is empty. No cell acts as a formula."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_inert(name) for name in columns])
    for row in rows:
        writer.writerow([_inert(row.get(name)) for name in columns])
    return text.getvalue()


def _inert(cell: Cell) -> Cell:
    """Text on one line. What a spreadsheet would run as a formula gets an apostrophe, which makes it text."""
    if not isinstance(cell, str):
        return cell
    escape = "'" if cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else ""
    return escape + re.sub(r"[\r\n]+", " ", cell)


def point_rows(records: Sequence[TrialRecord]) -> list[Mapping[str, Cell]]:
    """One row for each point of `records`, its trial's parameters last."""
    return [_point_row(record, point) for record in records for point in record.points]


def _point_row(record: TrialRecord, point: Point) -> Mapping[str, Cell]:
    return {
        "trial": record.number,
        "origin": record.origin.value,
        "state": words.state(record),
        "block": record.block,
        "streams": point.streams,
        "window_s": point.window_s,
        "done_requests": point.done,
        "failed_requests": point.failed,
        **{name: cell for metric in METRICS.values() for name, cell in _metric_cells(metric, point)},
        **{f"{name}_n": _n(name, point) for name in LATENCIES},
        "slo_met_requests": point.slo.met if point.slo else None,
        "slo_judged_requests": point.slo.of if point.slo else None,
        **_server_cells(point.server),
        **_client_cells(point.client),
        "suspect": point.is_suspect,
        "flags": "; ".join(words.flag(flag) for flag in point.flags),
        "discarded": "; ".join(flag.text for flag in point.discarded),
        "errors": "; ".join(f"{count} x {error}" for error, count in point.errors.items()),
        **{f"set_{name}": value for name, value in record.configuration.values.items()},
    }


def _metric_cells(metric: Metric, point: Point) -> Iterator[tuple[str, Cell]]:
    """The number and the ends of its interval. The names of rates have their unit already."""
    unit = "_s" if metric.unit == "s" else ""
    yield f"{metric.name}{unit}", metric.read(point)
    if metric.interval_by is not IntervalBy.REPEATS:
        interval = metric.interval(point)
        yield f"{metric.name}_low{unit}", interval.low if interval else None
        yield f"{metric.name}_high{unit}", interval.high if interval else None


def _n(latency: str, point: Point) -> int:
    sample = LATENCIES[latency].pick(point)
    return sample.n if sample else 0


def _server_cells(server: ServerCounts | None) -> Mapping[str, Cell]:
    names = [*(field.name for field in fields(ServerCounts)), *_DERIVED]
    return {f"server_{name}": getattr(server, name) if server else None for name in names}


def _client_cells(client: ClientLoad | None) -> Mapping[str, Cell]:
    kept: Mapping[str, Cell] = asdict(client) if client else {}
    return {f"client_{field.name}": kept.get(field.name) for field in fields(ClientLoad)}


def request_rows(number: int, points: Sequence[MeasuredPoint]) -> list[Mapping[str, Cell]]:
    """One row for each request of trial `number`. Times count from the start of its point."""
    return [
        {
            "trial": number,
            "streams": measured.point.streams,
            "window_begin_s": measured.window[0],
            "window_end_s": measured.window[1],
            "stream": request.stream,
            "sequence": request.sequence,
            "prompt_index": request.prompt_index,
            "state": request.state.value,
            "shortened": request.shortened,
            "sent_s": request.sent_s,
            "ended_s": request.ended_s,
            "ttft_s": ttft_s(request),
            "tpot_s": tpot_s(request),
            "e2e_s": e2e_s(request),
            "chunks": len(request.chunk_s),
            "wanted_output_tokens": request.wanted_output_tokens,
            "prompt_tokens": request.prompt_tokens,
            "output_tokens": request.output_tokens,
            "error": request.error,
        }
        for measured in points
        for request in measured.requests
    ]


def requests_document(number: int, points: Sequence[MeasuredPoint]) -> Mapping[str, object]:
    """The same for JSON, with the moments at which the chunks of each request arrived.

    `chunk_gaps_s` are the seconds before each chunk, the first counted from sending the request.
    """
    rows = iter(request_rows(number, points))
    return {
        "trial": number,
        "requests": [
            {**next(rows), "chunk_gaps_s": _gaps_s(request.sent_s, request.chunk_s)}
            for measured in points
            for request in measured.requests
        ],
    }


def _gaps_s(sent_s: float, chunk_s: Sequence[float]) -> list[float]:
    return [round(later - earlier, 6) for earlier, later in pairwise((sent_s, *chunk_s))]
