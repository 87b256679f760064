"""Markers that stand for configurations: colour, shape and label, the same in every figure."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autotune.decide.ranking import Candidate
from autotune.domain.objective import Objective
from autotune.domain.trial import TrialRecord
from autotune.report import words
from autotune.report.figures.parts import thinned
from autotune.report.figures.plotly_edge import Layer
from autotune.report.figures.text import escaped, shown, trial_hover
from autotune.report.figures.theme import AMBER, BLUE, GREEN, GREY, SCALE, SMALL_PX
from autotune.report.view import StudyView

MOST_DRAWN = 800
"""Markers of configurations that are beaten; with more a browser gets slow, and nobody tells them apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A place that stands for a configuration: its first measured trial, and whatever else a click needs."""

    trial: int
    x: float
    y: float
    hover: str
    data: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shade:
    """What the colour of a marker says, by trial; None for one that has no such number."""

    title: str
    by_trial: dict[int, float | None]
    log: bool

    def marker(self, numbers: Sequence[int], *, with_scale: bool) -> Layer:
        """Colours; `with_scale` for one of the traces that have them, to show it above the figure."""
        known = [value for value in self.by_trial.values() if value is not None]
        low, high = self._place(min(known)), self._place(max(known))
        # A tick that rounding puts beyond the end would be left out.
        edge = 1e-6 * (high - low)
        ticks = sorted({min(known), max(known), _middle(known, log=self.log)})
        colours = [self.by_trial[number] for number in numbers]
        return {
            "color": [GREY if colour is None else self._place(colour) for colour in colours],
            "cmin": low,
            "cmax": high if high > low else low + 1,
            "showscale": with_scale,
            "colorscale": [list(stop) for stop in SCALE],
            "colorbar": {
                "orientation": "h", "thickness": 8, "y": 1.0, "yanchor": "bottom", "x": 0.5, "len": 1.0,
                "title": {"text": escaped(self.title), "side": "top", "font": {"size": SMALL_PX}},
                "tickvals": [min(max(self._place(tick), low + edge), high - edge) for tick in ticks],
                "ticktext": [f"{tick:.0f}" if tick >= 1000 else f"{tick:.3g}" for tick in ticks],
                "tickfont": {"size": SMALL_PX},
            },
        }  # fmt: skip

    def _place(self, value: float) -> float:
        return math.log2(value) if self.log else value


def context_shade(records: Sequence[TrialRecord]) -> Shade | None:
    """By the length of the context that each configuration allows; None unless that differs among them."""
    lengths: dict[int, float | None] = {record.number: record.context_tokens for record in records}
    if len({length for length in lengths.values() if length is not None}) < 2:
        return None
    return Shade(title="max_model_len, tokens", by_trial=lengths, log=True)


def objective_shade(candidates: Sequence[Candidate], position: int, objective: Objective) -> Shade | None:
    """By the value of an objective; None where all have the same."""
    values: dict[int, float | None] = {c.record.number: c.values[position] for c in candidates}
    if len(set(values.values())) < 2:
        return None
    better = "more" if objective.maximize else "less"
    return Shade(title=f"{objective}, {better} is better", by_trial=values, log=False)


def mark_traces(view: StudyView, marks: Sequence[Mark], shade: Shade | None) -> Iterator[Layer]:
    """Markers by what they are, the most important on top, which is what to deploy."""
    with_scale = True
    for name, own, look in _looks(view, marks):
        if not own:
            continue
        colours = shade.marker([mark.trial for mark in own], with_scale=with_scale) if shade else {}
        with_scale = False
        yield {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "x": [mark.x for mark in own],
            "y": [mark.y for mark in own],
            "customdata": [[mark.trial, *mark.data] for mark in own],
            "hovertext": [mark.hover for mark in own],
            "hoverinfo": "text",
            "marker": {**look, **colours},
        }


def _looks(view: StudyView, marks: Sequence[Mark]) -> Iterator[tuple[str, list[Mark], Layer]]:
    """What each kind of mark is called, which they are, and how they look without a shade."""
    front = {candidate.record.number for candidate in view.front}
    base = view.baseline.number if view.baseline else None
    best = view.best.number if view.best else None
    others = [mark for mark in marks if mark.trial not in (base, best)]
    breaking = {candidate.record.number for candidate in view.candidates if candidate.broken}
    beaten = [mark for mark in others if mark.trial not in front | breaking]
    thin = [beaten[i] for i in thinned(range(len(beaten)), MOST_DRAWN)]
    broken = [mark for mark in others if mark.trial in breaking]
    thin_broken = [broken[i] for i in thinned(range(len(broken)), MOST_DRAWN)]
    yield "breaks a limit", thin_broken, {"color": GREY, "symbol": "x", "size": 6, "opacity": 0.55}
    yield "beaten", thin, {"color": BLUE, "symbol": "circle", "size": 6, "opacity": 0.55}
    line = {"width": 1.5, "color": GREY}
    on_front = [mark for mark in others if mark.trial in front]
    yield "on the front", on_front, {"color": BLUE, "symbol": "circle", "size": 11, "line": line}
    star: Layer = {"color": GREEN, "symbol": "star", "size": 15, "line": line}
    if base is not None and base == best:
        yield "vLLM's defaults, to deploy", [mark for mark in marks if mark.trial == base], star
        return
    diamond: Layer = {"color": AMBER, "symbol": "diamond", "size": 12, "line": line}
    yield "vLLM's defaults", [mark for mark in marks if mark.trial == base], diamond
    yield "to deploy", [mark for mark in marks if mark.trial == best], star


def candidate_hover(candidate: Candidate, objectives: Sequence[Objective]) -> str:
    """The label of a configuration: the values of the objectives, over how many launches, its settings."""
    pairs = zip(objectives, candidate.values, strict=True)
    told = [f"{objective}: {words.quantity(value, objective)}" for objective, value in pairs]
    if candidate.launches > 1:
        told.append(f"mean of {candidate.launches} launches")
    # A label has short lines: each clause gets one.
    told += [clause for each in candidate.held for clause in words.limit_held(each).split(", ")]
    return trial_hover(candidate.record, told)


def settings_text(record: TrialRecord) -> str:
    """The configuration in a cell of a table."""
    values = record.configuration.values
    return ", ".join(f"{name}={shown(value)}" for name, value in values.items()) or "vLLM's defaults"


def _middle(values: Sequence[float], *, log: bool) -> float:
    """The value half way along the scale, rounded to two figures."""
    low, high = min(values), max(values)
    middle = math.sqrt(low * high) if log else (low + high) / 2
    return float(f"{middle:.2g}")
