"""How values are said: one place, so that the terminal, the launch file and the live view say the same."""

from collections.abc import Mapping, Sequence

from autotune.domain.failure import Blame
from autotune.domain.lesson import Lesson, Standing
from autotune.domain.measurement import Attainment, Flag, Point
from autotune.domain.metric import METRICS
from autotune.domain.objective import Objective
from autotune.domain.refusal import Grounds
from autotune.domain.slo import Slo
from autotune.domain.space import Configuration
from autotune.domain.trial import Failed, Interrupted, Interruption, Measured, Origin, TrialRecord

_INTERRUPTIONS: Mapping[Interruption, str] = {
    Interruption.BUDGET: "the budget was used up",
    Interruption.USER: "stopped by the user",
    Interruption.KILLED: "autotune itself was killed",
}


_STANDINGS: Mapping[Standing, str] = {
    Standing.APPLIES: "counts: nothing it forbids is launched",
    Standing.FORGOTTEN: "forgotten: does not count",
    Standing.EXPIRED: "expired: taught by vLLM {version}, tried again here",
    Standing.ELSEWHERE: "does not count here: taught with model {model} on {device}",
    Standing.REFUTED: "does not count: a configuration it forbids has worked",
}


def lesson_standing(lesson: Lesson, standing: Standing) -> str:
    """Whether a lesson counts, on one line."""
    scope = lesson.scope
    return _STANDINGS[standing].format(version=scope.vllm_version, model=scope.model, device=scope.device)


def number(value: float) -> str:
    """Whole above 1000, else one decimal, and two below 10: more digits than the noise leaves true."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def counted(count: int, noun: str) -> str:
    """`1 draw`, `2 draws`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


_REFUSED_BY: Mapping[Grounds, str] = {
    Grounds.LESSON: "by lessons",
    Grounds.MEMORY: "by the memory estimate",
    Grounds.VLLM: "by vLLM's own check",
    Grounds.TWIN: "as the same to vLLM as one that was tried",
}


def refused(counts: Mapping[Grounds, int]) -> str:
    """`12 configurations refused before a launch, at no cost: 9 by lessons, 3 by vLLM's own check.`"""
    parts = [f"{counts[grounds]} {_REFUSED_BY[grounds]}" for grounds in Grounds if counts.get(grounds)]
    total = counted(sum(counts.values()), "configuration")
    return f"{total} refused before a launch, at no cost: {', '.join(parts)}."


def quantity(value: float, objective: Objective) -> str:
    """An objective's value with its unit: `1,134 tok/s`, `52.3 ms`, `1.23 s`, `97.5 %`."""
    match METRICS[objective.metric].unit:
        case "s":
            return f"{number(value)} s" if value >= 1 else f"{number(value * 1000)} ms"
        case "share":
            return f"{100 * value:.1f} %"
        case unit:
            return f"{number(value)} {unit}"


def figure(value: float, objective: Objective) -> str:
    """The same for a column under the objective's name, which has the unit of a rate in it."""
    metric = METRICS[objective.metric]
    return number(value) if metric.higher_is_better and metric.unit != "share" else quantity(value, objective)


def objective_value(objective: Objective, points: tuple[Point, ...]) -> str | None:
    """`out_tok_s@8 1,134 tok/s`, or why too little was seen for a value; None where it was not measured."""
    value = objective.value(points)
    if value is None:
        return objective.shortage(points)
    return f"{objective} {quantity(value, objective)}"


def flag(value: Flag) -> str:
    """What a reader of a point has to know, in one sentence that begins with how grave it is."""
    return f"{'suspect' if value.kind.is_suspect else 'note'}: {value.text}"


def attainment(value: Attainment, slos: Sequence[Slo]) -> str:
    """How many requests kept the objectives, and how many should."""
    low, high = 100 * value.interval.low, 100 * value.interval.high
    return (
        f"{100 * value.share:.1f} % ({low:.1f} to {high:.1f}) of {counted(value.of, 'request')} kept the "
        f"limits of {' and '.join(map(str, slos))}"
    )


def purpose(origin: Origin, block: int | None = None) -> str:
    """Why something is launched that is not new, in brackets; empty for the search itself."""
    match origin:
        case Origin.RETRY:
            return " (again)"
        case Origin.ISOLATION:
            return " (to find out what conflicts)"
        case Origin.CONTROL:
            return " (again, to see how much they vary by themselves)"
        case Origin.FINAL:
            return " (finals)" if block is None else f" (finals, block {block + 1})"
        case Origin.FLIP | Origin.EXPERT:
            return " (start point)"
        case Origin.AUDIT:
            return " (to check the memory estimate, which refuses it)"
        case Origin.ABLATION:
            return " (ablation)" if block is None else f" (ablation, block {block + 1})"
        case Origin.BASELINE | Origin.SAMPLED | Origin.LOCAL:
            return ""


def configuration(value: Configuration) -> str:
    """The parameters of a configuration on one line."""
    return ", ".join(f"{name}={v}" for name, v in value.values.items()) or "vLLM's defaults"


def state(record: TrialRecord) -> str:
    """One word."""
    match record.outcome:
        case Measured():
            return "measured"
        case Failed():
            return "failed"
        case Interrupted():
            return "interrupted"
        case None:
            return "running"


def outcome(record: TrialRecord, objectives: Sequence[Objective]) -> str:
    """What came of a trial, on one line."""
    match record.outcome:
        case Measured(points=points):
            said = (objective_value(objective, points) for objective in objectives)
            return ", ".join(text for text in said if text)
        case Failed(failure=failure):
            doubt = " (cause not certain)" if failure.blame is Blame.UNKNOWN else ""
            return f"{failure.kind} at {failure.phase}: {failure.why}{doubt}"
        case Interrupted(reason=reason):
            return _INTERRUPTIONS[reason]
        case None:
            return ""
