"""How values are said: one place, so that the terminal, the launch file and the live view say the same."""

from collections.abc import Mapping, Sequence

from autotune.domain.failure import Blame
from autotune.domain.lesson import Lesson, Standing
from autotune.domain.objective import METRICS, Objective
from autotune.domain.space import Configuration
from autotune.domain.trial import Failed, Interrupted, Interruption, Measured, TrialRecord

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


def quantity(value: float, objective: Objective) -> str:
    """An objective's value with its unit."""
    return f"{number(value)} {METRICS[objective.metric].unit}"


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
            values = [(o, o.value(points)) for o in objectives]
            return ", ".join(f"{o} {quantity(v, o)}" for o, v in values if v is not None)
        case Failed(failure=failure):
            doubt = " (cause not certain)" if failure.blame is Blame.UNKNOWN else ""
            return f"{failure.kind} at {failure.phase}: {failure.why}{doubt}"
        case Interrupted(reason=reason):
            return _INTERRUPTIONS[reason]
        case None:
            return ""
