"""The baseline and what is held against it, at each stream count: one small table for each metric."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autotune.decide import compare as decide
from autotune.domain.comparison import Row, Side
from autotune.domain.difference import Basis, Difference
from autotune.domain.measurement import Interval
from autotune.domain.metric import METRICS
from autotune.domain.trial import TrialRecord
from autotune.report import words
from autotune.report.compare import MEANINGS
from autotune.report.view import StudyView

_TITLES = {
    "out_tok_s": ("Output tokens per second", "all streams together, more is better"),
    "ttft_p50": ("Time to first token, ms", "median, less is better"),
    "tpot_p50": ("Time per output token, ms", "median, less is better"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A number as text, and its own interval where it has one."""

    text: str
    interval: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One stream count. `change` is empty where one side was not measured."""

    streams: int
    baseline: Value
    other: Value
    change: str
    interval: str
    verdict: str
    """`better`, `worse`, or empty where chance may explain the difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricTable:
    """One metric at all stream counts."""

    title: str
    says: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All tables; `notes` are sentences on what the intervals rest on, and on what is doubtful."""

    baseline: str
    other: str
    tables: tuple[MetricTable, ...]
    notes: tuple[str, ...]


def comparison(view: StudyView) -> Comparison | None:
    """Of the baseline and what the verdict holds against it; None where there are not both."""
    verdict = view.verdict
    if verdict is None or verdict.baseline is None or verdict.other is None:
        return None
    first, second = _side(view, verdict.baseline), _side(view, verdict.other)
    found = decide.compare(first, second, tuple(_TITLES))
    return Comparison(
        baseline="vLLM's defaults",
        other=f"Trial {verdict.other.number}",
        tables=tuple(
            MetricTable(
                title=title,
                says=says,
                lines=tuple(_line(row, first, second) for row in found.rows if row.metric == metric),
            )
            for metric, (title, says) in _TITLES.items()
        ),
        notes=(*_bases(found.rows), *found.warnings),
    )


def _side(view: StudyView, record: TrialRecord) -> Side:
    return decide.side_of(f"trial {record.number}", view.info.name, view.info, view.records, record)


def _line(row: Row, first: Side, second: Side) -> Line:
    difference = row.difference
    return Line(
        streams=row.streams,
        baseline=_value(row.metric, row.first, _own_interval(first, row)),
        other=_value(row.metric, row.second, _own_interval(second, row)),
        change="" if row.ratio is None else f"{row.ratio:.2f}\u00d7",
        interval=f"{difference.interval.low:.2f} to {difference.interval.high:.2f}" if difference else "",
        verdict=_verdict(row.metric, difference) if difference else "",
    )


def _own_interval(side: Side, row: Row) -> Interval | None:
    """Of what was measured once, by its requests; between several launches the ratio's interval counts."""
    points = [point for run in side.runs for point in run if point.streams == row.streams]
    return METRICS[row.metric].interval(points[0]) if len(points) == 1 else None


def _value(metric: str, value: float | None, interval: Interval | None) -> Value:
    scale = 1000 if METRICS[metric].unit == "s" else 1
    if value is None:
        return Value(text="-")
    text = words.number(scale * value)
    if interval is None:
        return Value(text=text)
    low, high = words.number(scale * interval.low), words.number(scale * interval.high)
    return Value(text=text, interval=f"{low}\u2013{high}")


def _verdict(metric: str, difference: Difference) -> str:
    if not difference.is_distinguishable:
        return ""
    return "better" if (difference.ratio > 1) == METRICS[metric].higher_is_better else "worse"


def _bases(rows: Sequence[Row]) -> Iterator[str]:
    """What the intervals of the ratios rest on, each basis once."""
    bases = {row.difference.basis for row in rows if row.difference}
    for basis in (basis for basis in Basis if basis in bases):
        yield f"Intervals of the ratios (95 %): {MEANINGS[basis]}"
