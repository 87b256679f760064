"""Figures of a study: functions from the view of it to a plot with its table, or to why there is none."""

from collections.abc import Callable

from autotune.report.figures.causes import failures
from autotune.report.figures.ladder import ladders
from autotune.report.figures.night import timeline
from autotune.report.figures.parameters import slices
from autotune.report.figures.pareto import front
from autotune.report.figures.plot import Nothing, Plot, PlotTable
from autotune.report.figures.theme import DARK, LIGHT
from autotune.report.figures.users import interactivity
from autotune.report.figures.volume import hypervolume
from autotune.report.figures.worth import importance
from autotune.report.view import StudyView

__all__ = [
    "DARK",
    "FIGURES",
    "LIGHT",
    "Nothing",
    "Plot",
    "PlotTable",
    "failures",
    "front",
    "hypervolume",
    "importance",
    "interactivity",
    "ladders",
    "slices",
    "timeline",
]

FIGURES: tuple[Callable[[StudyView], Plot | Nothing], ...] = (
    front,
    interactivity,
    ladders,
    timeline,
    failures,
    importance,
    slices,
    hypervolume,
)
"""All of them, in the order in which a reader wants them; the key of each is its name."""
