"""Which measured trial is best: the Pareto front of the objectives, and one choice from it."""

import math
from collections.abc import Sequence

from autotune.domain.objective import Objective
from autotune.domain.trial import Measured, TrialRecord


def values_of(record: TrialRecord, objectives: Sequence[Objective]) -> tuple[float, ...] | None:
    """The objectives' values of a measured trial; None of any other, or where one is missing."""
    if not isinstance(record.outcome, Measured):
        return None
    values = [objective.value(record.points) for objective in objectives]
    return None if None in values else tuple(value for value in values if value is not None)


def front(records: Sequence[TrialRecord], objectives: Sequence[Objective]) -> list[TrialRecord]:
    """The trials that no other beats in one objective and equals or beats in all others, by number."""
    scored = [(record, values) for record in records if (values := values_of(record, objectives))]
    return [
        record
        for record, values in scored
        if not any(_dominates(other, values, objectives) for _, other in scored)
    ]


def _dominates(a: Sequence[float], b: Sequence[float], objectives: Sequence[Objective]) -> bool:
    """Whether `a` is nowhere worse than `b` and somewhere better."""
    gains = [(x - y) if o.maximize else (y - x) for x, y, o in zip(a, b, objectives, strict=True)]
    return min(gains) >= 0 and max(gains) > 0


def gain(values: Sequence[float], baseline: Sequence[float], objectives: Sequence[Objective]) -> float:
    """How many times better than the baseline, as the geometric mean over the objectives; 1 is equal.

    A ratio for each objective keeps one with large numbers from outweighing the others. Infinite where the
    baseline's throughput was 0.
    """
    logs = []
    for value, base, objective in zip(values, baseline, objectives, strict=True):
        better, worse = (value, base) if objective.maximize else (base, value)
        if worse == 0:
            return math.inf if better > 0 else 1.0
        if better == 0:
            return 0.0
        logs.append(math.log(better / worse))
    return math.exp(sum(logs) / len(logs))


def incumbent(
    records: Sequence[TrialRecord], objectives: Sequence[Objective], prefer: Objective | None = None
) -> TrialRecord | None:
    """The best trial so far: by `prefer` alone where given, else by `gain`; of equals the earliest.

    None when nothing was measured. It is a candidate, not yet a proven winner: each trial is measured once,
    and the best of many single measurements is partly luck.
    """
    wanted = [prefer] if prefer else list(objectives)
    scored = [(record, values) for record in records if (values := values_of(record, wanted))]
    if not scored:
        return None
    reference = scored[0][1]
    return max(scored, key=lambda pair: (gain(pair[1], reference, wanted), -pair[0].number))[0]


CLEAR_GAIN = 1.05
"""Below this a single measurement of each proves nothing: the best of 30 equal configurations looks 2 to 2.5
standard deviations better than it is, and a run varies by about 2 % on a quiet GPU, more on a CPU."""


def winner(
    records: Sequence[TrialRecord], objectives: Sequence[Objective], prefer: Objective | None = None
) -> TrialRecord | None:
    """The trial to deploy: the incumbent where it is clearly better than the baseline, else the baseline.

    None when nothing was measured.
    """
    best, base = incumbent(records, objectives, prefer), baseline(records)
    wanted = [prefer] if prefer else list(objectives)
    values, base_values = best and values_of(best, wanted), base and values_of(base, wanted)
    if base is None or not values or not base_values:
        return best
    return best if gain(values, base_values, wanted) >= CLEAR_GAIN else base


def baseline(records: Sequence[TrialRecord]) -> TrialRecord | None:
    """The measured trial of vLLM's own defaults; None when they did not work here."""
    return next((r for r in records if not r.configuration.values and isinstance(r.outcome, Measured)), None)
