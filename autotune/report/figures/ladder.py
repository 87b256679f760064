"""Ladders: throughput and latency by the number of concurrent streams, baseline against the rest."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from autotune.decide.ladder import Estimate, Level, ladder, launches_by_configuration
from autotune.domain.measurement import Interval
from autotune.domain.trial import TrialRecord
from autotune.report import words
from autotune.report.figures.parts import axis, bars, layout
from autotune.report.figures.plot import Cell, Nothing, Plot, PlotTable
from autotune.report.figures.plotly_edge import Layer, figure_of
from autotune.report.figures.text import trial_hover
from autotune.report.figures.theme import AMBER, BLUE, GREEN, PURPLE, RED
from autotune.report.view import StudyView

KEY = "ladders"


@dataclass(frozen=True, slots=True)
class _Panel:
    """One of the quantities; `factor` turns it into the unit that is shown."""

    title: str
    heading: str
    read: Callable[[Level], Estimate | None]
    factor: float


_PANELS = (
    _Panel("output, tok/s", "output (tok/s)", lambda level: level.out_tok_s, 1.0),
    _Panel("median TTFT, ms", "median TTFT (ms)", lambda level: level.ttft_s, 1000.0),
    _Panel("median TPOT, ms", "median TPOT (ms)", lambda level: level.tpot_s, 1000.0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ladder:
    """A configuration that is shown."""

    record: TrialRecord
    name: str
    levels: tuple[Level, ...]
    line: Layer


def ladders(view: StudyView) -> Plot | Nothing:
    """What to deploy, vLLM's defaults, and the best for each objective alone, at each stream count."""
    shown = _shown(view)
    if not shown:
        return Nothing(key=KEY, title="Ladders", why="No configuration has been measured in full yet.")
    traces = [trace for position, _ in enumerate(_PANELS) for trace in _traces(shown, position)]
    counts = sorted({level.streams for each in shown for level in each.levels})
    return Plot(
        key=KEY,
        title=_title(view, shown, counts[-1]),
        says="Output, time to the first token and time for each further token, by concurrent streams. Bars "
        "are 95 % intervals: over launches where there were several, else over the requests of one launch, "
        "which give none for a rate.",
        figure=figure_of(traces, layout(720, **_axes(counts))),
        table=_table(shown),
    )


def _shown(view: StudyView) -> list[_Ladder]:
    launches = launches_by_configuration(view.records)
    chosen: list[tuple[TrialRecord, str, Layer]] = []
    if view.baseline is not None:
        chosen.append((view.baseline, "vLLM's defaults", {"color": AMBER, "width": 2.5, "dash": "dash"}))
    if view.best is not None and view.best is not view.baseline:
        chosen.append((view.best, f"trial {view.best.number}, to deploy", {"color": GREEN, "width": 3}))
    taken = {record.number for record, _, _ in chosen}
    others = [record for record in _best_of_each(view) if record.number not in taken]
    for record, colour in zip(others, (BLUE, PURPLE, RED), strict=False):
        chosen.append((record, f"trial {record.number}", {"color": colour, "width": 1.5}))
    return [
        _Ladder(record=record, name=name, levels=ladder(launches[record.configuration.digest]), line=line)
        for record, name, line in chosen
    ]


def _best_of_each(view: StudyView) -> list[TrialRecord]:
    """The best configuration for each objective alone, each once."""
    best = {}
    for position, objective in enumerate(view.info.objectives if view.front else ()):
        better = max if objective.maximize else min
        found = better(view.front, key=lambda candidate: candidate.values[position])
        best[found.record.number] = found.record
    return list(best.values())


def _traces(shown: Sequence[_Ladder], position: int) -> Iterator[Layer]:
    panel, axis_number = _PANELS[position], position + 1 if position else ""
    for each in shown:
        known = [(level, found) for level in each.levels if (found := panel.read(level)) is not None]
        if not known:
            continue
        values = [found.value * panel.factor for _, found in known]
        yield {
            "type": "scatter",
            "mode": "lines+markers",
            "name": each.name,
            "legendgroup": str(each.record.number),
            "showlegend": position == 0,
            "x": [math.log2(level.streams) for level, _ in known],
            "y": values,
            "error_y": {**bars(values, [_scaled(found, panel.factor) for _, found in known])},
            "xaxis": "x",
            "yaxis": f"y{axis_number}",
            "customdata": [[each.record.number, level.streams] for level, _ in known],
            "hovertext": [_hover(each, level, found, panel) for level, found in known],
            "hoverinfo": "text",
            "line": each.line,
            "marker": {"size": 6, "color": each.line["color"]},
        }


def _scaled(found: Estimate, factor: float) -> Interval | None:
    if found.interval is None:
        return None
    return Interval(low=found.interval.low * factor, high=found.interval.high * factor)


def _hover(each: _Ladder, level: Level, found: Estimate, panel: _Panel) -> str:
    told = [
        f"{words.counted(level.streams, 'stream')}: {panel.title} {words.number(found.value * panel.factor)}"
    ]
    if interval := _scaled(found, panel.factor):
        told.append(f"{words.number(interval.low)} to {words.number(interval.high)} (95 %)")
    told.append(
        f"{words.counted(level.launches, 'launch')}" if level.launches == 1 else f"{level.launches} launches"
    )
    return trial_hover(each.record, told)


def _axes(counts: Sequence[int]) -> dict[str, object]:
    """Three panels one above the other, over one axis of stream counts."""
    places = [math.log2(count) for count in counts]
    heights = ((0.52, 1.0), (0.27, 0.47), (0.0, 0.22))
    parts: dict[str, object] = {
        "xaxis": axis(
            "concurrent streams",
            tickvals=places,
            ticktext=[str(count) for count in counts],
            anchor="y3",
            range=[places[0] - 0.15, places[-1] + 0.15],
        )
    }
    for position, (panel, domain) in enumerate(zip(_PANELS, heights, strict=True)):
        name = f"yaxis{position + 1 if position else ''}"
        parts[name] = axis(panel.title, domain=list(domain), rangemode="tozero", anchor="x")
    return parts


def _title(view: StudyView, shown: Sequence[_Ladder], streams: int) -> str:
    best = next((each for each in shown if view.best and each.record.number == view.best.number), shown[0])
    base = next((each for each in shown if each.record is view.baseline), None)
    at = words.counted(streams, "stream")
    if base is None or base is best:
        return f"{best.name} gave {_rate(best, streams)} at {at}"
    of_best, of_base = _rate(best, streams), _rate(base, streams)
    return f"At {at}: {of_best} from trial {best.record.number}, {of_base} from vLLM's defaults"


def _rate(each: _Ladder, streams: int) -> str:
    found = next((level.out_tok_s for level in each.levels if level.streams == streams), None)
    return "nothing" if found is None else f"{words.number(found.value)} tok/s"


def _table(shown: Sequence[_Ladder]) -> PlotTable:
    columns = ["configuration", "trial", "streams", "launches"]
    for panel in _PANELS:
        columns += [panel.heading, "from", "to"]

    def cells(level: Level) -> Iterator[Cell]:
        for panel in _PANELS:
            found = panel.read(level)
            interval = _scaled(found, panel.factor) if found else None
            yield found.value * panel.factor if found else None
            yield interval.low if interval else None
            yield interval.high if interval else None

    return PlotTable(
        columns=tuple(columns),
        rows=tuple(
            (each.name, each.record.number, level.streams, level.launches, *cells(level))
            for each in shown
            for level in each.levels
        ),
    )
