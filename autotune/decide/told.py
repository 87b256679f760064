"""What the sampler is told of an outcome.

Success is COMPLETE with its values. A failure of the settings is PRUNED with a violated constraint: Optuna's
samplers never look at FAIL, so a crash told as FAIL teaches nothing and the search walks into it again. What
was not the settings' doing is FAIL. No failure is ever a number.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import assert_never

from autotune.domain.failure import Blame
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


def told(outcome: Outcome, objectives: tuple[Objective, ...]) -> Told:
    """What to tell of `outcome`. Raises HarnessError when a measured ladder lacks an objective's value."""
    match outcome:
        case Measured(points=points):
            values = [objective.value(points) for objective in objectives]
            if None in values:
                missing = [str(o) for o, v in zip(objectives, values, strict=True) if v is None]
                raise HarnessError(f"a measured trial has no value for {', '.join(missing)}")
            return Told(
                state=ToldState.COMPLETE,
                values=tuple(v for v in values if v is not None),
                constraints={"works": -1.0},
            )
        case Failed(failure=failure) if failure.blame in (Blame.CONFIGURATION, Blame.UNKNOWN):
            return Told(state=ToldState.PRUNED, constraints={"works": 1.0})
        case Failed() | Interrupted():
            return Told(state=ToldState.FAIL)
        case _:
            assert_never(outcome)
