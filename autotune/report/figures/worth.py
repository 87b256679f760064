"""How much each setting mattered for each objective."""

from collections.abc import Mapping, Sequence

from autotune.domain.importance import Importance
from autotune.report.figures.parts import axis, layout
from autotune.report.figures.plot import Nothing, Plot, PlotTable
from autotune.report.figures.plotly_edge import Layer, figure_of
from autotune.report.figures.text import escaped, folded, lines
from autotune.report.figures.theme import SERIES, SMALL_PX
from autotune.report.view import StudyView

KEY = "importance"
_TITLE = "What each setting mattered"
_MOST = 10


def importance(view: StudyView) -> Plot | Nothing:
    """A bar for each setting and objective; a pale one is no longer than chance makes it."""
    known = {name: found for name, found in view.importance.items() if found.missing is None}
    if not known:
        reasons = dict.fromkeys(found.missing for found in view.importance.values() if found.missing)
        why = "; ".join(reasons) or "nothing was measured"
        return Nothing(key=KEY, title=_TITLE, why=f"It cannot be told: {why}.")
    names = ranked(known)[:_MOST]
    traces = [
        _bars(objective, found, names, SERIES[position % len(SERIES)])
        for position, (objective, found) in enumerate(known.items())
    ]
    axes = {
        "xaxis": axis("share of all settings together, %", rangemode="tozero"),
        "yaxis": axis(
            "",
            tickvals=list(range(len(names))),
            ticktext=[folded(name, 16) for name in names],
            range=[len(names) - 0.4, -0.6],
            tickfont={"size": SMALL_PX},
            showgrid=False,
        ),
    }
    height_px = 130 + (26 + 10 * len(known)) * len(names)
    return Plot(
        key=KEY,
        title=_title(known),
        says="How differently the best tenth of the configurations (at least 5) chose a setting than "
        "all that worked (PED-ANOVA). A pale bar is no longer than chance alone makes it in 1 of 20 studies.",
        figure=figure_of(traces, layout(height_px, **axes, barmode="group", bargap=0.3)),
        table=_table(known, ranked(known)),
    )


def ranked(known: Mapping[str, Importance]) -> list[str]:
    """All parameters: what mattered beyond chance for any objective first, then by their largest share."""

    def key(name: str) -> tuple[bool, float, str]:
        beyond = any(name in found.beyond_chance for found in known.values())
        return not beyond, -max(found.shares.get(name, 0.0) for found in known.values()), name

    return sorted({name for found in known.values() for name in found.shares}, key=key)


def _bars(objective: str, found: Importance, names: Sequence[str], colour: str) -> Layer:
    shares = [100 * found.shares.get(name, 0.0) for name in names]
    beyond = [name in found.beyond_chance for name in names]
    return {
        "type": "bar",
        "orientation": "h",
        "name": escaped(objective),
        "x": shares,
        "y": list(range(len(names))),
        "hovertext": [
            lines([name, f"{share:.0f} % for {objective}", "beyond chance" if clear else "may be chance"])
            for name, share, clear in zip(names, shares, beyond, strict=True)
        ],
        "hoverinfo": "text",
        "marker": {"color": colour, "opacity": [1.0 if clear else 0.3 for clear in beyond]},
    }


def _title(known: Mapping[str, Importance]) -> str:
    parts = []
    for objective, found in known.items():
        clear = [name for name in found.shares if name in found.beyond_chance]
        if clear:
            parts.append(f"{clear[0]} for {objective}")
    return f"What mattered most: {'; '.join(parts)}" if parts else "No setting stands out beyond chance"


def _table(known: Mapping[str, Importance], names: Sequence[str]) -> PlotTable:
    columns = ["setting"]
    for objective in known:
        columns += [f"{objective} (% of all)", "beyond chance"]
    rows = []
    for name in names:
        row: list[str | float | None] = [name]
        for found in known.values():
            row += [100 * found.shares.get(name, 0.0), "yes" if name in found.beyond_chance else ""]
        rows.append(tuple(row))
    return PlotTable(columns=tuple(columns), rows=tuple(rows))
