"""Failures by their cause: how many, how much time they took, what was learned."""

from collections.abc import Mapping, Sequence

from autotune.decide.failure_groups import FailureGroup, failure_groups
from autotune.domain.failure import FailureKind
from autotune.report import words
from autotune.report.figures.parts import axis, layout, time_unit
from autotune.report.figures.plot import Nothing, Plot, PlotTable
from autotune.report.figures.plotly_edge import Layer, figure_of
from autotune.report.figures.text import folded, lines
from autotune.report.figures.theme import RED, SMALL_PX
from autotune.report.view import StudyView
from autotune.units import format_duration

KEY = "failures"
MOST_CAUSES = 12
KINDS: Mapping[FailureKind, str] = {
    FailureKind.GPU_OOM: "GPU out of memory",
    FailureKind.KV_CACHE_TOO_SMALL: "KV cache too small",
    FailureKind.MEMORY_BUSY: "memory in use",
    FailureKind.HOST_OOM: "host out of memory",
    FailureKind.BAD_FLAG: "bad flag",
    FailureKind.INCOMPATIBLE: "do not go together",
    FailureKind.UNSUPPORTED: "not supported",
    FailureKind.MODEL_ACCESS: "no access to model",
    FailureKind.ENVIRONMENT: "environment",
    FailureKind.STALL: "hung",
    FailureKind.ENGINE_CRASH: "engine crashed",
    FailureKind.CLIENT: "load generator",
    FailureKind.SILENT: "ended silently",
    FailureKind.UNKNOWN: "unknown",
}
"""What is said of each kind where there is room for a few words only."""


def failures(view: StudyView) -> Plot | Nothing:
    """A bar for each cause, as long as the time that its trials took."""
    lessons = [lesson for lesson, _ in view.lessons]
    groups = failure_groups(view.records, lessons, view.info.name)
    if not groups:
        return Nothing(key=KEY, title="What failed", why="No trial has failed.")
    drawn = groups[:MOST_CAUSES]
    unit_s, unit = time_unit(max(group.lost_s for group in drawn))
    trace: Layer = {
        "type": "bar",
        "orientation": "h",
        "x": [group.lost_s / unit_s for group in drawn],
        "y": list(range(len(drawn))),
        "text": [_count(group) for group in drawn],
        "textposition": "auto",
        "insidetextanchor": "start",
        "cliponaxis": False,
        "customdata": [[group.trials[0], *group.trials[1:]] for group in drawn],
        "hovertext": [_hover(group) for group in drawn],
        "hoverinfo": "text",
        "marker": {"color": RED},
        "showlegend": False,
    }
    axes = {
        "xaxis": axis(f"{unit} that failed trials took", rangemode="tozero"),
        "yaxis": axis(
            "",
            tickvals=list(range(len(drawn))),
            ticktext=_ticks(drawn),
            range=[len(drawn) - 0.4, -0.6],
            tickfont={"size": SMALL_PX},
            showgrid=False,
        ),
    }
    return Plot(
        key=KEY,
        title=_title(groups),
        says=_says(groups),
        figure=figure_of([trace], layout(110 + 42 * len(drawn), **axes, bargap=0.3)),
        table=_table(groups),
    )


def _count(group: FailureGroup) -> str:
    return words.counted(len(group.trials), "trial")


def _ticks(groups: Sequence[FailureGroup]) -> list[str]:
    """The kind; where several causes are of one kind, also the first trial that met each."""
    kinds = [group.example.kind for group in groups]

    def tick(group: FailureGroup) -> str:
        kind = folded(KINDS[group.example.kind], 16)
        several = kinds.count(group.example.kind) > 1
        return f"{kind}<br>(trial {group.trials[0]})" if several else kind

    return [tick(group) for group in groups]


def _hover(group: FailureGroup) -> str:
    failure = group.example
    told = [
        f"{KINDS[failure.kind]}: {_count(group)}, {format_duration(group.lost_s)}",
        f"at {failure.phase}, blame: {failure.blame}",
        f"first trial {group.trials[0]}",
    ]
    parts = [lines(told), _wrapped(failure.why)]
    if failure.cure:
        parts.append(_wrapped(f"What to do: {failure.cure}"))
    parts += [_wrapped(f"Never again: {lesson.finding}") for lesson in group.lessons]
    return "<br>".join(parts)


def _wrapped(text: str) -> str:
    return folded(text, 44, most=4)


def _title(groups: Sequence[FailureGroup]) -> str:
    count = sum(len(group.trials) for group in groups)
    lost = format_duration(sum(group.lost_s for group in groups))
    worst = KINDS[groups[0].example.kind]
    if len(groups) == 1:
        return f"{words.counted(count, 'trial')} failed, in {lost}: {worst}"
    return f"{count} trials failed for {len(groups)} causes, in {lost}; most of it: {worst}"


def _says(groups: Sequence[FailureGroup]) -> str:
    left_out = len(groups) - MOST_CAUSES
    more = f" {words.counted(left_out, 'further cause')} in the table." if left_out > 0 else ""
    return (
        "Each bar is one cause, as long as its trials took. What a lesson forbids is not launched "
        f"again.{more}"
    )


def _table(groups: Sequence[FailureGroup]) -> PlotTable:
    return PlotTable(
        columns=(
            "kind",
            "phase",
            "blame",
            "trials",
            "which",
            "time (s)",
            "why",
            "what to do",
            "root line",
            "lessons",
        ),
        rows=tuple(
            (
                group.example.kind.value,
                group.example.phase.value,
                group.example.blame.value,
                len(group.trials),
                ", ".join(map(str, group.trials)),
                group.lost_s,
                group.example.why,
                group.example.cure,
                group.example.root_line,
                "; ".join(str(lesson.finding) for lesson in group.lessons),
            )
            for group in groups
        ),
    )
