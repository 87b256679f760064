"""How a verdict is said, in the terminal, the launch file and JSON: never a gain without what it rests on."""

import math
from collections.abc import Callable, Mapping, Sequence

import msgspec
from rich.box import SIMPLE_HEAD
from rich.table import Table

from autotune.decide.noise import Variation
from autotune.decide.rungs import Level, Rung
from autotune.decide.verdict import Certainty, Verdict
from autotune.domain.difference import Difference
from autotune.domain.objective import Objective
from autotune.domain.trial import TrialRecord
from autotune.report import words
from autotune.report.limits import limit_sentences, limits_document
from autotune.units import format_duration


def sentences(verdict: Verdict, objectives: Sequence[Objective], *, brief: bool = False) -> str:
    """What to deploy, and how sure that is; `brief` where the settings of the trials are shown beside it."""
    what = _number if brief else _what
    match verdict.certainty:
        case Certainty.NO_BASELINE:
            text = (
                f"Winner: {what(verdict.chosen)}. vLLM's defaults could not be measured here, so there is "
                "nothing to compare it with."
            )
        case Certainty.CONFIRMED | Certainty.TIED if not verdict.keeps_baseline:
            text = f"Winner: {what(verdict.chosen)}: {standing(verdict, objectives)}."
        case Certainty.UNCONFIRMED if not verdict.keeps_baseline:
            text = f"Candidate: {what(verdict.chosen)}: {standing(verdict, objectives)}."
        case _:
            text = _defaults(verdict, objectives, what)
    return " ".join([text, *limit_sentences(verdict), *_further(verdict, what)])


def standing(verdict: Verdict, objectives: Sequence[Objective]) -> str:
    """How `verdict.other` compares with the defaults, and what that rests on; no configuration is named."""
    names = " and ".join(map(str, objectives)) + (" (geometric mean)" if len(objectives) > 1 else "")
    if verdict.difference is not None:
        difference = verdict.difference
        return (
            f"{difference.ratio:.2f} times vLLM's defaults in {names}, {interval(difference)}, "
            f"{words.counted(difference.n_second, 'block')} of finals"
        )
    if verdict.looks is None:
        return "not compared with vLLM's defaults, which could not be measured"
    return (
        f"looks like {verdict.looks:.2f} times vLLM's defaults in {names}, not confirmed by finals; the best "
        "of many single measurements is partly luck"
    )


def interval(difference: Difference) -> str:
    """`95 % interval 1.08 to 1.16`."""
    low, high = difference.interval.low, difference.interval.high
    return f"{100 * difference.confidence:.0f} % interval {low:.2f} to {high:.2f}"


def _what(record: TrialRecord) -> str:
    return f"trial {record.number}, {words.configuration(record.configuration)}"


def _number(record: TrialRecord) -> str:
    return f"trial {record.number}"


def _defaults(verdict: Verdict, objectives: Sequence[Objective], what: Callable[[TrialRecord], str]) -> str:
    if verdict.rival is None and verdict.held:
        return "Nothing else than vLLM's defaults keeps the limits: deploy those."
    if verdict.rival is None:
        return "Nothing else was measured than vLLM's defaults: deploy those."
    found = {
        Certainty.CONFIRMED: "vLLM's defaults are the fastest: deploy those.",
        Certainty.TIED: "Nothing is distinguishable from vLLM's defaults: deploy those.",
    }.get(verdict.certainty, "Nothing measured is clearly faster than vLLM's defaults: deploy those.")
    return f"{found} The best of the others, {what(verdict.rival)}: {standing(verdict, objectives)}."


def _further(verdict: Verdict, what: Callable[[TrialRecord], str]) -> list[str]:
    """What more time would tell."""
    parts = []
    if verdict.untried is not None:
        parts.append(f"Clearly better still looks {what(verdict.untried)}, but it was in no finals.")
    if verdict.more_s is not None:
        parts.append(
            f"The same command again, with about {format_duration(verdict.more_s)} or more, holds finals."
        )
    return parts


def drift(variation: Variation) -> str:
    """How much the baseline varied by itself."""
    percent = 100 * (math.exp(variation.sd_log) - 1)
    change = 100 * (variation.change - 1)
    return (
        f"vLLM's defaults, launched {variation.launches} times in the course of the study, varied by "
        f"{percent:.1f} % (standard deviation); from the first to the last by {change:+.1f} %."
    )


