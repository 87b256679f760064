"""What to deploy, how much faster it is than the baseline, and how sure that is.

A gain is only ever told from finals. A search measures each configuration once, and the best of many single
measurements is partly luck.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from autotune.decide.blocks import BASELINE, BlockModel, block_model
from autotune.decide.finals import EQUIVALENT, is_equivalent, leader_of, shortest_budget_s
from autotune.decide.noise import Variation, variation
from autotune.decide.ranking import (
    baseline,
    clear_gain,
    failed_by_itself,
    gain_between,
    incumbent,
    score,
    values_of,
)
from autotune.decide.rungs import Rung, rungs
from autotune.domain.difference import Difference
from autotune.domain.objective import Objective
from autotune.domain.trial import TrialRecord


class Certainty(StrEnum):
    """What a verdict rests on."""

    CONFIRMED = "confirmed"
    """Finals have told the chosen configuration and the baseline apart."""
    TIED = "tied"
    """Finals have not told the best of all from the baseline, which is chosen then."""
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

    @property
    def other(self) -> TrialRecord | None:
        """What is held against the baseline."""
        return self.rival if self.keeps_baseline else self.chosen

    @property
    def keeps_baseline(self) -> bool:
        """Whether the baseline is what to deploy."""
        return self.baseline is not None and self.baseline.number == self.chosen.number


def verdict(
    records: Sequence[TrialRecord], objectives: Sequence[Objective], prefer: Objective | None = None
) -> Verdict | None:
    """What `records` allow to say: by `prefer` alone where given, else by all objectives.

    What has failed by its own fault is never chosen, however fast: it works only sometimes. None when nothing
    was measured.
    """
    wanted = [prefer] if prefer else list(objectives)
    failed = failed_by_itself(records) - {BASELINE}
    sound = [record for record in records if record.configuration.digest not in failed]
    best, base = incumbent(sound, wanted), baseline([r for r in sound if values_of(r, wanted)])
    if best is None:
        return None
    if base is None:
        return _verdict(records, wanted, best, None, None, Certainty.NO_BASELINE, None)
    found = _of_finals(sound, records, wanted, base)
    if found is None:
        return _unconfirmed(sound, wanted, best, base)
    in_finals = {record.configuration.digest for record in records if record.block is not None}
    times = gain_between(sound, found.chosen, best, wanted)
    if best.configuration.digest in in_finals or not times or times < clear_gain(sound, wanted, best):
        return found
    # Finals are held by the objectives: a preference can be for one that was never in them.
    return _unconfirmed(sound, wanted, best, base) if prefer else replace(found, untried=best)


def _of_finals(
    sound: Sequence[TrialRecord],
    records: Sequence[TrialRecord],
    wanted: Sequence[Objective],
    base: TrialRecord,
) -> Verdict | None:
    """The verdict of the finals; None where there were none, or too few blocks to tell anything."""
    model = block_model(records, lambda record: score(record, wanted))
    first = {record.configuration.digest: record for record in reversed(sound) if values_of(record, wanted)}
    leader = leader_of(model, [name for name in sorted(model.finalists) if name in first])
    difference = model.difference(BASELINE, leader) if leader else None
    if leader is None or difference is None:
        return None
    if is_equivalent(difference) or not difference.is_distinguishable:
        return _verdict(records, wanted, base, base, first[leader], Certainty.TIED, difference)
    if difference.ratio < 1:
        return _verdict(records, wanted, base, base, first[leader], Certainty.CONFIRMED, difference)
    chosen = _closest_of_equals(model, leader, first, base)
    difference = model.difference(BASELINE, chosen.configuration.digest)
    return _verdict(records, wanted, chosen, base, None, Certainty.CONFIRMED, difference)


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


def _unconfirmed(
    records: Sequence[TrialRecord], wanted: Sequence[Objective], best: TrialRecord, base: TrialRecord
) -> Verdict:
    """The incumbent, where it looks better than luck explains, else the baseline."""
    rival = best if best.configuration.digest != BASELINE else _second_best(records, wanted)
    times = gain_between(records, base, rival, wanted) if rival else None
    clear = rival is not None and times is not None and times >= clear_gain(records, wanted, rival)
    chosen = rival if clear and rival else base
    found = _verdict(records, wanted, chosen, base, None if clear else rival, Certainty.UNCONFIRMED, None)
    more_s = shortest_budget_s(records, rival.configuration) if rival and times and times > 1 else None
    return replace(found, more_s=more_s)


def _second_best(records: Sequence[TrialRecord], wanted: Sequence[Objective]) -> TrialRecord | None:
    return incumbent([record for record in records if record.configuration.values], wanted)


def _verdict(
    records: Sequence[TrialRecord],
    wanted: Sequence[Objective],
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
        looks=gain_between(records, base, other, wanted) if base and other else None,
        per_streams=rungs(records, base, other),
        variation=variation(records, lambda record: score(record, wanted)),
    )
