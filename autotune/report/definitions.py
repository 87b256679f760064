"""The definitions of all metrics as rows, for the table in `docs/measurement.md` and for reports."""

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.domain.metric import FLOORS, LATENCIES, METRICS, Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One row: a metric, or the quantiles of one time."""

    names: tuple[str, ...]
    unit: str
    better: str
    meaning: str
    interval: str
    floor: str


def definitions() -> Sequence[Definition]:
    """All metrics, in the registry's order; the quantiles of one time share a row."""
    quantiles = {name: tuple(f"{name}_{quantile}" for quantile in FLOORS) for name in LATENCIES}
    single = [m for m in METRICS.values() if not any(m.name in names for names in quantiles.values())]
    rows = [_row((metric.name,), metric.meaning, metric) for metric in single]
    return rows + [
        _row(names, LATENCIES[name].meaning, METRICS[names[0]]) for name, names in quantiles.items()
    ]


def _row(names: tuple[str, ...], meaning: str, metric: Metric) -> Definition:
    floors = [METRICS[name].floor for name in names]
    return Definition(
        names=names,
        unit=metric.unit,
        better="more" if metric.higher_is_better else "less",
        meaning=meaning,
        interval=metric.interval_by.value,
        floor=f"{', '.join(map(str, floors))} {metric.counted}" if any(floors) else "-",
    )


def metric_table() -> str:
    """The definitions as a Markdown table."""
    head = ["| metric | unit | better | what it is | interval | scored from |", "|---|---|---|---|---|---|"]
    rows = [
        f"| {', '.join(f'`{name}`' for name in d.names)} | {d.unit} | {d.better} | {d.meaning} | "
        f"{d.interval} | {d.floor} |"
        for d in definitions()
    ]
    return "\n".join([*head, *rows])
