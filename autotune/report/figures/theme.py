"""Colours that can be told apart on white and on black, and two templates with what depends on the page."""

from collections.abc import Mapping

from autotune.report.figures.plotly_edge import Layer, Template, template_of

PAGES: Mapping[str, str] = {"light": "#ffffff", "dark": "#15181d"}
"""The backgrounds that the colours are made for."""

BLUE = "#2f7fc1"
GREEN = "#1c9a78"
AMBER = "#b8860b"
RED = "#d64550"
PURPLE = "#8a6fc7"
GREY = "#7d8590"

SERIES = (BLUE, AMBER, PURPLE, GREEN, RED, GREY)
"""For things that have no colour of their own, in this order."""

SCALE = ((0.0, BLUE), (0.35, GREEN), (0.7, AMBER), (1.0, RED))
"""From little to much."""

SMALL_PX = 11


def _template(text: str, faint: str, grid: str, hover: str) -> Template:
    axis: Layer = {
        "gridcolor": grid,
        "linecolor": faint,
        "zerolinecolor": grid,
        "tickcolor": faint,
        "automargin": True,
        "title": {"font": {"size": 12}, "standoff": 8},
        "tickfont": {"size": SMALL_PX},
    }
    return template_of(
        {
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"color": text, "size": 12, "family": "system-ui, sans-serif"},
            "colorway": list(SERIES),
            "xaxis": axis,
            "yaxis": axis,
            "hoverlabel": {
                "bgcolor": hover,
                "bordercolor": faint,
                "align": "left",
                "font": {"color": text, "size": 12},
            },
            "shapedefaults": {"line": {"color": faint}},
            "annotationdefaults": {"font": {"color": text, "size": SMALL_PX}},
        }
    )


LIGHT = _template(text="#1f2328", faint="#8b949e", grid="#e3e7ec", hover="#ffffff")
DARK = _template(text="#e6e9ee", faint="#6e7681", grid="#2b3038", hover="#20242b")
