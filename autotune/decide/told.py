"""What the sampler is told of an outcome.

Success is COMPLETE with its values. A failure of the settings is PRUNED with a violated constraint: Optuna's
samplers never look at FAIL, so a crash told as FAIL teaches nothing and the search walks into it again. So is
a trial that works but has no value, because too few requests were over in time to score it. What was not the
settings' doing is FAIL. No failure is ever a number.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import assert_never

from autotune.domain.failure import Blame
from autotune.domain.measurement import Point
from autotune.domain.objective import Objective
from autotune.domain.trial import Failed, Interrupted, Measured, Outcome
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
"""The constraints: the settings work, and enough was seen of them for every objective."""


def told(outcome: Outcome, objectives: tuple[Objective, ...]) -> Told:
    """What to tell of `outcome`. Raises HarnessError when an objective was not measured at all."""
    match outcome:
        case Measured(points=points):
            return _measured(points, objectives)
        case Failed(failure=failure) if failure.blame in (Blame.CONFIGURATION, Blame.UNKNOWN):
            return Told(state=ToldState.PRUNED, constraints={WORKS: 1.0})
        case Failed() | Interrupted():
            return Told(state=ToldState.FAIL)
        case _:
            assert_never(outcome)


def _measured(points: tuple[Point, ...], objectives: tuple[Objective, ...]) -> Told:
    values = [objective.value(points) for objective in objectives]
    if None not in values:
        scored = tuple(value for value in values if value is not None)
        return Told(state=ToldState.COMPLETE, values=scored, constraints={WORKS: -1.0, SCORED: -1.0})
    unscored = [o for o, value in zip(objectives, values, strict=True) if value is None]
    if missing := [str(objective) for objective in unscored if objective.shortage(points) is None]:
        raise HarnessError(f"a measured trial has no value for {', '.join(missing)}")
    return Told(state=ToldState.PRUNED, constraints={WORKS: -1.0, SCORED: 1.0})
