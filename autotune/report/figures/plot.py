"""A figure with all that belongs beside it, and the want of one."""

from dataclasses import dataclass

from autotune.report.figures.plotly_edge import Figure

Cell = str | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotTable:
    """The numbers behind a figure; headings carry the units. Cells are plain text, escaped for nothing."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """`title` says what is to be seen, `says` in one sentence how to read it; both are plain text.

    `key` names the figure within a page. Titles are not in the figure itself.
    """

    key: str
    title: str
    says: str
    figure: Figure
    table: PlotTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    """Why there is no figure, in plain words."""

    key: str
    title: str
    why: str
