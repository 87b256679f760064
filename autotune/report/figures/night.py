"""The timeline of a study: where its time went."""

from collections.abc import Iterator, Mapping, Sequence

from autotune.decide import timeline as clock
from autotune.decide.timeline import Activity, Purpose, Segment, Timeline
from autotune.domain.trial import TrialRecord
from autotune.report import words
from autotune.report.figures.density import density_traces
from autotune.report.figures.parts import axis, layout, pause_marks, time_unit
from autotune.report.figures.plot import Cell, Nothing, Plot, PlotTable
from autotune.report.figures.plotly_edge import Layer, figure_of
from autotune.report.figures.text import lines
from autotune.report.figures.theme import AMBER, BLUE, GREEN, GREY, PURPLE
from autotune.report.view import StudyView
from autotune.units import format_duration

KEY = "timeline"
MOST_SEPARATE = 300
"""Trials of which each step has a bar of its own; with more, bars are shares of stretches of time."""
_ACTIVITIES: Mapping[Activity, tuple[str, str]] = {
    Activity.LAUNCH: ("launch", AMBER),
    Activity.SMOKE: ("smoke", PURPLE),
    Activity.MEASURE: ("measure", GREEN),
    Activity.OTHER: ("other", BLUE),
    Activity.STOP: ("stop", GREY),
    Activity.IDLE: ("idle", GREY),
}


def timeline(view: StudyView) -> Plot | Nothing:
    """A row for each thing that time was spent on, over the study's own clock, coloured by the step."""
    line = clock.timeline(view.records, view.invocations, view.seen_at)
    if not view.records or line.total_s == 0:
        return Nothing(key=KEY, title="Where the time went", why="No trial has been started yet.")
    unit_s, unit = time_unit(line.total_s)
    rows = list(line.by_purpose())
    records = {record.number: record for record in view.records}
    dense = len(records) > MOST_SEPARATE
    if dense:
        traces = list(density_traces(line, rows, _ACTIVITIES, unit_s))
    else:
        traces = [_bars(activity, line, rows, records, unit_s) for activity in line.by_activity()]
    shapes, notes = pause_marks(line, unit_s)
    axes = {
        "xaxis": axis(f"{unit} of tuning", rangemode="tozero", zeroline=False),
        "yaxis": axis(
            "",
            tickvals=list(range(len(rows))),
            ticktext=[_tick(line, purpose) for purpose in rows],
            range=[len(rows) - 0.4, -0.6],
            showgrid=False,
            zeroline=False,
        ),
    }
    height_px = 150 + 44 * len(rows)
    figure = figure_of(
        traces, layout(height_px, **axes, barmode="overlay", bargap=0.25, shapes=shapes, annotations=notes)
    )
    return Plot(key=KEY, title=_title(line), says=_says(line, dense=dense), figure=figure, table=_table(line))


def _bars(
    activity: Activity,
    line: Timeline,
    rows: Sequence[Purpose],
    records: Mapping[int, TrialRecord],
    unit_s: float,
) -> Layer:
    name, colour = _ACTIVITIES[activity]
    segments = [segment for segment in line.segments if segment.activity is activity]
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "showlegend": activity is not Activity.IDLE,
        "base": [segment.begin_s / unit_s for segment in segments],
        "x": [segment.duration_s / unit_s for segment in segments],
        "y": [rows.index(segment.purpose) for segment in segments],
        "customdata": [[segment.trial, name] for segment in segments],
        "hovertext": [_hover(segment, name, records) for segment in segments],
        "hoverinfo": "text",
        "textposition": "none",
        "marker": {"color": colour, "line": {"width": 0}},
    }


def _hover(segment: Segment, name: str, records: Mapping[int, TrialRecord]) -> str:
    took = format_duration(segment.duration_s)
    if segment.trial is None:
        return lines([f"{name}: {took}"])
    record = records[segment.trial]
    told = [f"trial {record.number}, {words.PURPOSES[segment.purpose]}", f"{name}: {took}"]
    told.append(f"begun {record.started_at:%Y-%m-%d %H:%M:%S} UTC")
    if record.failure is not None:
        told.append(f"{record.failure.kind} at {record.failure.phase}")
    return lines(told)


def _tick(line: Timeline, purpose: Purpose) -> str:
    share = line.by_purpose()[purpose] / line.total_s
    return "<br>".join([lines([words.PURPOSES[purpose]]), f"{100 * share:.0f} %"])


def _title(line: Timeline) -> str:
    measuring = line.by_activity().get(Activity.MEASURE, 0.0) / line.total_s
    return (
        f"Of {format_duration(line.total_s)}, {100 * measuring:.0f} % went into measuring and "
        f"{100 * line.failed_share:.0f} % into trials that failed"
    )


def _says(line: Timeline, *, dense: bool) -> str:
    count = words.counted(len(line.pauses), "pause")
    pauses = f" {count} between invocations, dotted, left out." if line.pauses else ""
    bar = (
        "the height of a bar is the share of its stretch of time" if dense else "each bar one step of a trial"
    )
    return (
        f"Each row is what time was spent on, {bar}; launching includes loading the "
        f"weights and compiling.{pauses}"
    )


def _table(line: Timeline) -> PlotTable:
    return PlotTable(
        columns=("spent on", "trials", "time (s)", "share (%)", *(f"{a.value} (s)" for a in Activity)),
        rows=tuple(_rows(line)),
    )


def _rows(line: Timeline) -> Iterator[tuple[Cell, ...]]:
    for purpose, total_s in line.by_purpose().items():
        own = [segment for segment in line.segments if segment.purpose is purpose]
        trials = {segment.trial for segment in own if segment.trial is not None}
        spent = (sum(s.duration_s for s in own if s.activity is activity) for activity in Activity)
        yield words.PURPOSES[purpose], len(trials), total_s, 100 * total_s / line.total_s, *spent
