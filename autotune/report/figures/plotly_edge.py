"""The edge to Plotly, which has no types: figures and templates are made here from plain dictionaries."""

from collections.abc import Mapping, Sequence

from plotly.graph_objects import Figure
from plotly.graph_objs.layout import Template

__all__ = ["Figure", "Layer", "Template", "figure_of", "template_of"]

Layer = Mapping[str, object]
"""A trace, an axis, a shape: any part of a figure, under the names that plotly.js has."""


def figure_of(traces: Sequence[Layer], layout: Layer) -> Figure:
    """A figure. Raises ValueError for a name or value that Plotly does not know."""
    return Figure(data=[dict(trace) for trace in traces], layout=dict(layout))


def template_of(layout: Layer) -> Template:
    """A template that sets `layout` where a figure does not."""
    return Template(layout=dict(layout))
