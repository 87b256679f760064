"""Which of the measured configurations fit what somebody needs, and which of those is the best."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autotune.decide.ranking import Candidate, candidates, failed_by_itself, gain
from autotune.domain.objective import Objective
from autotune.domain.trial import Measured, TrialRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A limit: at most `limit` where less is better, else at least, in the unit of the metric."""

    objective: Objective
    limit: float

    def keeps(self, value: float) -> bool:
        """Whether `value` is within it."""
        return value >= self.limit if self.objective.maximize else value <= self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """The configurations that fit, the best first; `best` has besides never failed by its own fault.

    The values of each are those of the needs, then of what it is `chosen_by`.
    """

    fitting: tuple[Candidate, ...]
    best: Candidate | None
    needs: tuple[Need, ...]
    chosen_by: tuple[Objective, ...]
    context_tokens: int | None
    measured: int
    """Configurations that were measured at all."""
    unknown: int = 0
    """Those of them of which something that is asked for was not measured, or in too few requests."""
    broken_by: Mapping[str, int] = field(default_factory=dict)
    """How many miss each need, by its objective, or `context`; one may miss several."""


def what_if(
    records: Sequence[TrialRecord],
    needs: Sequence[Need],
    chosen_by: Sequence[Objective],
    context_tokens: int | None = None,
) -> WhatIf:
    """Hold every measured configuration against `needs`, and rank those that fit by `chosen_by`.

    A configuration that was launched several times counts with the geometric mean of each value. One whose
    context is not known does not fit where a context is asked for.
    """
    wanted = [*(need.objective for need in needs), *chosen_by]
    known = candidates(records, wanted)
    measured = {r.configuration.digest for r in records if isinstance(r.outcome, Measured)}
    misses = {each.record.number: _misses(each, needs, context_tokens) for each in known}
    fitting = [each for each in known if not misses[each.record.number]]
    if fitting:
        reference = fitting[0].values[len(needs) :]
        fitting.sort(key=lambda c: -gain(c.values[len(needs) :], reference, chosen_by))
    failed = failed_by_itself(records)
    counted = [name for each in misses.values() for name in each]
    return WhatIf(
        fitting=tuple(fitting),
        best=next((each for each in fitting if each.record.configuration.digest not in failed), None),
        needs=tuple(needs),
        chosen_by=tuple(chosen_by),
        context_tokens=context_tokens,
        measured=len(measured),
        unknown=len(measured) - len(known),
        broken_by={name: counted.count(name) for name in dict.fromkeys(counted)},
    )


def _misses(candidate: Candidate, needs: Sequence[Need], context_tokens: int | None) -> list[str]:
    missed = [
        str(need.objective)
        for need, value in zip(needs, candidate.values, strict=False)
        if not need.keeps(value)
    ]
    allowed = candidate.record.context_tokens
    if context_tokens is not None and (allowed is None or allowed < context_tokens):
        missed.append("context")
    return missed
