"""Which configuration looks best: the Pareto front of the objectives, and one choice from it.

A configuration that was measured several times counts once, with the geometric mean of each value; its first
measured trial stands for it. One that breaks a limit is measured, but never chosen.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from autotune.decide.limits import Held, held
from autotune.decide.noise import decodes_speculatively, noise_of, prior_noise
from autotune.domain.failure import Blame
from autotune.domain.metric_limit import MetricLimit
from autotune.domain.objective import Objective
from autotune.domain.trial import Measured, Origin, TrialRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A configuration with its `values`, one for each objective, over `launches` measured trials."""

    record: TrialRecord
    values: tuple[float, ...]
    launches: int
    held: tuple[Held, ...] = ()
    """How it stands to each limit."""

    @property
    def broken(self) -> tuple[Held, ...]:
        """The limits that it breaks."""
        return tuple(each for each in self.held if not each.keeps)

    @property
    def keeps_limits(self) -> bool:
        """Whether it may be chosen."""
        return not self.broken


def values_of(record: TrialRecord, objectives: Sequence[Objective]) -> tuple[float, ...] | None:
    """The objectives' values of a measured trial; None of any other, or where one is missing."""
    if not isinstance(record.outcome, Measured):
        return None
    values = [objective.value(record.points) for objective in objectives]
    return None if None in values else tuple(value for value in values if value is not None)


def candidates(
    records: Sequence[TrialRecord], objectives: Sequence[Objective], limits: Sequence[MetricLimit] = ()
) -> list[Candidate]:
    """Every configuration that was measured, in the order of their first measured trials.

    Not one of which too little was measured to tell whether it keeps the `limits`. Launches of an ablation do
    not count: they tell what the settings of one configuration are worth, and a dozen neighbours of it would
    crowd the front.
    """
    groups: dict[str, list[tuple[TrialRecord, tuple[float, ...]]]] = {}
    for record in records:
        values = values_of(record, objectives)
        if values and record.origin is not Origin.ABLATION:
            groups.setdefault(record.configuration.digest, []).append((record, values))
    standings = [held([record for record, _ in group], limits) for group in groups.values()]
    return [
        Candidate(
            record=group[0][0],
            values=tuple(map(_geometric_mean, zip(*(values for _, values in group), strict=True))),
            launches=len(group),
            held=standing,
        )
        for group, standing in zip(groups.values(), standings, strict=True)
        if standing is not None
    ]


def front(
    records: Sequence[TrialRecord], objectives: Sequence[Objective], limits: Sequence[MetricLimit] = ()
) -> list[TrialRecord]:
    """The configurations that keep the limits and that no other such one dominates."""
    return [candidate.record for candidate in pareto(candidates(records, objectives, limits), objectives)]


def pareto(among: Sequence[Candidate], objectives: Sequence[Objective]) -> list[Candidate]:
    """Those of `among` that keep their limits and that no other such one beats in one objective and equals or
    beats in all others.
    """
    able = [candidate for candidate in among if candidate.keeps_limits]
    return [
        candidate
        for candidate in able
        if not any(_dominates(other.values, candidate.values, objectives) for other in able)
    ]


def nearest(among: Sequence[Candidate]) -> Candidate | None:
    """Of those that break limits the one that does by the least, summed over the limits; None without any."""
    breaking = [candidate for candidate in among if candidate.broken]
    return min(breaking, key=lambda c: sum(h.limit.excess(h.value) for h in c.broken), default=None)


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
    records: Sequence[TrialRecord],
    objectives: Sequence[Objective],
    prefer: Objective | None = None,
    limits: Sequence[MetricLimit] = (),
) -> TrialRecord | None:
    """The best configuration so far: by `prefer` alone where given, else by `gain`; of equals the earliest.

    None when nothing was measured that keeps the limits. It is a candidate, not yet a proven winner: the best
    of many single measurements is partly luck.
    """
    wanted = [prefer] if prefer else list(objectives)
    among = [candidate for candidate in candidates(records, wanted, limits) if candidate.keeps_limits]
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
