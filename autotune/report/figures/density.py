"""The timeline of very many trials: how much of each stretch of time went where, as heights.

A bar for each step would be thinner than a pixel, and what is drawn a pixel wide looks like more than it is.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from autotune.decide.timeline import Activity, Purpose, Timeline
from autotune.report.figures.plotly_edge import Layer
from autotune.report.figures.text import lines
from autotune.units import format_duration

STRETCHES = 120
_ROW = 0.8
"""Height of a bar that stands for all of its stretch; rows are 1 apart."""

Spent = Mapping[tuple[Purpose, Activity], float]


def density_traces(
    line: Timeline, rows: Sequence[Purpose], looks: Mapping[Activity, tuple[str, str]], unit_s: float
) -> Iterator[Layer]:
    """For each activity its bars in all rows, those of one row and stretch on top of each other."""
    width_s = line.total_s / STRETCHES
    spent = _spent(line, width_s)
    for activity in line.by_activity():
        name, colour = looks[activity]
        places = [
            (row, stretch, of[purpose, activity], _below(of, purpose, activity))
            for row, purpose in enumerate(rows)
            for stretch, of in enumerate(spent)
            if of.get((purpose, activity), 0.0) > 0
        ]
        yield {
            "type": "bar",
            "name": name,
            "showlegend": activity is not Activity.IDLE,
            "x": [(stretch + 0.5) * width_s / unit_s for _, stretch, _, _ in places],
            "width": [width_s / unit_s] * len(places),
            "base": [row + _ROW / 2 - _ROW * below_s / width_s for row, _, _, below_s in places],
            "y": [-_ROW * spent_s / width_s for _, _, spent_s, _ in places],
            "customdata": [[None, name] for _ in places],
            "hovertext": [
                lines([f"{name}: {format_duration(spent_s)} of {format_duration(width_s)}"])
                for _, _, spent_s, _ in places
            ],
            "hoverinfo": "text",
            "textposition": "none",
            "marker": {"color": colour, "line": {"width": 0}},
        }


def _spent(line: Timeline, width_s: float) -> list[Spent]:
    """Seconds for each purpose and activity in each stretch."""
    spent: list[dict[tuple[Purpose, Activity], float]] = [{} for _ in range(STRETCHES)]
    for segment in line.segments:
        key = segment.purpose, segment.activity
        first, last = (min(int(at_s / width_s), STRETCHES - 1) for at_s in (segment.begin_s, segment.end_s))
        edges = [segment.begin_s, *(i * width_s for i in range(first + 1, last + 1)), segment.end_s]
        for stretch, (begin_s, end_s) in enumerate(pairwise(edges), start=first):
            spent[stretch][key] = spent[stretch].get(key, 0.0) + max(0.0, end_s - begin_s)
    return list(spent)


def _below(of: Spent, purpose: Purpose, activity: Activity) -> float:
    """Seconds of the activities that come before `activity` in the same bar."""
    before = list(Activity)[: list(Activity).index(activity)]
    return sum(of.get((purpose, other), 0.0) for other in before)
