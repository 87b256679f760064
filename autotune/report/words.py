"""How values are said: one place, so that the terminal, the launch file and the live view say the same."""

from collections.abc import Mapping, Sequence

from autotune.decide.limits import Held
from autotune.decide.plan import Plan
from autotune.decide.timeline import Purpose, Timeline
from autotune.domain.failure import Blame
from autotune.domain.lesson import Lesson, Standing
from autotune.domain.measurement import Attainment, Flag, Point
from autotune.domain.metric import METRICS
from autotune.domain.metric_limit import MetricLimit
from autotune.domain.objective import Objective
from autotune.domain.refusal import Grounds
from autotune.domain.slo import Slo
from autotune.domain.space import Configuration
from autotune.domain.trial import Abandoned, Failed, Interrupted, Interruption, Measured, Origin, TrialRecord
from autotune.units import format_duration

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


def limits_broken(points: tuple[Point, ...], limits: Sequence[MetricLimit]) -> list[str]:
    """`breaks ttft_p95@4<=2s: 2.60 s` for each limit that a measured ladder breaks by itself.

    Where too little was seen to tell, why.
    """
    said = []
    for limit in limits:
        value = limit.measured.value(points)
        if value is None:
            said.append(limit.measured.shortage(points) or f"{limit.measured} was not measured")
        elif not limit.keeps(value):
            said.append(f"breaks {limit}: {_beside_limit(value, limit)}")
    return said


def limit_held(held: Held) -> str:
    """`keeps ttft_p95@4<=2s: 1.50 s, mean of 3 launches in the finals`, and whether its interval does not."""
    text = f"{'keeps' if held.keeps else 'breaks'} {held.limit}: {_beside_limit(held.value, held.limit)}"
    if held.launches > 1 or held.of_finals:
        launches = "1 launch" if held.launches == 1 else f"mean of {held.launches} launches"
        text += f", {launches}{' in the finals' if held.of_finals else ''}"
    if held.straddles and held.interval is not None:
        low, high = (quantity(end, held.limit.measured) for end in (held.interval.low, held.interval.high))
        text += f", but its 95 % interval, {low} to {high}, reaches across the limit"
    return text


def _beside_limit(value: float, limit: MetricLimit) -> str:
    """A value; where it breaks the limit by less than its digits show, by how much."""
    text = quantity(value, limit.measured)
    if limit.keeps(value) or text != quantity(limit.bound, limit.measured):
        return text
    return f"{text} ({100 * limit.excess(value):.2g} % beyond)"


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


PURPOSES: Mapping[Purpose, str] = {
    Purpose.MEASURED: "measured",
    Purpose.FINALS: "finals",
    Purpose.CONTROL: "defaults again",
    Purpose.ABANDONED: "given up",
    Purpose.FAILED: "failed",
    Purpose.INTERRUPTED: "broken off",
    Purpose.RUNNING: "running now",
    Purpose.IDLE: "between trials",
}
"""What time was for."""


def time_spent(line: Timeline) -> str:
    """`Time: 52 min (61 %) measured, 4 min (5 %) failed, 21 s (0 %) between trials.`"""
    parts = [
        f"{format_duration(spent_s)} ({100 * spent_s / line.total_s:.0f} %) {PURPOSES[purpose]}"
        for purpose, spent_s in line.by_purpose().items()
    ]
    return f"Time: {', '.join(parts)}." if parts else "No time was spent yet."


def plan(value: Plan) -> str:
    """`about 23 more trials, then finals of 3 x 4 launches (48 min)`."""
    searched = f"about {counted(value.search_trials, 'more trial')}"
    if not value.finals_launches:
        return f"{searched}, no finals"
    each = value.finals_launches // value.finals_blocks
    took = format_duration(value.finals_s)
    return f"{searched}, then finals of {value.finals_blocks} x {each} launches ({took})"


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
        case Abandoned():
            return "abandoned"
        case Failed():
            return "failed"
        case Interrupted():
            return "interrupted"
        case None:
            return "running"


def outcome(record: TrialRecord, objectives: Sequence[Objective], limits: Sequence[MetricLimit] = ()) -> str:
    """What came of a trial, on one line, with the limits that it breaks."""
    match record.outcome:
        case Measured(points=points):
            said = [objective_value(objective, points) for objective in objectives]
            said += limits_broken(points, limits)
            return ", ".join(text for text in dict.fromkeys(said) if text)
        case Abandoned(why=why):
            return why
        case Failed(failure=failure):
            doubt = " (cause not certain)" if failure.blame is Blame.UNKNOWN else ""
            return f"{failure.kind} at {failure.phase}: {failure.why}{doubt}"
        case Interrupted(reason=reason):
            return _INTERRUPTIONS[reason]
        case None:
            return ""
