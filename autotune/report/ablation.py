"""How an ablation is said: in the terminal, in the launch file, on the page and as JSON."""

from collections.abc import Iterator, Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from autotune.decide.ablation.findings import Ablation, Need, Reduction, Standing, Worth
from autotune.domain.difference import Difference
from autotune.report import words

_NEEDS: Mapping[Need, str] = {
    Need.NEEDED: "needed",
    Need.HARMFUL: "does harm",
    Need.NO_DIFFERENCE: "no difference shown",
    Need.NOT_MEASURED: "not measured",
}
_STYLES = {Need.NEEDED: "green", Need.HARMFUL: "red", Need.NO_DIFFERENCE: "", Need.NOT_MEASURED: "dim"}


def ablation_table(ablation: Ablation) -> Table:
    """A row for each setting: what it is worth for each objective, the most first."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("setting", overflow="fold")
    for objective in _objectives(ablation):
        table.add_column(f"worth for\n{objective}", justify="right", overflow="fold")
    table.add_column("blocks", justify="right")
    table.add_column("", overflow="fold")
    for worth in sorted(ablation.worths, key=_most_worth):
        need = Text(_NEEDS[worth.need], style=_STYLES[worth.need])
        if worth.why:
            need.append(f": {worth.why}", style="default")
        cells = [_percent(worth.differences.get(objective)) for objective in _objectives(ablation)]
        table.add_row(Text(setting(worth)), *cells, str(worth.blocks), need)
    return table


def setting(worth: Worth) -> str:
    """`speculation=ngram (with ngram_tokens)`."""
    along = f" (with {', '.join(worth.variant.along)})" if worth.variant.along else ""
    return f"{worth.variant.setting}={worth.variant.value}{along}"


def worth_sentence(worth: Worth) -> str:
    """What one setting is worth, for each objective, and what follows."""
    parts = [f"{_percent(found)} {objective}" for objective, found in worth.differences.items()]
    measured = f"worth {', '.join(parts)} in {words.counted(worth.blocks, 'block')}" if parts else ""
    return "; ".join(part for part in (measured, _NEEDS[worth.need], worth.why) if part)


def conclusion(ablation: Ablation) -> str:
    """What can be dropped, and what was not reached."""
    reduced = ablation.reduced
    if reduced is not None:
        text = (
            f"Can be dropped together: {', '.join(reduced.dropped)}. Without them the server gave "
            f"{standing(reduced)}. `autotune best --export` leaves them out."
        )
    elif not ablation.tried:
        text = "Nothing was shown to be droppable."
    else:
        last = ablation.tried[-1]
        told = f": {standing(last)}" if last.overall or last.why else ", for want of time"
        how = "is worse" if last.standing is Standing.WORSE else "was not shown to be as good"
        text = f"Nothing is dropped: the server without {', '.join(last.dropped)} {how}{told}."
    missed = [w.variant.setting for w in ablation.worths if w.need is Need.NOT_MEASURED and w.why is None]
    return f"{text} Not reached: {', '.join(missed)}." if missed else text


def standing(reduction: Reduction) -> str:
    """`1.01 times as much (95 % interval 0.98 to 1.03, 3 blocks)`, or what speaks against it."""
    if reduction.why is not None:
        return reduction.why
    if reduction.overall is None:
        return "too little to tell"
    interval = reduction.overall.interval
    return (
        f"{reduction.overall.ratio:.2f} times as much (95 % interval {interval.low:.2f} to "
        f"{interval.high:.2f}, {words.counted(reduction.blocks, 'block')})"
    )


def kept_and_dropped(ablation: Ablation) -> Iterator[str]:
    """Lines for a launch file: what each remaining setting is worth, and what was left out and why."""
    reduced = ablation.reduced
    dropped = set(reduced.dropped) if reduced else set()
    yield "What each setting is worth (ablation; 95 % interval):"
    for worth in sorted(ablation.worths, key=_most_worth):
        if worth.variant.setting not in dropped:
            yield f"  {setting(worth)}: {worth_sentence(worth)}"
    if reduced is None:
        return
    yield f"Dropped from trial {ablation.winner.number}, which without them gave {standing(reduced)}:"
    for worth in ablation.worths:
        if worth.variant.setting in dropped:
            yield f"  {setting(worth)}: {worth_sentence(worth)}"


def ablation_document(ablation: Ablation) -> Mapping[str, object]:
    """What `--json` says of an ablation. A `ratio` above 1 says that the setting does good."""
    reduced = ablation.reduced
    return {
        "trial": ablation.winner.number,
        "blocks": ablation.blocks,
        "settings": [
            {
                "setting": worth.variant.setting,
                "value": worth.variant.value,
                "along": list(worth.variant.along),
                "need": worth.need.value,
                "blocks": worth.blocks,
                "worth": _differences(worth.overall, worth.differences),
                "why": worth.why,
            }
            for worth in ablation.worths
        ],
        "tried": [
            {
                "dropped": list(each.dropped),
                "parameters": dict(each.configuration.values),
                "trial": each.record and each.record.number,
                "standing": each.standing.value,
                "blocks": each.blocks,
                "against_winner": _differences(each.overall, each.differences),
                "why": each.why,
            }
            for each in ablation.tried
        ],
        "reduced": reduced and reduced.record and reduced.record.number,
    }


def _differences(
    overall: Difference | None, each: Mapping[str, Difference]
) -> Mapping[str, Mapping[str, float]]:
    """By objective; `overall` is the geometric mean over them."""
    found = {**({"overall": overall} if overall else {}), **each}
    return {
        name: {
            "ratio": d.ratio,
            "low": d.interval.low,
            "high": d.interval.high,
            "confidence": d.confidence,
        }
        for name, d in found.items()
    }


def _objectives(ablation: Ablation) -> Sequence[str]:
    return list(dict.fromkeys(name for worth in ablation.worths for name in worth.differences))


def _percent(difference: Difference | None) -> str:
    """`+12 % [+8, +16]`."""
    if difference is None:
        return "-"
    ends = (difference.ratio, difference.interval.low, difference.interval.high)
    digits = 0 if max(abs(end - 1) for end in ends) >= 0.1 else 1
    ratio, low, high = (f"{100 * (end - 1):+.{digits}f}" for end in ends)
    return f"{ratio} % [{low}, {high}]"


def _most_worth(worth: Worth) -> tuple[int, float]:
    """The needed first; of alike ones by what they are worth."""
    order = (Need.NEEDED, Need.NO_DIFFERENCE, Need.HARMFUL, Need.NOT_MEASURED)
    return order.index(worth.need), -(worth.overall.ratio if worth.overall else 0.0)
