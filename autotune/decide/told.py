"""What the sampler is told of an outcome.

Success is COMPLETE with its values. A failure of the settings is PRUNED with a violated constraint: Optuna's
samplers never look at FAIL, so a crash told as FAIL teaches nothing and the search walks into it again. So is
a trial that works but has no value, because too few requests were over in time to score it; one that was
given up in its ladder is PRUNED as well, with no constraint violated. What works but breaks a limit is
COMPLETE with a violated constraint: its values are true, and TPE ranks it behind all that keep the limits, by
how much it breaks them. What was not the settings' doing is FAIL. No failure is ever a number.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import assert_never

from autotune.domain.failure import Blame
from autotune.domain.measurement import Point
from autotune.domain.metric_limit import MetricLimit
from autotune.domain.objective import Objective
from autotune.domain.trial import Abandoned, Failed, Interrupted, Measured, Outcome
from autotune.errors import HarnessError


class ToldState(StrEnum):
    """Optuna's names for how a trial ended."""

    COMPLETE = "complete"
    PRUNED = "pruned"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """`values` are one for each objective, None unless complete; a constraint above 0 is violated."""

    state: ToldState
    values: tuple[float, ...] | None = None
    constraints: Mapping[str, float] = field(default_factory=dict)


WORKS, SCORED = "works", "scored"
"""The constraints: the settings work, and enough was seen of them for every objective and every limit."""


def limit_constraint(limit: MetricLimit) -> str:
    """The constraint that says whether a limit was kept: by what share of it it was broken."""
    return f"limit:{limit}"


def told(outcome: Outcome, objectives: tuple[Objective, ...], limits: tuple[MetricLimit, ...]) -> Told:
    """What to tell of `outcome`.

    Raises HarnessError when what an objective or a limit is about was not measured at all.
    """
    match outcome:
        case Measured(points=points):
            return _measured(points, objectives, limits)
        case Failed(failure=failure) if failure.blame in (Blame.CONFIGURATION, Blame.UNKNOWN):
            return Told(state=ToldState.PRUNED, constraints={WORKS: 1.0})
        case Abandoned():
            return Told(state=ToldState.PRUNED, constraints={WORKS: -1.0})
        case Failed() | Interrupted():
            return Told(state=ToldState.FAIL)
        case _:
            assert_never(outcome)


def _measured(
    points: tuple[Point, ...], objectives: tuple[Objective, ...], limits: tuple[MetricLimit, ...]
) -> Told:
    wanted = [*objectives, *(limit.measured for limit in limits)]
    values = [measured.value(points) for measured in wanted]
    if None not in values:
        scored = [value for value in values if value is not None]
        broken = zip(limits, scored[len(objectives) :], strict=True)
        return Told(
            state=ToldState.COMPLETE,
            values=tuple(scored[: len(objectives)]),
            constraints={
                WORKS: -1.0,
                SCORED: -1.0,
                **{limit_constraint(limit): limit.excess(value) for limit, value in broken},
            },
        )
    unscored = [measured for measured, value in zip(wanted, values, strict=True) if value is None]
    if missing := [str(measured) for measured in unscored if measured.shortage(points) is None]:
        raise HarnessError(f"a measured trial has no value for {', '.join(missing)}")
    return Told(state=ToldState.PRUNED, constraints={WORKS: -1.0, SCORED: 1.0})
