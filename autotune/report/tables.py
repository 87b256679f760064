"""Tables for the terminal. Everything from outside is put in as plain text, never as markup."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from autotune.domain.measurement import Quantiles
from autotune.domain.objective import Objective
from autotune.domain.trial import TrialRecord
from autotune.report import words
from autotune.units import format_duration

STYLES = {"measured": "green", "failed": "red", "interrupted": "yellow", "running": "cyan"}


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
        values = [(objective, objective.value(record.points)) for objective in objectives]
        cells = ["" if value is None else words.figure(value, objective) for objective, value in values]
        state = words.state(record)
        line = Text(f"{record.number:>4}{'*' if record.number in best else ' '}  ")
        line.append(f"{state:<11}", style=STYLES[state])
        line.append("".join(f"{cell:>{width + 2}}" for cell, width in zip(cells, widths, strict=True)))
        line.append(f"  {format_duration(sum(record.step_s.values())):>12}" if record.step_s else "")
        parts += [line, Padding(_story(record, objectives), (0, 0, 0, 7))]
    return Group(*parts)


def points(record: TrialRecord) -> Table:
    """Every stream count of one trial, with medians of the latencies; `?` marks numbers in doubt."""
    table = _table()
    rates = ("out\ntok/s", "prompt\ntok/s", "\nreq/s")
    medians = ("TTFT\nms", "TPOT\nms", "e2e\nms")
    for heading in ("\nstreams", *rates, *medians, "\ndone", "\nfailed"):
        table.add_column(heading, justify="right", no_wrap=True)
    for point in record.points:
        table.add_row(
            f"{'? ' if point.is_suspect else ''}{point.streams}",
            *(words.number(rate) for rate in (point.out_tok_s, point.prompt_tok_s, point.req_s)),
            *(_median_ms(sample) for sample in (point.ttft_s, point.tpot_s, point.e2e_s)),
            str(point.done),
            str(point.failed),
        )
    return table


def _table() -> Table:
    """Narrow enough for ten columns in a terminal of 80."""
    return Table(box=SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False)


def _story(record: TrialRecord, objectives: Sequence[Objective]) -> Text:
    what = words.configuration(record.configuration) + words.purpose(record.origin, record.block)
    text = Text(what, style="dim")
    if words.state(record) != "measured" and record.outcome:
        text.append(f"\n{words.outcome(record, objectives)}", style="not dim")
    for short in (objective.shortage(record.points) for objective in objectives):
        if short and words.state(record) == "measured":
            text.append(f"\n{short}", style="not dim yellow")
    for point in (point for point in record.points if point.is_suspect):
        doubts = "; ".join(flag.text for flag in point.flags if flag.kind.is_suspect)
        streams = words.counted(point.streams, "stream")
        text.append(f"\nsuspect at {streams}: {doubts}", style="not dim yellow")
    if record.effective and record.effective.without_effect:
        text.append(f"\nno effect: {', '.join(record.effective.without_effect)}", style="not dim yellow")
    return text


def _median_ms(sample: Quantiles | None) -> str:
    return "-" if sample is None else words.number(sample.p50 * 1000)
