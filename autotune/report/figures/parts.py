"""What several figures have in common: layout, axes, marks that stand for trials, measures of time."""

import math
from collections.abc import Iterable, Sequence

from autotune.decide.timeline import Timeline
from autotune.domain.measurement import Interval
from autotune.domain.metric import METRICS
from autotune.domain.objective import Objective
from autotune.report.figures.plotly_edge import Layer
from autotune.report.figures.text import escaped
from autotune.report.figures.theme import GREY, LIGHT, SMALL_PX

LEGEND_PX = 56
"""Below the axis: two rows of a legend, on a phone three."""


def layout(height_px: int, **parts: object) -> dict[str, object]:
    """The layout of a figure as wide as its place and so high, its legend below in rows."""
    return {
        "template": LIGHT,
        "height": height_px,
        "autosize": True,
        "margin": {"l": 12, "r": 12, "t": 28 if parts.get("annotations") else 12, "b": 12},
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": -LEGEND_PX / (height_px - 2 * LEGEND_PX),
            "yanchor": "top",
            "font": {"size": SMALL_PX},
            "itemwidth": 30,
        },
        "hovermode": "closest",
        **parts,
    }


def axis(title: str, **parts: object) -> dict[str, object]:
    """An axis; `title` says what and in which unit, and is escaped here."""
    return {"title": {"text": escaped(title)}, "automargin": True, **parts}


def objective_title(objective: Objective) -> str:
    """`out_tok_s@8 (tok/s), more is better`."""
    better = "more is better" if objective.maximize else "less is better"
    return f"{objective} ({METRICS[objective.metric].unit}), {better}"


def spans_decades(values: Iterable[float]) -> bool:
    """Whether positive `values` are so far apart that a logarithmic axis shows them better."""
    positive = [value for value in values if value > 0]
    return bool(positive) and max(positive) > 20 * min(positive)


def bars(values: Sequence[float], intervals: Sequence[Interval | None]) -> Layer:
    """Error bars; none where there is no interval."""
    pairs = list(zip(values, intervals, strict=True))
    return {
        "type": "data",
        "symmetric": False,
        "array": [interval.high - value if interval else None for value, interval in pairs],
        "arrayminus": [value - interval.low if interval else None for value, interval in pairs],
        "thickness": 1,
        "width": 4,
    }


def time_unit(total_s: float) -> tuple[float, str]:
    """Seconds in the unit that suits so long a time, and what that unit is called."""
    if total_s >= 2 * 3600:
        return 3600.0, "hours"
    return (60.0, "minutes") if total_s >= 120 else (1.0, "seconds")


def pause_marks(line: Timeline, unit_s: float) -> tuple[list[Layer], list[Layer]]:
    """Shapes and annotations where the study was left and went on later."""
    shapes: list[Layer] = []
    notes: list[Layer] = []
    for pause in line.pauses:
        x = pause.at_s / unit_s
        shapes.append(
            {
                "type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper",
                "line": {"color": GREY, "width": 1, "dash": "dot"},
            }
        )  # fmt: skip
    if line.pauses and len(line.pauses) <= 3:
        notes += [
            {
                "x": pause.at_s / unit_s, "y": 1, "yref": "paper", "yanchor": "bottom",
                "text": f"continued {pause.continued_at:%m-%d %H:%M}", "showarrow": False,
            }
            for pause in line.pauses
        ]  # fmt: skip
    return shapes, notes


def thinned(positions: Sequence[int], most: int) -> list[int]:
    """At most `most` of `positions`, evenly spread."""
    if len(positions) <= most:
        return list(positions)
    step = len(positions) / most
    return [positions[math.floor(i * step)] for i in range(most)]
