"""Which of the measured configurations fit what somebody needs, and which of those is the best."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autotune.decide.ranking import Candidate, candidates, failed_by_itself, gain
from autotune.domain.metric_limit import MetricLimit
from autotune.domain.objective import Objective
from autotune.domain.trial import Measured, TrialRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """The configurations that fit, the best first; `best` has besides never failed by its own fault.

    The values of each are those of what it is `chosen_by`; how it stands to the `limits` is in it too.
    """

    fitting: tuple[Candidate, ...]
    best: Candidate | None
    limits: tuple[MetricLimit, ...]
    chosen_by: tuple[Objective, ...]
    context_tokens: int | None
    measured: int
    """Configurations that were measured at all."""
    unknown: int = 0
    """Those of them of which something that is asked for was not measured, or in too few requests."""
    broken_by: Mapping[str, int] = field(default_factory=dict)
    """How many miss each limit, by what it is about, or `context`; one may miss several."""


def what_if(
    records: Sequence[TrialRecord],
    limits: Sequence[MetricLimit],
    chosen_by: Sequence[Objective],
    context_tokens: int | None = None,
) -> WhatIf:
    """Hold every measured configuration against `limits`, and rank those that fit by `chosen_by`.

    A configuration that was launched several times counts as `autotune.decide.limits` says. One whose context
    is not known does not fit where a context is asked for.
    """
    known = candidates(records, chosen_by, limits)
    measured = {r.configuration.digest for r in records if isinstance(r.outcome, Measured)}
    misses = {each.record.number: _misses(each, context_tokens) for each in known}
    fitting = [each for each in known if not misses[each.record.number]]
    if fitting:
        reference = fitting[0].values
        fitting.sort(key=lambda c: -gain(c.values, reference, chosen_by))
    failed = failed_by_itself(records)
    counted = [name for each in misses.values() for name in each]
    return WhatIf(
        fitting=tuple(fitting),
        best=next((each for each in fitting if each.record.configuration.digest not in failed), None),
        limits=tuple(limits),
        chosen_by=tuple(chosen_by),
        context_tokens=context_tokens,
        measured=len(measured),
        unknown=len(measured) - len(known),
        broken_by={name: counted.count(name) for name in dict.fromkeys(counted)},
    )


def _misses(candidate: Candidate, context_tokens: int | None) -> list[str]:
    missed = [str(each.limit.measured) for each in candidate.broken]
    allowed = candidate.record.context_tokens
    if context_tokens is not None and (allowed is None or allowed < context_tokens):
        missed.append("context")
    return missed
