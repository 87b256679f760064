"""The hypervolume over the time of a study: when the search got better, and when it stopped doing so."""

from collections.abc import Mapping, Sequence

from autotune.decide.hypervolume import Growth, growth
from autotune.decide.timeline import Purpose, Timeline, timeline
from autotune.domain.trial import TrialRecord
from autotune.report import words
from autotune.report.figures.parts import axis, layout, pause_marks, time_unit
from autotune.report.figures.plot import Nothing, Plot, PlotTable
from autotune.report.figures.plotly_edge import Layer, figure_of
from autotune.report.figures.text import trial_hover
from autotune.report.figures.theme import BLUE, PURPLE
from autotune.report.view import StudyView
from autotune.units import format_duration

KEY = "hypervolume"
_TITLE = "How the search progressed"


def hypervolume(view: StudyView) -> Plot | Nothing:
    """What had been found by each moment, as a step line over the study's own clock."""
    if not view.candidates:
        return Nothing(key=KEY, title=_TITLE, why="No configuration has been measured in full yet.")
    grown = growth(view.candidates, view.info.objectives)
    if grown is None:
        return Nothing(
            key=KEY,
            title=_TITLE,
            why="Every configuration is 0 in an objective, so that no ratio can be told.",
        )
    if not grown.steps:
        return Nothing(key=KEY, title=_TITLE, why="No configuration keeps the limits yet.")
    line = timeline(view.records, view.invocations, view.seen_at)
    unit_s, unit = time_unit(line.total_s)
    records = {record.number: record for record in view.records}
    times_s = [_known_at(line, records[trial]) for trial, _ in grown.steps]
    shapes, notes = pause_marks(line, unit_s)
    finals, names = _finals(line, unit_s)
    axes = {
        "xaxis": axis(f"{unit} of tuning", range=[0, line.total_s / unit_s or 1]),
        "yaxis": axis("times " + _reference_name(grown)),
    }
    figure = figure_of(
        [_trace(grown, times_s, records, line.total_s, unit_s)],
        layout(380, **axes, shapes=[*finals, *shapes], annotations=[*names, *notes], showlegend=False),
    )
    return Plot(
        key=KEY,
        title=_title(grown, times_s, line.total_s),
        says=_says(view, grown),
        figure=figure,
        table=_table(grown, times_s),
    )


def _known_at(line: Timeline, record: TrialRecord) -> float:
    return line.clock(record.finished_at or record.started_at)


def _trace(
    grown: Growth,
    times_s: Sequence[float],
    records: Mapping[int, TrialRecord],
    total_s: float,
    unit_s: float,
) -> Layer:
    """The steps, and a last place that carries the line to the end."""
    sides = [grown.side(volume) for _, volume in grown.steps]
    hovers = [
        trial_hover(
            records[trial], [f"{side:.3g} times {_reference_name(grown)}", f"after {format_duration(at_s)}"]
        )
        for (trial, _), side, at_s in zip(grown.steps, sides, times_s, strict=True)
    ]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [*(at_s / unit_s for at_s in times_s), max(total_s, times_s[-1]) / unit_s],
        "y": [*sides, sides[-1]],
        "customdata": [*([trial] for trial, _ in grown.steps), [None]],
        "hovertext": [*hovers, "now"],
        "hoverinfo": "text",
        "line": {"shape": "hv", "color": BLUE, "width": 2},
        "marker": {"size": [*(8 for _ in sides), 0.1], "color": BLUE},
    }


def _reference_name(grown: Growth) -> str:
    record = grown.reference.record
    return f"trial {record.number}" if record.configuration.values else "vLLM's defaults"


def _finals(line: Timeline, unit_s: float) -> tuple[list[Layer], list[Layer]]:
    """A band from the first to the last trial of each finals."""
    bands: list[list[float]] = []
    gap = True
    for segment in line.segments:
        if segment.purpose is Purpose.FINALS:
            if gap:
                bands.append([segment.begin_s, segment.end_s])
            bands[-1][1] = segment.end_s
            gap = False
        elif segment.purpose in (Purpose.MEASURED, Purpose.CONTROL, Purpose.ABANDONED):
            gap = True
    shapes: list[Layer] = [
        {
            "type": "rect", "x0": begin / unit_s, "x1": end / unit_s, "y0": 0, "y1": 1, "yref": "paper",
            "fillcolor": PURPLE, "opacity": 0.15, "line": {"width": 0}, "layer": "below",
        }
        for begin, end in bands
    ]  # fmt: skip
    notes: list[Layer] = [
        {
            "x": (begin + end) / 2 / unit_s, "y": 0, "yref": "paper", "yanchor": "bottom",
            "text": "finals", "showarrow": False,
        }
        for begin, end in bands[-1:]
    ]  # fmt: skip
    return shapes, notes


def _title(grown: Growth, times_s: Sequence[float], total_s: float) -> str:
    if len(grown.steps) == 1:
        return "Nothing has been found that is better than the first configuration"
    times = words.counted(len(grown.steps) - 1, "improvement")
    return f"The last of {times} came after {format_duration(times_s[-1])} of {format_duration(total_s)}"


def _says(view: StudyView, grown: Growth) -> str:
    name = _reference_name(grown)
    if len(view.info.objectives) == 1:
        return f"The best value found until then, as a multiple of that of {name}."
    return (
        f"The volume that the front dominates, each objective as a ratio to {name} and counted from 0, as "
        "the side of a cube of that volume. Each configuration counts with all its measurements, from its "
        "first one on."
    )


def _table(grown: Growth, times_s: Sequence[float]) -> PlotTable:
    name = _reference_name(grown)
    return PlotTable(
        columns=("trial", "after (s)", f"side (times {name})", f"hypervolume ({name} = 1)"),
        rows=tuple(
            (trial, at_s, grown.side(volume), volume)
            for (trial, volume), at_s in zip(grown.steps, times_s, strict=True)
        ),
    )
