"""Tables for the terminal. Everything from outside is put in as plain text, never as markup."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from autotune.domain.measurement import Quantiles
from autotune.domain.metric_limit import MetricLimit
from autotune.domain.objective import Objective
from autotune.domain.trial import TrialRecord
from autotune.report import words
from autotune.report.limits import broken_limits
from autotune.report.sketch import draws, highest_rate, sparkline
from autotune.units import format_duration

STYLES = {
    "measured": "green",
    "abandoned": "blue",
    "failed": "red",
    "interrupted": "yellow",
    "running": "cyan",
}

_TOOK_WIDTH = 14


def trials(
    records: Sequence[TrialRecord],
    objectives: Sequence[Objective],
    best: set[int],
    limits: Sequence[MetricLimit] = (),
) -> RenderableType:
    """All trials: a line of figures each, and below it the configuration and, of a failed one, the reason.

    `best` are the numbers on the Pareto front; they get a star. What breaks one of the `limits` by itself
    gets an exclamation mark, and below it which. On a terminal the line ends with the ladder as a picture; on
    one that is too narrow for the columns the figures are below it.
    """
    return _Trials(records=records, objectives=objectives, best=best, limits=limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trials:
    records: Sequence[TrialRecord]
    objectives: Sequence[Objective]
    best: set[int]
    limits: Sequence[MetricLimit]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = [max(len(str(objective)), 11) for objective in self.objectives]
        left = options.max_width - len("trial  state      ") - sum(widths) - 2 * len(widths) - _TOOK_WIDTH
        stacks = draws(console) and left < 0
        highest = highest_rate(self.records)
        heading = "".join(
            f"{objective!s:>{width + 2}}" for objective, width in zip(self.objectives, widths, strict=True)
        )
        yield Text(f"trial  state      {'' if stacks else heading}      took", style="bold")
        for record in self.records:
            line = self._begun(record)
            if not stacks:
                cells = zip(self._figures(record), widths, strict=True)
                line.append("".join(f"{cell:>{width + 2}}" for cell, width in cells))
            line.append(f"  {format_duration(sum(record.step_s.values())):>12}" if record.step_s else "")
            if draws(console) and left >= len(record.points) + 2:
                line.append(f"  {sparkline(record.points, highest, console)}")
            yield line
            if (
                stacks
                and (said := words.outcome(record, self.objectives))
                and words.state(record) == "measured"
            ):
                yield Padding(Text(said), (0, 0, 0, 7))
            yield Padding(_story(record, self.objectives, self.limits), (0, 0, 0, 7))

    def _begun(self, record: TrialRecord) -> Text:
        """Number, mark and state."""
        state = words.state(record)
        broken = broken_limits(record, self.limits)
        line = Text(f"{record.number:>4}{'*' if record.number in self.best else '!' if broken else ' '}  ")
        return line.append(f"{state:<11}", style=STYLES[state])

    def _figures(self, record: TrialRecord) -> list[str]:
        values = [(objective, objective.value(record.points)) for objective in self.objectives]
        return ["" if value is None else words.figure(value, objective) for objective, value in values]


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


def _story(record: TrialRecord, objectives: Sequence[Objective], limits: Sequence[MetricLimit]) -> Text:
    what = words.configuration(record.configuration) + words.purpose(record.origin, record.block)
    text = Text(what, style="dim")
    if words.state(record) != "measured" and record.outcome:
        text.append(f"\n{words.outcome(record, objectives)}", style="not dim")
    if words.state(record) == "measured":
        said = [objective.shortage(record.points) for objective in objectives]
        said += words.limits_broken(record.points, limits)
        for each in dict.fromkeys(filter(None, said)):
            text.append(f"\n{each}", style="not dim yellow")
    for point in (point for point in record.points if point.is_suspect):
        doubts = "; ".join(flag.text for flag in point.flags if flag.kind.is_suspect)
        streams = words.counted(point.streams, "stream")
        text.append(f"\nsuspect at {streams}: {doubts}", style="not dim yellow")
    if record.effective and record.effective.without_effect:
        text.append(f"\nno effect: {', '.join(record.effective.without_effect)}", style="not dim yellow")
    return text


def _median_ms(sample: Quantiles | None) -> str:
    return "-" if sample is None else words.number(sample.p50 * 1000)
