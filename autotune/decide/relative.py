"""Objectives as ratios to a reference configuration, so that those of different units can be compared."""

from collections.abc import Sequence

from autotune.decide.ranking import Candidate
from autotune.domain.objective import Objective


def reference_of(candidates: Sequence[Candidate]) -> Candidate | None:
    """The baseline; where it was not measured, or is 0 in an objective, the first candidate that is not.

    None when every candidate is 0 in some objective.
    """
    usable = [candidate for candidate in candidates if all(value > 0 for value in candidate.values)]
    baseline = [candidate for candidate in usable if not candidate.record.configuration.values]
    return next(iter([*baseline, *usable]), None)


def ratios(
    values: Sequence[float], reference: Sequence[float], objectives: Sequence[Objective]
) -> tuple[float, ...]:
    """How many times better than the `reference`, whose values are above 0, for each objective.

    More is better whichever way the objective goes: half the time is a ratio of 2. Infinite for a time of 0.
    """
    return tuple(
        value / base if objective.maximize else base / value if value else float("inf")
        for value, base, objective in zip(values, reference, objectives, strict=True)
    )
