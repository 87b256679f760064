"""Throughput against the speed that each user sees, at every stream count: vLLM's own kind of Pareto plot."""

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.decide.ladder import Level, ladder, launches_by_configuration
from autotune.domain.trial import TrialRecord
from autotune.report import words
from autotune.report.figures.marks import Mark, context_shade, mark_traces, settings_text
from autotune.report.figures.parts import axis, layout, spans_decades
from autotune.report.figures.plot import Nothing, Plot, PlotTable
from autotune.report.figures.plotly_edge import Layer, figure_of
from autotune.report.figures.text import trial_hover
from autotune.report.figures.theme import AMBER, GREEN, GREY
from autotune.report.view import StudyView

KEY = "interactivity"
_X = "tok/s for each stream"
_Y = "output of all streams, tok/s"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spot:
    """One configuration at one stream count."""

    record: TrialRecord
    level: Level
    total: float

    @property
    def each(self) -> float:
        return self.total / self.level.streams


def interactivity(view: StudyView) -> Plot | Nothing:
    """Every configuration at every stream count, and the best that any of them gives."""
    spots = _spots(view)
    if not spots:
        return Nothing(
            key=KEY,
            title="Throughput against interactivity",
            why="No configuration has been measured in full yet.",
        )
    edge = _edge(spots)
    shade = context_shade([candidate.record for candidate in view.candidates])
    traces: list[Layer] = [_line(edge, "the best of all", GREY, "solid")]
    for record, name, colour in _named(view):
        own = [spot for spot in spots if spot.record.number == record.number]
        traces.append(_line(own, name, colour, "dot"))
    marks = [
        Mark(
            trial=spot.record.number,
            x=spot.each,
            y=spot.total,
            hover=trial_hover(spot.record, _told(spot)),
            data=(spot.level.streams,),
        )
        for spot in spots
    ]
    traces += mark_traces(view, marks, shade)
    axes = {
        "xaxis": axis(_X, **_scale([spot.each for spot in spots])),
        "yaxis": axis(_Y, **_scale([spot.total for spot in spots])),
    }
    top = max(spots, key=lambda spot: spot.total)
    return Plot(
        key=KEY,
        title=f"Up to {words.number(top.total)} tok/s in all, or {words.number(max(s.each for s in spots))} "
        "tok/s for each stream",
        says="Each marker is a configuration at one stream count. Up is more throughput, right is more speed "
        "for each user; what lies on the upper line is beaten by no other in both.",
        figure=figure_of(traces, layout(500 if shade else 460, **axes)),
        table=_table(spots, edge),
    )


def _spots(view: StudyView) -> list[_Spot]:
    launches = launches_by_configuration(view.records)
    return [
        _Spot(record=candidate.record, level=level, total=level.out_tok_s.value)
        for candidate in view.candidates
        for level in ladder(launches[candidate.record.configuration.digest])
        if level.out_tok_s is not None
    ]


def _edge(spots: Sequence[_Spot]) -> list[_Spot]:
    """Those that no other beats in both, the fastest for each stream first."""
    edge: list[_Spot] = []
    for spot in sorted(spots, key=lambda spot: (-spot.each, -spot.total)):
        if not edge or spot.total > edge[-1].total:
            edge.append(spot)
    return edge


def _named(view: StudyView) -> list[tuple[TrialRecord, str, str]]:
    named = []
    if view.best is not None:
        named.append((view.best, "ladder to deploy", GREEN))
    if view.baseline is not None and view.baseline is not view.best:
        named.append((view.baseline, "ladder of the defaults", AMBER))
    return named


def _line(spots: Sequence[_Spot], name: str, colour: str, dash: str) -> Layer:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": [spot.each for spot in spots],
        "y": [spot.total for spot in spots],
        "line": {"color": colour, "width": 1.5, "dash": dash},
        "hoverinfo": "skip",
    }


def _told(spot: _Spot) -> list[str]:
    told = [
        f"{words.counted(spot.level.streams, 'stream')}: {words.number(spot.total)} tok/s in all",
        f"{words.number(spot.each)} tok/s for each stream",
    ]
    if spot.level.launches > 1:
        told.append(f"mean of {spot.level.launches} launches")
    return told


def _scale(values: Sequence[float]) -> dict[str, object]:
    return {"type": "log"} if spans_decades(values) else {}


def _table(spots: Sequence[_Spot], edge: Sequence[_Spot]) -> PlotTable:
    """The upper line alone where there are very many configurations."""
    chosen = spots if len(spots) <= 2000 else edge
    beaten_by_none = {id(spot) for spot in edge}
    return PlotTable(
        columns=("trial", "streams", _Y, _X, "beaten by no other", "launches", "configuration"),
        rows=tuple(
            (
                spot.record.number,
                spot.level.streams,
                spot.total,
                spot.each,
                "yes" if id(spot) in beaten_by_none else "",
                spot.level.launches,
                settings_text(spot.record),
            )
            for spot in chosen
        ),
    )
