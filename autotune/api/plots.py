"""A figure of the report as one that stands alone: with its title, and a background of its own."""

from autotune.report.figures import DARK, LIGHT, Nothing, Plot
from autotune.report.figures.plotly_edge import Figure, figure_of
from autotune.report.figures.text import escaped, folded
from autotune.report.figures.theme import PAGES

_TITLE_CHARS = 90
_TITLE_PX = 44
_SCALE_PX = 48
"""Height of a colour scale above the axes."""


def standing_alone(found: Plot | Nothing, *, dark: bool) -> Figure:
    """The figure under its title; where there is none, an empty one that says why."""
    figure = Figure(found.figure) if isinstance(found, Plot) else _empty(found)
    above = figure.layout.margin.t
    has_scale = any(trace.type == "scatter" and trace.marker.showscale for trace in figure.data)
    # No title of Plotly's own: beside a colour scale that lies above the axes it leaves the picture.
    figure.add_annotation(
        text=folded(found.title, _TITLE_CHARS),
        font={"size": 15},
        showarrow=False,
        align="left",
        xref="paper",
        x=0,
        xanchor="left",
        yref="paper",
        y=1,
        yanchor="bottom",
        yshift=_SCALE_PX if has_scale else above,
    )
    figure.update_layout(
        template=DARK if dark else LIGHT,
        paper_bgcolor=PAGES["dark" if dark else "light"],
        margin={"t": above + _TITLE_PX + (_SCALE_PX if has_scale else 0)},
        height=figure.layout.height + _TITLE_PX,
    )
    return figure


def _empty(found: Nothing) -> Figure:
    hidden = {"visible": False}
    why = {
        "text": escaped(found.why),
        "showarrow": False,
        "xref": "paper",
        "yref": "paper",
        "x": 0.5,
        "y": 0.5,
    }
    layout = {
        "height": 160,
        "xaxis": hidden,
        "yaxis": hidden,
        "annotations": [why],
        "margin": {"t": 0, "b": 12},
    }
    return figure_of([], layout)
