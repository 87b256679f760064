"""What to deploy, how much faster it is than the baseline, and how sure that is.

A gain is only ever told from finals. A search measures each configuration once, and the best of many single
measurements is partly luck. What breaks a limit is never chosen; the baseline then stays what all is compared
with.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from autotune.decide.blocks import BASELINE, BlockModel, block_model
from autotune.decide.finals import shortest_budget_s
from autotune.decide.limits import Held
from autotune.decide.noise import Variation, variation
from autotune.decide.race import EQUIVALENT, is_equivalent, leader_of
from autotune.decide.ranking import (
    baseline,
    candidates,
    clear_gain,
    failed_by_itself,
    gain_between,
    incumbent,
    score,
    values_of,
)
from autotune.decide.rungs import Rung, rungs
from autotune.domain.difference import Difference
from autotune.domain.metric_limit import MetricLimit
from autotune.domain.objective import Objective
from autotune.domain.trial import Origin, TrialRecord


class Certainty(StrEnum):
    """What a verdict rests on."""

    CONFIRMED = "confirmed"
    """Finals have told the chosen configuration and the baseline apart."""
    TIED = "tied"
    """Finals have not told the best of all from the baseline, which is chosen then if it keeps the limits."""
    UNCONFIRMED = "unconfirmed"
    """There were no finals of the configurations in question."""
    NO_BASELINE = "no_baseline"
    """The baseline does not work here: the chosen one is the best of those that do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`chosen` and the others are the first measured trials of their configurations.

    `rival` is the best of the others where the baseline is chosen. `difference` is that of the chosen
    configuration, or of the rival where the baseline is chosen, to the baseline in the objectives (geometric
    mean), more is better; None without finals. `looks` is what single measurements say instead.
    """

    chosen: TrialRecord
    baseline: TrialRecord | None
    rival: TrialRecord | None
    certainty: Certainty
    difference: Difference | None
    looks: float | None
    per_streams: tuple[Rung, ...]
    """Of the same two as `difference`."""
    untried: TrialRecord | None = None
    """Looks clearly better than the chosen one, but was in no finals."""
    more_s: float | None = None
    """About how much further time would confirm or refute it; None where that is not the question."""
    variation: Variation | None = None
    """How much the baseline varied by itself in the course of the study."""
    held: tuple[Held, ...] = ()
    """How the chosen configuration stands to the limits, all of which it keeps."""
    baseline_held: tuple[Held, ...] | None = None
    """How the baseline does; None where too little was measured of it to tell, or there is no baseline."""

    @property
    def other(self) -> TrialRecord | None:
        """What is held against the baseline."""
        return self.rival if self.keeps_baseline else self.chosen

    @property
    def keeps_baseline(self) -> bool:
        """Whether the baseline is what to deploy."""
        return self.baseline is not None and self.baseline.number == self.chosen.number


def verdict(
    records: Sequence[TrialRecord],
    objectives: Sequence[Objective],
    prefer: Objective | None = None,
    limits: Sequence[MetricLimit] = (),
) -> Verdict | None:
    """What `records` allow to say: by `prefer` alone where given, else by all objectives.

    What has failed by its own fault is never chosen, however fast: it works only sometimes. Nor is what
    breaks a limit. None when nothing else was measured.
    """
    trials = _Trials.of(records, [prefer] if prefer else list(objectives), limits)
    best = incumbent(trials.able, trials.wanted)
    if best is None:
        return None
    base = baseline([r for r in trials.sound if values_of(r, trials.wanted)])
    if base is None:
        found = _verdict(trials, best, None, None, Certainty.NO_BASELINE, None)
    else:
        found = _beside_baseline(trials, best, base, has_preference=prefer is not None)
    return replace(
        found,
        held=trials.held[found.chosen.configuration.digest],
        baseline_held=trials.held.get(BASELINE),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trials:
    """The trials of a study, `wanted` of which are these objectives."""

    all: Sequence[TrialRecord]
    sound: Sequence[TrialRecord]
    """Those of configurations that have not failed by their own fault, and all of the baseline."""
    able: Sequence[TrialRecord]
    """Those of them whose configurations keep the limits: what may be chosen."""
    wanted: Sequence[Objective]
    held: Mapping[str, tuple[Held, ...]]
    """How a configuration stands to the limits, by its digest."""

    @classmethod
    def of(
        cls, records: Sequence[TrialRecord], wanted: Sequence[Objective], limits: Sequence[MetricLimit]
    ) -> "_Trials":
        """Sort `records` by what they may be used for."""
        failed = failed_by_itself(records) - {BASELINE}
        sound = [record for record in records if record.configuration.digest not in failed]
        known = {c.record.configuration.digest: c for c in candidates(sound, wanted, limits)}
        keeping = {digest for digest, candidate in known.items() if candidate.keeps_limits}
        return cls(
            all=records,
            sound=sound,
            able=[record for record in sound if record.configuration.digest in keeping],
            wanted=wanted,
            held={digest: candidate.held for digest, candidate in known.items()},
        )

    @property
    def baseline_is_able(self) -> bool:
        return any(record.configuration.digest == BASELINE for record in self.able)


def _beside_baseline(
    trials: _Trials, best: TrialRecord, base: TrialRecord, *, has_preference: bool
) -> Verdict:
    """The verdict of the finals; where they say nothing of what looks best, what single measurements say."""
    found = _of_finals(trials, base)
    if found is None:
        return _unconfirmed(trials, best, base)
    in_finals = {record.configuration.digest for record in trials.all if record.origin is Origin.FINAL}
    times = gain_between(trials.sound, found.chosen, best, trials.wanted)
    if best.configuration.digest in in_finals or not times:
        return found
    if times < clear_gain(trials.sound, trials.wanted, best):
        return found
    # Finals are held by the objectives: a preference can be for one that was never in them.
    return _unconfirmed(trials, best, base) if has_preference else replace(found, untried=best)


def _of_finals(trials: _Trials, base: TrialRecord) -> Verdict | None:
    """The verdict of the finals; None where there were none, or too few blocks to tell anything."""
    model = block_model(trials.all, lambda record: score(record, trials.wanted))
    scored = [record for record in trials.able if values_of(record, trials.wanted)]
    first = {record.configuration.digest: record for record in reversed(scored)}
    leader = leader_of(model, [name for name in sorted(model.finalists) if name in first])
    difference = model.difference(BASELINE, leader) if leader else None
    if leader is None or difference is None:
        return None
    is_tied = is_equivalent(difference) or not difference.is_distinguishable
    certainty = Certainty.TIED if is_tied else Certainty.CONFIRMED
    if not trials.baseline_is_able:
        return _verdict(trials, first[leader], base, None, certainty, difference)
    if is_tied or difference.ratio < 1:
        return _verdict(trials, base, base, first[leader], certainty, difference)
    chosen = _closest_of_equals(model, leader, first, base)
    difference = model.difference(BASELINE, chosen.configuration.digest)
    return _verdict(trials, chosen, base, None, certainty, difference)


def _closest_of_equals(
    model: BlockModel, leader: str, first: dict[str, TrialRecord], base: TrialRecord
) -> TrialRecord:
    """Of the leader and those that are as good as it, the one with the fewest settings of its own.

    As good is what was in the same blocks, cannot be told from the leader, lies no more than `EQUIVALENT`
    behind it, and is better than the baseline beyond doubt as well.
    """

    def is_equal(name: str) -> bool:
        beside, ahead = model.difference(name, leader), model.difference(BASELINE, name)
        return (
            beside is not None
            and ahead is not None
            and not beside.is_distinguishable
            and beside.ratio <= 1 + EQUIVALENT
            and ahead.interval.low > 1
        )

    equals = [leader, *(name for name in sorted(model.finalists) if name in first and is_equal(name))]
    return min((first[name] for name in equals), key=lambda record: settings_apart(record, base))


def settings_apart(record: TrialRecord, base: TrialRecord) -> int:
    """In how many flags and variables a launch and the baseline's differ."""
    return len(_said(record) ^ _said(base))


