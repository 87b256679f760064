"""Tables for the terminal. Everything from outside is put in as plain text, never as markup."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from autotune.domain.measurement import Point, Quantiles
from autotune.domain.objective import Objective
from autotune.domain.trial import TrialRecord
from autotune.report import words
from autotune.units import format_duration

STYLES = {"measured": "green", "failed": "red", "interrupted": "yellow", "running": "cyan"}


def ladder(baseline: TrialRecord | None, winner: TrialRecord) -> Table:
    """Baseline and winner at each stream count: prompt and completion rate, time of one request."""
    table = Table(title="Measured at each number of concurrent streams", title_justify="left")
    table.add_column("Streams", justify="right")
    columns = (
        [("winner", winner)] if baseline in (None, winner) else [("baseline", baseline), ("winner", winner)]
    )
    for name, _ in columns:
        for heading in ("prompt tok/s", "completion tok/s", "total time"):
            table.add_column(f"{name}\n{heading}", justify="right")
    if len(columns) == 2:
        table.add_column("completion\ngain", justify="right")
    for streams in [point.streams for point in winner.points]:
        points = [_at(record, streams) for _, record in columns]
        cells = [cell for point in points for cell in _rates(point)]
        table.add_row(str(streams), *cells, *([_ratio(*points)] if len(points) == 2 else []))
    return table


def trials(records: Sequence[TrialRecord], objectives: Sequence[Objective], best: set[int]) -> Table:
    """All trials, one line each; `best` are the numbers on the Pareto front."""
    table = Table(title_justify="left")
    table.add_column("Trial", justify="right")
    table.add_column("State")
    for objective in objectives:
        table.add_column(str(objective), justify="right")
    table.add_column("Took", justify="right")
    table.add_column("Configuration, or why it failed", overflow="fold", ratio=1)
    for record in records:
        values = [objective.value(record.points) for objective in objectives]
        mark = "*" if record.number in best else ""
        table.add_row(
            f"{record.number}{mark}",
            Text(words.state(record), style=STYLES[words.state(record)]),
            *("" if value is None else words.number(value) for value in values),
            format_duration(sum(record.step_s.values())) if record.step_s else "",
            _story(record, objectives),
        )
    return table


def points(record: TrialRecord) -> Table:
    """Every stream count of one trial."""
    table = Table(title_justify="left")
    headings = (
        "Streams",
        "out tok/s",
        "prompt tok/s",
        "req/s",
        "TTFT p50/p95",
        "TPOT p50/p95",
        "e2e p50/p95",
    )
    for heading in (*headings, "done", "failed", "window"):
        table.add_column(heading, justify="right")
    for point in record.points:
        table.add_row(
            str(point.streams),
            *(words.number(rate) for rate in (point.out_tok_s, point.prompt_tok_s, point.req_s)),
            *(_quantiles(sample) for sample in (point.ttft_s, point.tpot_s, point.e2e_s)),
            str(point.done),
            str(point.failed),
            format_duration(point.window_s),
        )
    return table


def _story(record: TrialRecord, objectives: Sequence[Objective]) -> Text:
    text = Text(words.configuration(record.configuration))
    if words.state(record) != "measured" and record.outcome:
        text.append(f"\n{words.outcome(record, objectives)}", style="dim")
    return text


def _at(record: TrialRecord | None, streams: int) -> Point | None:
    return next((p for p in record.points if p.streams == streams), None) if record else None


def _rates(point: Point | None) -> list[str]:
    if point is None:
        return ["-", "-", "-"]
    total = "-" if point.total_s is None else f"{point.total_s * 1000:,.0f} ms"
    return [words.number(point.prompt_tok_s), words.number(point.out_tok_s), total]


def _ratio(baseline: Point | None, winner: Point | None) -> str:
    if baseline is None or winner is None or baseline.out_tok_s == 0:
        return "-"
    return f"{winner.out_tok_s / baseline.out_tok_s:.2f}x"


def _quantiles(sample: Quantiles | None) -> str:
    return "-" if sample is None else f"{sample.p50 * 1000:,.0f} / {sample.p95 * 1000:,.0f} ms"
