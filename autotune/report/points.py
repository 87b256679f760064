"""All that was measured at each stream count, in at most 80 columns, and below it what to know of it."""

from collections.abc import Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from autotune.decide.request_times import e2e_s, tpot_s, ttft_s
from autotune.domain.measurement import Interval, MeasuredPoint, Point, Quantiles
from autotune.domain.metric import LATENCIES
from autotune.domain.slo import Slo
from autotune.report import words


def points_block(points: Sequence[Point], slos: Sequence[Slo] = ()) -> Group:
    """Rates, quantiles with the interval of the median, and under them flags, SLOs, client load and errors.

    The highest quantile is the highest that the sample is large enough for.
    """
    table = _table()
    for heading in ("load", "tok/s", "ms", "p50", "95 % interval", "highest", "n"):
        table.add_column(heading, justify="right", no_wrap=True)
    for point in points:
        table.add_row(*("\n".join(lines) for lines in (_load(point), _rates(point), *_times(point))))
        table.add_section()
    parts: list[RenderableType] = [table]
    for point in points:
        said = list(point_notes(point, slos))
        if said:
            parts.append(Text(f"\nAt {words.counted(point.streams, 'stream')}"))
            parts += [Padding(Text(text, style=style), (0, 0, 0, 2)) for text, style in said]
    return Group(*parts)


def _load(point: Point) -> list[str]:
    streams = f"{'? ' if point.is_suspect else ''}{words.counted(point.streams, 'stream')}"
    return [streams, f"{point.window_s:.1f} s", f"{point.done:,} done", f"{point.failed:,} failed"]


def _rates(point: Point) -> list[str]:
    server = point.server.out_tok_s if point.server else None
    return [
        f"{words.number(point.out_tok_s)} out",
        "-" if server is None else f"{words.number(server)} server",
        f"{words.number(point.prompt_tok_s)} prompt",
        f"{words.number(point.req_s)} req/s",
    ]


def _times(point: Point) -> list[list[str]]:
    """Five columns: name, median, its interval, highest quantile, size of the sample."""
    samples = [(latency.label, latency.pick(point)) for latency in LATENCIES.values()]
    rows = [(label, *_sample(sample)) for label, sample in samples]
    return [list(column) for column in zip(*rows, strict=True)]


def _sample(sample: Quantiles | None) -> tuple[str, str, str, str]:
    if sample is None:
        return ("-", "-", "-", "0")
    name, value = sample.highest
    highest = "-" if name == "p50" else f"{name} {_ms(value)}"
    return (_ms(sample.p50), _interval_ms(sample.intervals.get("p50")), highest, f"{sample.n:,}")


def _ms(seconds: float) -> str:
    return words.number(seconds * 1000)


def _interval_ms(interval: Interval | None) -> str:
    return "-" if interval is None else f"{_ms(interval.low)}-{_ms(interval.high)}"


def point_notes(point: Point, slos: Sequence[Slo]) -> Iterator[tuple[str, str]]:
    """Sentences and their styles, doubts first."""
    for flag in sorted(point.flags, key=lambda flag: not flag.kind.is_suspect):
        style = "yellow" if flag.kind.is_suspect else ""
        yield words.flag(flag), style
    for flag in point.discarded:
        yield f"measured again: {flag.text}", "yellow"
    for error, count in point.errors.items():
        yield f"failed {words.counted(count, 'time')}: {error}", "red"
    if point.slo is not None and slos:
        yield words.attainment(point.slo, slos), ""
    if point.goodput_req_s is not None:
        yield f"goodput {words.number(point.goodput_req_s)} req/s", ""
    if point.client is not None:
        lag = _ms(point.client.loop_lag_p99_s)
        yield f"the client used {100 * point.client.cpu_share:.0f} % of a core, p99 {lag} ms late", "dim"


def requests_table(points: Sequence[MeasuredPoint]) -> Table:
    """Every request: which stream sent it when, how long it took, how many tokens came, how it ended."""
    table = _table()
    headings = ("streams", "stream", "request", "sent s", "TTFT ms", "TPOT ms", "e2e ms", "tokens")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("ended", overflow="fold")
    for measured in points:
        for request in measured.requests:
            times = (measure(request) for measure in (ttft_s, tpot_s, e2e_s))
            table.add_row(
                str(measured.point.streams),
                str(request.stream),
                str(request.sequence),
                f"{request.sent_s:.3f}",
                *("-" if time_s is None else _ms(time_s) for time_s in times),
                "-" if request.output_tokens is None else str(request.output_tokens),
                Text(request.error or request.state.value),
            )
        table.add_section()
    return table


def _table() -> Table:
    """Columns one space apart: the largest numbers of a large server then just fit."""
    return Table(box=SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)
