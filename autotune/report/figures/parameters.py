"""Slices: what each value of a setting went with, against vLLM's defaults."""

import math
from collections.abc import Iterator, Sequence
from statistics import median

from autotune.decide.ranking import Candidate
from autotune.decide.relative import ratios, reference_of
from autotune.domain.metric import METRICS
from autotune.domain.objective import Objective
from autotune.domain.trial import TrialRecord
from autotune.report.figures.panel import Panel
from autotune.report.figures.parts import axis, layout, thinned
from autotune.report.figures.plot import Cell, Nothing, Plot, PlotTable
from autotune.report.figures.plotly_edge import Layer, figure_of
from autotune.report.figures.text import escaped, folded, lines, named, shown
from autotune.report.figures.theme import GREY, RED, SERIES, SMALL_PX
from autotune.report.figures.worth import ranked
from autotune.report.view import StudyView

KEY = "slices"
_TITLE = "What each value gave"
_MOST = 6
_ROW_PX = 190
_MARKERS = 300
"""In each panel, for each objective; more are thinned out."""

Gains = Sequence[Sequence[float]]
"""For each candidate the ratio of each objective to the reference."""


def slices(view: StudyView) -> Plot | Nothing:
    """Small multiples of the settings that mattered most: each value against each objective."""
    reference = reference_of(view.candidates)
    panels = _panels(view)
    if reference is None or not panels:
        measured = "No setting was measured with more than one value yet."
        nothing = "No configuration has been measured in full yet."
        return Nothing(key=KEY, title=_TITLE, why=measured if view.candidates else nothing)
    gains = [ratios(c.values, reference.values, view.info.objectives) for c in view.candidates]
    traces: list[Layer] = []
    for position, panel in enumerate(panels):
        traces += _measured(view, panel, gains, position)
        traces += _failed(view, panel, position)
    name = "vLLM's defaults" if not reference.record.configuration.values else named(reference.record)
    height_px = 120 + _ROW_PX * -(-len(panels) // 2)
    return Plot(
        key=KEY,
        title=f"What each value gave, as a multiple of {name}",
        says=f"Each marker is a configuration; above the line it is better than {name}. Other settings "
        "differ too: a pattern counts, not one marker. Crosses at the bottom are configurations that failed.",
        figure=figure_of(traces, layout(height_px, **_layout(panels, gains))),
        table=_table(panels, view, gains),
    )


def _panels(view: StudyView) -> list[Panel]:
    """The parameters that were measured with at least two values, by what they matter, at most six."""
    names = ranked({name: found for name, found in view.importance.items() if found.missing is None})
    order = [*names, *(parameter.name for parameter in view.space.parameters if parameter.name not in names)]
    panels = [Panel(parameter=view.space.parameter(name)) for name in order]
    varied = (p for p in panels if len({place for _, place in _placed(p, view.candidates)}) > 1)
    return list(varied)[:_MOST]


def _placed(panel: Panel, candidates: Sequence[Candidate]) -> list[tuple[int, float]]:
    """Which candidates set the parameter, and where on the axis each stands."""
    places = enumerate(panel.place(candidate.record) for candidate in candidates)
    return [(position, place) for position, place in places if place is not None]


def _measured(view: StudyView, panel: Panel, gains: Gains, position: int) -> Iterator[Layer]:
    found = _placed(panel, view.candidates)
    kept = [found[k] for k in thinned(range(len(found)), _MARKERS)]
    objectives = view.info.objectives
    for i, objective in enumerate(objectives):
        # Categories stand apart, so that the objectives can stand beside each other.
        shift = (i - (len(objectives) - 1) / 2) * 0.18 if panel.categories else 0.0
        yield {
            "type": "scatter",
            "mode": "markers",
            "name": escaped(str(objective)),
            "legendgroup": str(objective),
            "showlegend": position == 0,
            "xaxis": f"x{_number(position)}",
            "yaxis": f"y{_number(position)}",
            "x": [place + shift for _, place in kept],
            "y": [gains[k][i] for k, _ in kept],
            "customdata": [[view.candidates[k].record.number] for k, _ in kept],
            "hovertext": [_hover(panel, view.candidates[k].record, gains[k], objectives) for k, _ in kept],
            "hoverinfo": "text",
            "marker": {"size": 6, "opacity": 0.65, "color": SERIES[i % len(SERIES)]},
        }


def _failed(view: StudyView, panel: Panel, position: int) -> Iterator[Layer]:
    """On an axis of its own along the bottom: a failure has no value."""
    places = ((record, panel.place(record)) for record in view.records if record.failure is not None)
    marks = [(record, place) for record, place in places if place is not None]
    kept = [marks[k] for k in thinned(range(len(marks)), _MARKERS)]
    yield {
        "type": "scatter",
        "mode": "markers",
        "name": "failed",
        "legendgroup": "failed",
        "showlegend": position == 0 and bool(kept),
        "xaxis": f"x{_number(position)}",
        "yaxis": f"y{_MOST + position + 1}",
        "x": [place for _, place in kept],
        "y": [0.04] * len(kept),
        "customdata": [[record.number] for record, _ in kept],
        "hovertext": [_failure_hover(panel, record) for record, _ in kept],
        "hoverinfo": "text",
        "marker": {"symbol": "x-thin", "size": 6, "opacity": 0.7, "line": {"color": RED, "width": 1.5}},
    }


def _hover(panel: Panel, record: TrialRecord, gains: Sequence[float], objectives: Sequence[Objective]) -> str:
    """Short: there are thousands of markers, and `front` has the whole configuration of each."""
    told = (f"{objective}: {gain:.2f} times" for objective, gain in zip(objectives, gains, strict=True))
    return lines([named(record), _setting(panel, record), *told])


def _failure_hover(panel: Panel, record: TrialRecord) -> str:
    failure = record.failure
    told = [f"failed: {failure.kind} at {failure.phase}"] if failure else []
    return lines([named(record), _setting(panel, record), *told])


def _setting(panel: Panel, record: TrialRecord) -> str:
    name = panel.parameter.name
    return f"{name} = {shown(record.configuration.values[name])}"


def _number(position: int) -> str:
    """Of a panel's axes, as Plotly counts them: nothing, 2, 3..."""
    return str(position + 1) if position else ""


def _layout(panels: Sequence[Panel], gains: Gains) -> dict[str, object]:
    """Two columns of panels, each with a line at 1 and an invisible axis for failures."""
    rows = -(-len(panels) // 2)
    gap = 0.36 / rows if rows > 1 else 0.0
    height = (1 - gap * (rows - 1)) / rows
    top = 1.08 * max([1.0, *(value for gain in gains for value in gain if math.isfinite(value))])
    axes: dict[str, object] = {}
    shapes, notes = [], []
    for position, panel in enumerate(panels):
        number, (row, column) = _number(position), divmod(position, 2)
        upper = 1 - row * (height + gap)
        side = [0.0, 0.44] if column == 0 else [0.56, 1.0]
        axes[f"xaxis{number}"] = axis(
            "", domain=side, anchor=f"y{number}", ticklabelstandoff=4, **panel.ticks()
        )
        axes[f"yaxis{number}"] = axis(
            "", domain=[max(0.0, upper - height), upper], anchor=f"x{number}", range=[0, top], nticks=5
        )
        axes[f"yaxis{_MOST + position + 1}"] = {
            "overlaying": f"y{number}", "anchor": f"x{number}", "range": [0, 1], "visible": False,
            "fixedrange": True,
        }  # fmt: skip
        shapes.append(
            {
                "type": "line", "xref": f"x{number} domain", "x0": 0, "x1": 1, "yref": f"y{number}",
                "y0": 1, "y1": 1, "line": {"color": GREY, "width": 1, "dash": "dash"},
            }
        )  # fmt: skip
        notes.append(
            {
                "text": f"<b>{folded(panel.parameter.name, 17)}</b>", "showarrow": False, "align": "left",
                "xref": f"x{number} domain", "x": 0, "xanchor": "left",
                "yref": f"y{number} domain", "y": 1.02, "yanchor": "bottom", "font": {"size": SMALL_PX},
            }
        )  # fmt: skip
    return {**axes, "shapes": shapes, "annotations": notes, "margin": {"l": 12, "r": 12, "t": 36, "b": 12}}


def _table(panels: Sequence[Panel], view: StudyView, gains: Gains) -> PlotTable:
    """A row for each category, and for each third of a range."""
    objectives = view.info.objectives
    failed = [record for record in view.records if record.failure is not None]
    rows: list[tuple[Cell, ...]] = []
    for panel in panels:
        lost = [place for record in failed if (place := panel.place(record)) is not None]
        for name, low, high in panel.parts():
            inside = [gains[k] for k, place in _placed(panel, view.candidates) if low <= place <= high]
            cells: list[Cell] = []
            for column in zip(*inside, strict=True) if inside else [()] * len(objectives):
                cells += [median(column), max(column)] if column else [None, None]
            count = sum(low <= place <= high for place in lost)
            rows.append((panel.parameter.name, name, len(inside), count, *cells))
    headings = [
        f"{what} {objective} ({METRICS[objective.metric].unit}, ratio)"
        for objective in objectives
        for what in ("median", "best")
    ]
    return PlotTable(columns=("setting", "value", "measured", "failed", *headings), rows=tuple(rows))
