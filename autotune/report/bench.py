"""How a bench result is shown: a line for each stream count, and below it what has to be known of it."""

from collections.abc import Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from autotune.decide.differences import level
from autotune.decide.intervals import CONFIDENCE
from autotune.domain.bench import BenchResult
from autotune.domain.measurement import Point
from autotune.domain.metric import METRICS
from autotune.report import words
from autotune.report.points import point_notes

_COLUMNS = {
    "out_tok_s": "out\ntok/s",
    "prompt_tok_s": "prompt\ntok/s",
    "req_s": "\nreq/s",
    "ttft_p50": "TTFT\nms",
    "tpot_p50": "TPOT\nms",
    "e2e_p50": "e2e\nms",
}
"""Metrics, with medians of the latencies."""


def headline(result: BenchResult) -> str:
    """What is measured, on one line."""
    version = f", version {result.server_version}" if result.server_version else ""
    workload = result.workload
    return (
        f"{result.model} at {result.url}{result.dialect.endpoint.path}{version}: workload {workload.name}, "
        f"{workload.prompt_tokens} prompt and {workload.output_tokens} output tokens"
    )


def ladder(result: BenchResult) -> Group:
    """All stream counts, with intervals where the ladder was repeated, and notes below."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False)
    for heading in ("\nstreams", *_COLUMNS.values(), "\ndone", "\nfailed"):
        table.add_column(heading, justify="right", no_wrap=True)
    counts = sorted({point.streams for points in result.ladders for point in points})
    for streams in counts:
        points = result.points(streams)
        table.add_row(
            f"{'? ' if any(point.is_suspect for point in points) else ''}{streams}",
            *(_cell(points, metric) for metric in _COLUMNS),
            f"{sum(point.done for point in points):,}",
            f"{sum(point.failed for point in points):,}",
        )
    return Group(table, *_notes(result))


def point_line(point: Point) -> str:
    """The rate and the median latencies of one point, in few words."""
    times = [
        f"{name.removesuffix('_p50').upper()} {_shown(name, point)} ms" for name in ("ttft_p50", "tpot_p50")
    ]
    streams = words.counted(point.streams, "stream")
    failed = f", {point.failed} failed" if point.failed else ""
    return f"{streams}: {words.number(point.out_tok_s)} tok/s, {', '.join(times)}{failed}"


def _shown(metric: str, point: Point) -> str:
    value = METRICS[metric].read(point)
    return "-" if value is None else words.number(_scale(metric) * value)


def _scale(metric: str) -> float:
    return 1000.0 if METRICS[metric].unit == "s" else 1.0


def _cell(points: Sequence[Point], metric: str) -> Text:
    """The mean, and below it how far off the true one may be."""
    values = [value for point in points if (value := METRICS[metric].read(point))]
    if not values:
        return Text("-")
    mean, interval = level([_scale(metric) * value for value in values])
    text = Text(words.number(mean))
    if interval is not None:
        reach = interval.high / mean - 1
        text.append(f"\n±{100 * reach:.1f} %" if reach < 1 else "\n> ±100 %", style="dim")
    return text


def _notes(result: BenchResult) -> Iterator[Text]:
    yield from (Text(f"! {note}", style="yellow") for note in result.dialect.notes)
    if len(result.ladders) > 1:
        yield Text(
            f"Means of {len(result.ladders)} repeats with {CONFIDENCE:.0%} intervals; another launch of the "
            "server may differ by more.",
            style="dim",
        )
    for number, points in enumerate(result.ladders, start=1):
        of = f" of repeat {number}" if len(result.ladders) > 1 else ""
        for point in points:
            for text, style in point_notes(point, result.workload.slos):
                if style != "dim":
                    yield Text(f"{words.counted(point.streams, 'stream')}{of}: {text}", style=style)
