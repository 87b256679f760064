"""The report: one HTML file that holds everything it needs, and can be read anywhere, without a network."""

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from autotune.report import figures
from autotune.report.figures import Nothing, Plot
from autotune.report.figures.plotly_edge import Figure, Template
from autotune.report.page import embed
from autotune.report.page.content import content, notes
from autotune.report.page.trials import objective_documents, trial_documents, visible
from autotune.report.view import StudyView


def page(view: StudyView, renewed_every_s: float | None = None) -> str:
    """The report of `view` as HTML; with `renewed_every_s` the page loads itself again so often.

    Every text in it is escaped, whatever it holds.
    """
    plots = {plot.key: plot for plot in (make(view) for make in figures.FIGURES)}
    environment = Environment(
        loader=PackageLoader("autotune.report.page"),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["visible"] = visible
    return environment.get_template("page.html").render(
        page=content(view, plots),
        notes=notes(view),
        every_s=renewed_every_s,
        policy=embed.policy(),
        style=embed.style(),
        script=embed.script(),
        plotly=embed.plotly(),
        data=embed.packed_json(_data(view, plots)),
    )


def _data(view: StudyView, plots: dict[str, Plot | Nothing]) -> dict[str, object]:
    """What the page's script works on."""
    return {
        "name": view.info.name,
        "objectives": objective_documents(view.info.objectives),
        "trials": trial_documents(view),
        "templates": {"light": _raw(figures.LIGHT), "dark": _raw(figures.DARK)},
        "plots": [
            {"key": plot.key, "figure": _raw(plot.figure), "table": plot.table}
            for plot in plots.values()
            if isinstance(plot, Plot)
        ],
    }


def _raw(part: Figure | Template) -> msgspec.Raw:
    return msgspec.Raw(part.to_json().encode())
