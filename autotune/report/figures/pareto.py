"""The front of the objectives: which configurations are worth choosing from."""

from collections.abc import Sequence
from itertools import accumulate

from autotune.decide.ranking import Candidate
from autotune.domain.metric import METRICS
from autotune.report import words
from autotune.report.figures.marks import (
    Mark,
    Shade,
    candidate_hover,
    context_shade,
    mark_traces,
    objective_shade,
    settings_text,
)
from autotune.report.figures.parts import axis, layout, objective_title, spans_decades
from autotune.report.figures.plot import Cell, Nothing, Plot, PlotTable
from autotune.report.figures.plotly_edge import Layer, figure_of
from autotune.report.figures.theme import GREY
from autotune.report.view import StudyView

KEY = "front"


def front(view: StudyView) -> Plot | Nothing:
    """Every measured configuration by the first two objectives, or by its trial where there is only one.

    A third objective is the colour; else that is the context length, where it differs. The front is that of
    all objectives, the one which `autotune best` chooses from.
    """
    if not view.candidates:
        return Nothing(
            key=KEY, title="What can be had", why="No configuration has been measured in full yet."
        )
    single = len(view.info.objectives) == 1
    x, y, line = _by_trial(view) if single else _by_objectives(view)
    shade = _shade(view)
    marks = [
        Mark(
            trial=candidate.record.number,
            x=x[i],
            y=y[i],
            hover=candidate_hover(candidate, view.info.objectives),
        )
        for i, candidate in enumerate(view.candidates)
    ]
    traces = [*([line] if line else []), *mark_traces(view, marks, shade)]
    figure = figure_of(traces, layout(480 if shade else 440, **_axes(view, x, y, single=single)))
    title, says = _words(view, shade)
    return Plot(key=KEY, title=title, says=says, figure=figure, table=_table(view))


def _by_objectives(view: StudyView) -> tuple[list[float], list[float], Layer | None]:
    """Places, and the stairs of the front: what lies between two of its members is beaten by neither."""
    x = [candidate.values[1] for candidate in view.candidates]
    y = [candidate.values[0] for candidate in view.candidates]
    if len(view.info.objectives) > 2 or len(view.front) < 2:
        return x, y, None
    members = sorted(view.front, key=lambda candidate: candidate.values[1])
    return x, y, _line([c.values[1] for c in members], [c.values[0] for c in members], _stairs(view))


def _stairs(view: StudyView) -> str:
    """Which corner of the stairs lies within what is dominated."""
    return "vh" if view.info.objectives[1].maximize else "hv"


def _by_trial(view: StudyView) -> tuple[list[float], list[float], Layer | None]:
    """Places, and the best so far as a line."""
    x = [float(candidate.record.number) for candidate in view.candidates]
    y = [candidate.values[0] for candidate in view.candidates]
    better = max if view.info.objectives[0].maximize else min
    able = [i for i, candidate in enumerate(view.candidates) if candidate.keeps_limits]
    best = list(accumulate((y[i] for i in able), better))
    return x, y, _line([x[i] for i in able], best, "hv") if len(able) > 1 else None


def _line(x: Sequence[float], y: Sequence[float], shape: str) -> Layer:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": list(x),
        "y": list(y),
        "line": {"color": GREY, "width": 1.5, "shape": shape},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _shade(view: StudyView) -> Shade | None:
    if len(view.info.objectives) > 2:
        return objective_shade(view.candidates, 2, view.info.objectives[2])
    return context_shade([candidate.record for candidate in view.candidates])


def _axes(view: StudyView, x: Sequence[float], y: Sequence[float], *, single: bool) -> dict[str, object]:
    objectives = view.info.objectives
    y_axis = axis(objective_title(objectives[0]), **_scale(y))
    if single:
        return {"xaxis": axis("trial", tickformat="d"), "yaxis": y_axis}
    return {"xaxis": axis(objective_title(objectives[1]), **_scale(x)), "yaxis": y_axis}


def _scale(values: Sequence[float]) -> dict[str, object]:
    return {"type": "log"} if min(values) > 0 and spans_decades(values) else {}


def _words(view: StudyView, shade: Shade | None) -> tuple[str, str]:
    objectives, count = view.info.objectives, len(view.candidates)
    colour = f" The colour is {shade.title.split(',')[0]}." if shade else ""
    if len(objectives) == 1:
        return (
            f"{objectives[0]} of {words.counted(count, 'configuration')}, and the best so far",
            "Each marker is a configuration, at its first measured trial; the line is the best until then."
            + colour
            + _breaking(view),
        )
    which = _which(len(view.front), count)
    corner = {(True, True): "upper right", (True, False): "lower right"}
    better = corner.get((objectives[1].maximize, objectives[0].maximize)) or (
        "upper left" if objectives[0].maximize else "lower left"
    )
    return (
        f"What can be had: {which}",
        f"Each marker is a configuration; better lies to the {better}. Nothing measured is as good as one on "
        f"the front in all objectives and better in one.{colour}{_breaking(view)}",
    )


def _breaking(view: StudyView) -> str:
    broken = sum(not candidate.keeps_limits for candidate in view.candidates)
    if not broken:
        return ""
    limits = " or ".join(map(str, view.info.metric_limits))
    return f" Crosses, {broken} of them, break {limits}: they are no choice."


def _which(front_size: int, count: int) -> str:
    if front_size == 0:
        return f"none of {count} measured configurations keeps the limits"
    if count == 1:
        return "one configuration was measured"
    are = "is" if front_size == 1 else "are"
    return f"{front_size} of {count} measured configurations {are} beaten by no other"


def _table(view: StudyView) -> PlotTable:
    members = {candidate.record.number for candidate in view.front}

    def row(candidate: Candidate) -> tuple[Cell, ...]:
        record = candidate.record
        on_front = "yes" if record.number in members else ""
        held: list[Cell] = [each.value for each in candidate.held]
        if candidate.held:
            held.append(" and ".join(str(each.limit) for each in candidate.broken))
        return record.number, on_front, *candidate.values, *held, candidate.launches, settings_text(record)

    ordered = sorted(view.candidates, key=lambda c: (c.record.number not in members, c.record.number))
    limits = view.info.metric_limits
    of = [*view.info.objectives, *(limit.measured for limit in limits)]
    headings = [f"{measured} ({METRICS[measured.metric].unit})" for measured in of]
    headings += ["breaks"] if limits else []
    return PlotTable(
        columns=("trial", "on the front", *headings, "launches", "configuration"),
        rows=tuple(row(candidate) for candidate in ordered),
    )
