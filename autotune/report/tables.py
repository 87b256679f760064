"""Tables for the terminal. Everything from outside is put in as plain text, never as markup."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
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
    table = _table()
    table.add_column("\n\nstreams", justify="right", no_wrap=True)
    columns = [("winner", winner)]
    if baseline is not None and baseline.number != winner.number:
        columns.insert(0, ("baseline", baseline))
    for name, _ in columns:
        for heading in ("\nprompt\ntok/s", f"{name}\ncompletion\ntok/s", "\ntotal\ntime"):
            table.add_column(heading, justify="right", no_wrap=True)
    if len(columns) == 2:
        table.add_column("\n\ngain", justify="right", no_wrap=True)
    for streams in [point.streams for point in winner.points]:
        points = [_at(record, streams) for _, record in columns]
        cells = [cell for point in points for cell in _rates(point)]
        table.add_row(str(streams), *cells, *([_ratio(*points)] if len(points) == 2 else []))
    return table


def trials(records: Sequence[TrialRecord], objectives: Sequence[Objective], best: set[int]) -> Group:
    """All trials: a line of figures each, and below it the configuration and, of a failed one, the reason.

    `best` are the numbers on the Pareto front; they get a star.
    """
    widths = [max(len(str(objective)), 11) for objective in objectives]
    heading = "".join(
        f"{objective!s:>{width + 2}}" for objective, width in zip(objectives, widths, strict=True)
    )
    parts: list[RenderableType] = [Text(f"trial  state      {heading}      took", style="bold")]
    for record in records:
        values = [objective.value(record.points) for objective in objectives]
        cells = ["" if value is None else words.number(value) for value in values]
        state = words.state(record)
        line = Text(f"{record.number:>4}{'*' if record.number in best else ' '}  ")
        line.append(f"{state:<11}", style=STYLES[state])
        line.append("".join(f"{cell:>{width + 2}}" for cell, width in zip(cells, widths, strict=True)))
        line.append(f"  {format_duration(sum(record.step_s.values())):>12}" if record.step_s else "")
        parts += [line, Padding(_story(record, objectives), (0, 0, 0, 7))]
    return Group(*parts)


def points(record: TrialRecord) -> Table:
    """Every stream count of one trial."""
    table = _table()
    rates = ("out\ntok/s", "prompt\ntok/s", "\nreq/s")
    latencies = ("TTFT ms\np50/p95", "TPOT ms\np50/p95", "e2e ms\np50/p95")
    for heading in ("\nstreams", *rates, *latencies, "\ndone", "\nfailed"):
        table.add_column(heading, justify="right", no_wrap=True)
    for point in record.points:
        table.add_row(
            str(point.streams),
            *(words.number(rate) for rate in (point.out_tok_s, point.prompt_tok_s, point.req_s)),
            *(_quantiles_ms(sample) for sample in (point.ttft_s, point.tpot_s, point.e2e_s)),
            str(point.done),
            str(point.failed),
        )
    return table


def _table() -> Table:
    """Narrow enough for ten columns in a terminal of 80."""
    return Table(box=SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False)


def _story(record: TrialRecord, objectives: Sequence[Objective]) -> Text:
    text = Text(words.configuration(record.configuration), style="dim")
    if words.state(record) != "measured" and record.outcome:
        text.append(f"\n{words.outcome(record, objectives)}", style="not dim")
    if record.effective and record.effective.without_effect:
        text.append(f"\nno effect: {', '.join(record.effective.without_effect)}", style="not dim yellow")
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


def _quantiles_ms(sample: Quantiles | None) -> str:
    if sample is None:
        return "-"
    high = "-" if sample.p95 is None else f"{sample.p95 * 1000:,.0f}"
    return f"{sample.p50 * 1000:,.0f}/{high}"
