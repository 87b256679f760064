"""How a comparison is shown: two sides, a line for each number, and what it rests on in plain words."""

from collections.abc import Iterator, Mapping

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotune.decide.intervals import CONFIDENCE
from autotune.domain.comparison import Comparison, Row, Side
from autotune.domain.difference import Basis, Difference
from autotune.domain.metric import METRICS
from autotune.report import words

_BASES: Mapping[Basis, str] = {
    Basis.BLOCKS: "{first} blocks",
    Basis.REPEATS: "{first} v {second} runs",
    Basis.NOISE: "study noise",
    Basis.PRIOR: "usual noise",
}
_UNCLEAR = "unclear"
MEANINGS: Mapping[Basis, str] = {
    Basis.BLOCKS: "both were measured in the same blocks of the finals, each time on a fresh server.",
    Basis.REPEATS: "both were measured several times, at different times.",
    Basis.NOISE: "one was measured once; the noise is that of other repeats in its study.",
    Basis.PRIOR: "one was measured once and nothing was repeated; the noise is what is usual of vLLM.",
}


def comparison(found: Comparison) -> Group:
    """Both sides, the table, what its intervals rest on, and the warnings."""
    parts: list[RenderableType] = [_side("A", found.first), _side("B", found.second), _table(found)]
    return Group(
        *parts, *_footer(found), *(Text(f"! {warning}", style="yellow") for warning in found.warnings)
    )


def comparison_document(found: Comparison) -> Mapping[str, object]:
    """What `autotune compare --json` prints."""
    return {
        "first": _side_document(found.first),
        "second": _side_document(found.second),
        "confidence": CONFIDENCE,
        "rows": [_row_document(row) for row in found.rows],
        "warnings": list(found.warnings),
    }


def _side(letter: str, side: Side) -> Text:
    what = side.url if side.configuration is None else words.configuration(side.configuration)
    runs = words.counted(len(side.runs), "run")
    return Text.assemble((f"{letter}  {side.name}", "bold"), f": {what} ({runs} of {side.model})")


def _table(found: Comparison) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=0, pad_edge=False)
    for heading in ("streams", "", "A", "B", "B/A", f"{CONFIDENCE:.0%} interval"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("rests on", no_wrap=True)
    before = None
    for row in found.rows:
        table.add_row("" if row.streams == before else str(row.streams), *_cells(row))
        before = row.streams
    return table


def _cells(row: Row) -> Iterator[str | Text]:
    yield row.metric
    yield _value(row.metric, row.first)
    yield _value(row.metric, row.second)
    yield "-" if row.ratio is None else f"{row.ratio:.3f}"
    if row.difference is None:
        yield from ("-", "", "")
        return
    interval = row.difference.interval
    yield f"{interval.low:.3f} to {interval.high:.3f}"
    verdict = _verdict(row.metric, row.difference)
    yield Text(verdict, style={"B better": "green", "B worse": "red"}.get(verdict, "dim"))
    n = {"first": row.difference.n_first, "second": row.difference.n_second}
    yield _BASES[row.difference.basis].format(**n)


def _value(metric: str, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{words.number(value * 1000)} ms" if METRICS[metric].unit == "s" else words.number(value)


def _verdict(metric: str, difference: Difference) -> str:
    """Whether chance explains the difference, and if it does not, who wins."""
    if not difference.is_distinguishable:
        return _UNCLEAR
    better = (difference.ratio > 1) == METRICS[metric].higher_is_better
    return "B better" if better else "B worse"


def _footer(found: Comparison) -> Iterator[Text]:
    """What the intervals rest on, each basis once, and what many of them mean together."""
    differences = [row.difference for row in found.rows if row.difference]
    if any(not d.is_distinguishable for d in differences):
        yield Text(f"{_UNCLEAR}: the interval holds 1, so chance may be all there is.", style="dim")
    for basis in sorted({d.basis for d in differences}, key=list(Basis).index):
        n = {"first": "N", "second": "M"}
        yield Text(f"{_BASES[basis].format(**n)}: {MEANINGS[basis]}", style="dim")
    if len(differences) > 1:
        expected = (1 - CONFIDENCE) * len(differences)
        yield Text(
            f"Of {len(differences)} intervals at {CONFIDENCE:.0%}, about {words.number(expected)} miss the "
            "true ratio by chance.",
            style="dim",
        )


def _side_document(side: Side) -> Mapping[str, object]:
    return {
        "name": side.name,
        "parameters": None if side.configuration is None else dict(side.configuration.values),
        "url": side.url,
        "model": side.model,
        "workload": msgspec.to_builtins(side.workload),
        "vllm_version": side.version,
        "machine": side.machine,
        "runs": len(side.runs),
    }


def _row_document(row: Row) -> Mapping[str, object]:
    difference = row.difference
    return {
        "streams": row.streams,
        "metric": row.metric,
        "unit": METRICS[row.metric].unit,
        "first": row.first,
        "second": row.second,
        "ratio": row.ratio,
        "difference": difference
        and {
            **msgspec.to_builtins(difference),
            "distinguishable": difference.is_distinguishable,
            "verdict": _verdict(row.metric, difference),
        },
    }