def notes(verdict: Verdict) -> list[str]:
    """What has to be known of the numbers of `ladder`."""
    lines = ["Rates are sums over all streams; total is the median time of one request."]
    launches = max((level.launches for rung in verdict.per_streams for level in _levels(rung)), default=1)
    if any(rung.differences for rung in verdict.per_streams):
        lines.append(
            "Rates and times are means over the blocks of the finals; the interval is that of the gain."
        )
    elif launches == 1:
        lines.append("Each was measured once: small differences are noise.")
    if verdict.variation is not None:
        lines.append(drift(verdict.variation))
    return lines


def ladder(verdict: Verdict) -> Table:
    """The baseline and what is held against it at each stream count, with the gain where there are both."""
    sides = [("baseline", "baseline")] if verdict.baseline is not None else []
    if verdict.other is not None:
        sides.append((_role(verdict), "other"))
    # No padding beside the one space the box has: nine columns must fit a terminal of 80.
    table = Table(box=SIMPLE_HEAD, padding=0, pad_edge=False)
    table.add_column("\n\nstreams", justify="right", no_wrap=True)
    for name, _ in sides:
        for heading in ("\nprompt\ntok/s", f"{name}\ncompletion\ntok/s", "\ntotal\nms"):
            table.add_column(heading, justify="right", no_wrap=True)
    has_intervals = any(rung.differences for rung in verdict.per_streams)
    if len(sides) == 2:
        table.add_column("\n\ngain", justify="right", no_wrap=True)
    if has_intervals:
        table.add_column("\n95 %\ninterval", justify="right", no_wrap=True)
    for rung in verdict.per_streams:
        levels = {"baseline": rung.baseline, "other": rung.other}
        cells = [cell for _, side in sides for cell in _rates(levels[side])]
        gain = [_gain(rung)] if len(sides) == 2 else []
        table.add_row(str(rung.streams), *cells, *gain, *([_range(rung)] if has_intervals else []))
    return table


def _role(verdict: Verdict) -> str:
    if verdict.keeps_baseline:
        return "best other"
    return "candidate" if verdict.certainty is Certainty.UNCONFIRMED else "winner"


def _levels(rung: Rung) -> list[Level]:
    return [level for level in (rung.baseline, rung.other) if level is not None]


def _rates(level: Level | None) -> list[str]:
    if level is None:
        return ["-", "-", "-"]
    total = "-" if level.total_s is None else f"{level.total_s * 1000:,.0f}"
    return [words.number(level.prompt_tok_s), words.number(level.out_tok_s), total]


def _gain(rung: Rung) -> str:
    if rung.baseline is None or rung.other is None or rung.baseline.out_tok_s == 0:
        return "-"
    return f"{rung.other.out_tok_s / rung.baseline.out_tok_s:.2f}x"


def _range(rung: Rung) -> str:
    difference = rung.differences.get("out_tok_s")
    return f"{difference.interval.low:.2f}-{difference.interval.high:.2f}" if difference else "-"


def verdict_document(verdict: Verdict) -> Mapping[str, object]:
    """What `--json` says of a verdict. `ratio`, its interval and `basis` are null without finals.

    They compare `compared` with the baseline in the objectives, more is better; those in `streams` compare a
    metric of the two as it is.
    """
    difference = verdict.difference
    return {
        "certainty": verdict.certainty.value,
        **_difference(difference),
        "blocks": difference.n_second if difference else 0,
        "compared": verdict.other and verdict.other.number,
        "looks": verdict.looks,
        "limits": limits_document(verdict.held),
        "baseline_limits": limits_document(verdict.baseline_held or ()),
        "untried": verdict.untried and verdict.untried.number,
        "more_s": verdict.more_s,
        "streams": [
            {"streams": rung.streams, **{name: _difference(d) for name, d in rung.differences.items()}}
            for rung in verdict.per_streams
        ],
        "baseline_variation": msgspec.to_builtins(verdict.variation),
    }


def _difference(difference: Difference | None) -> Mapping[str, object]:
    if difference is None:
        return dict.fromkeys(("ratio", "low", "high", "confidence", "basis"))
    return {
        "ratio": difference.ratio,
        "low": difference.interval.low,
        "high": difference.interval.high,
        "confidence": difference.confidence,
        "basis": difference.basis.value,
    }