def _said(record: TrialRecord) -> set[tuple[str, ...]]:
    """Each flag with its values, and each variable."""
    groups: list[list[str]] = []
    for word in record.argv:
        if word.startswith("--") or not groups:
            groups.append([])
        groups[-1].append(word)
    return {tuple(group) for group in groups} | {("", name, value) for name, value in record.env.items()}


def _unconfirmed(trials: _Trials, best: TrialRecord, base: TrialRecord) -> Verdict:
    """What looks best, where luck does not explain it or the baseline is no choice; else the baseline."""
    rival = best if best.configuration.digest != BASELINE else _second_best(trials)
    if rival is None:
        return _verdict(trials, base, base, None, Certainty.UNCONFIRMED, None)
    times = gain_between(trials.sound, base, rival, trials.wanted) or 0.0
    if trials.baseline_is_able and times < clear_gain(trials.sound, trials.wanted, rival):
        found = _verdict(trials, base, base, rival, Certainty.UNCONFIRMED, None)
    else:
        found = _verdict(trials, rival, base, None, Certainty.UNCONFIRMED, None)
    if times <= 1 and trials.baseline_is_able:
        return found
    return replace(found, more_s=shortest_budget_s(trials.sound, rival.configuration))


def _second_best(trials: _Trials) -> TrialRecord | None:
    return incumbent([record for record in trials.able if record.configuration.values], trials.wanted)


def _verdict(
    trials: _Trials,
    chosen: TrialRecord,
    base: TrialRecord | None,
    rival: TrialRecord | None,
    certainty: Certainty,
    difference: Difference | None,
) -> Verdict:
    other = rival if chosen is base else chosen
    return Verdict(
        chosen=chosen,
        baseline=base,
        rival=rival,
        certainty=certainty,
        difference=difference,
        looks=gain_between(trials.all, base, other, trials.wanted) if base and other else None,
        per_streams=rungs(trials.all, base, other),
        variation=variation(trials.all, lambda record: score(record, trials.wanted)),
    )
