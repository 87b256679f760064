"""Which configuration looks best: the Pareto front of the objectives, and one choice from it.

A configuration that was measured several times counts once, with the geometric mean of each value; its first
measured trial stands for it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from autotune.decide.noise import decodes_speculatively, noise_of, prior_noise
from autotune.domain.failure import Blame
from autotune.domain.objective import Objective
from autotune.domain.trial import Measured, TrialRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A configuration with its `values`, one for each objective, over `launches` measured trials."""

    record: TrialRecord
    values: tuple[float, ...]
    launches: int


def values_of(record: TrialRecord, objectives: Sequence[Objective]) -> tuple[float, ...] | None:
    """The objectives' values of a measured trial; None of any other, or where one is missing."""
    if not isinstance(record.outcome, Measured):
        return None
    values = [objective.value(record.points) for objective in objectives]
    return None if None in values else tuple(value for value in values if value is not None)


def candidates(records: Sequence[TrialRecord], objectives: Sequence[Objective]) -> list[Candidate]:
    """Every configuration that was measured, in the order of their first measured trials."""
    groups: dict[str, list[tuple[TrialRecord, tuple[float, ...]]]] = {}
    for record in records:
        if values := values_of(record, objectives):
            groups.setdefault(record.configuration.digest, []).append((record, values))
    return [
        Candidate(
            record=group[0][0],
            values=tuple(map(_geometric_mean, zip(*(values for _, values in group), strict=True))),
            launches=len(group),
        )
        for group in groups.values()
    ]


def front(records: Sequence[TrialRecord], objectives: Sequence[Objective]) -> list[TrialRecord]:
    """The configurations that no other beats in one objective and equals or beats in all others."""
    return [candidate.record for candidate in pareto(candidates(records, objectives), objectives)]


def pareto(among: Sequence[Candidate], objectives: Sequence[Objective]) -> list[Candidate]:
    """Those of `among` that none of them dominates."""
    return [
        candidate
        for candidate in among
        if not any(_dominates(other.values, candidate.values, objectives) for other in among)
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


def score(record: TrialRecord, objectives: Sequence[Objective]) -> float | None:
    """One number for a measured trial, more is better: the geometric mean that ratios of `gain` are of.

    None where a value is missing or 0.
    """
    values = values_of(record, objectives)
    return gain(values, [1.0] * len(values), objectives) if values and min(values) > 0 else None


def incumbent(
    records: Sequence[TrialRecord], objectives: Sequence[Objective], prefer: Objective | None = None
) -> TrialRecord | None:
    """The best configuration so far: by `prefer` alone where given, else by `gain`; of equals the earliest.

    None when nothing was measured. It is a candidate, not yet a proven winner: the best of many single
    measurements is partly luck.
    """
    wanted = [prefer] if prefer else list(objectives)
    among = candidates(records, wanted)
    if not among:
        return None
    reference = among[0].values
    return max(among, key=lambda c: (gain(c.values, reference, wanted), -c.record.number)).record


def gain_between(
    records: Sequence[TrialRecord], first: TrialRecord, second: TrialRecord, objectives: Sequence[Objective]
) -> float | None:
    """How many times better the configuration of `second` is than that of `first`, by all their trials."""
    values = {c.record.configuration.digest: c.values for c in candidates(records, objectives)}
    a, b = values.get(first.configuration.digest), values.get(second.configuration.digest)
    return None if a is None or b is None else gain(b, a, objectives)


def luck(records: Sequence[TrialRecord], objectives: Sequence[Objective], record: TrialRecord) -> float:
    """The standard deviation to reckon with in the logarithm of a trial's score.

    The larger of what is usual and what repeats have shown: the few there are tell little of how much other
    configurations vary.
    """
    speculative = decodes_speculatively(record)
    usual = max(prior_noise(objective.streams, speculative).sd_log for objective in objectives)
    seen = noise_of(records, lambda each: score(each, objectives))
    return max(usual, seen.sd_log if seen else 0.0)


def clear_gain(records: Sequence[TrialRecord], objectives: Sequence[Objective], best: TrialRecord) -> float:
    """How many times better than the baseline `best` must look to be a candidate worth naming.

    The best of 30 equal configurations looks 2 to 2.5 standard deviations better than it is, and the
    baseline has an error of its own: three of their difference are beyond luck.
    """
    return math.exp(3 * math.sqrt(2) * luck(records, objectives, best))


def failed_by_itself(records: Sequence[TrialRecord]) -> set[str]:
    """Digests of the configurations that have failed by their own fault: they do not always work."""
    return {
        record.configuration.digest
        for record in records
        if record.failure is not None and record.failure.blame in (Blame.CONFIGURATION, Blame.UNKNOWN)
    }


def baseline(records: Sequence[TrialRecord]) -> TrialRecord | None:
    """The measured trial of vLLM's own defaults; None when they did not work here."""
    return next((r for r in records if not r.configuration.values and isinstance(r.outcome, Measured)), None)


def _geometric_mean(values: Sequence[float]) -> float:
    """0 where one of them is 0; exactly the value where there is only one."""
    if len(values) == 1:
        return values[0]
    # By logarithms: the product of a hundred rates is more than a float holds.
    return math.exp(fmean(map(math.log, values))) if min(values) > 0 else 0.0
