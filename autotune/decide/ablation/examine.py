"""What the blocks of an ablation tell: what each setting of the winner is worth, and what it can do without.

A setting that makes no difference alone can still matter together with another one that does: each covers for
the other. So nothing is dropped before the winner without all of them was measured beside the winner itself.
Where that is worse, half of them is tried, those that looked worth the least.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from autotune.decide.ablation.findings import Ablation, Need, Reduction, Standing, Worth
from autotune.decide.ablation.variants import Variant, variants, without
from autotune.decide.blocks import LOOKS, BlockModel, blocks_with
from autotune.decide.limits import held
from autotune.decide.race import EQUIVALENT, is_equivalent
from autotune.decide.ranking import failed_by_itself, score
from autotune.domain.difference import Difference
from autotune.domain.effective import DifferenceKind
from autotune.domain.launch import setting_name
from autotune.domain.metric_limit import MetricLimit
from autotune.domain.objective import Objective
from autotune.domain.space import Configuration, SearchSpace
from autotune.domain.trial import Measured, Origin, TrialRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Examiner:
    """Reads ablations of one study from its trials."""

    space: SearchSpace
    objectives: tuple[Objective, ...]
    limits: tuple[MetricLimit, ...] = ()

    def examine(
        self, records: Sequence[TrialRecord], winner: TrialRecord, among: Sequence[Variant]
    ) -> Ablation:
        """What `records` tell of these variants of `winner`, whichever invocation launched them."""
        blocks = _Blocks.of(records, winner, self.objectives)
        failed = failed_by_itself(records)
        without_effect = self._without_effect(winner)
        worths = tuple(_worth(each, blocks, records, failed, without_effect) for each in among)
        tried: list[Reduction] = []
        for dropped in _droppable(worths, blocks):
            tried.append(self._reduction(winner, dropped, blocks, records, failed))
            if tried[-1].standing is not Standing.WORSE:
                break
        own = {r.block for r in records if r.origin is Origin.ABLATION and _is(r, winner.configuration)}
        return Ablation(winner=winner, worths=worths, tried=tuple(tried), blocks=len(own))

    def _without_effect(self, winner: TrialRecord) -> Mapping[str, str]:
        """By parameter, what vLLM said of the settings of which nothing came."""
        said = {
            difference.setting: difference.sentence
            for difference in (winner.effective.differences if winner.effective else ())
            if difference.kind is DifferenceKind.NO_EFFECT
        }
        names = {p.name: setting_name(p.target) for p in self.space.parameters}
        return {name: said[setting] for name, setting in names.items() if setting in said}

    def _reduction(
        self,
        winner: TrialRecord,
        dropped: Collection[str],
        blocks: "_Blocks",
        records: Sequence[TrialRecord],
        failed: set[str],
    ) -> Reduction:
        configuration = without(self.space, winner.configuration, dropped)
        name = configuration.digest
        launches = [r for r in records if _is(r, configuration) and isinstance(r.outcome, Measured)]
        overall, differences = blocks.differences(blocks.winner, name)
        count = blocks.overall.count(blocks.winner, name)
        why = "it does not work" if name in failed else self._broken(launches, count)
        if why is not None:
            standing = Standing.WORSE
        elif count < LOOKS[0] or overall is None:
            standing = Standing.OPEN
        elif any(map(_is_worse, (overall, *differences.values()))):
            standing = Standing.WORSE
        elif overall.ratio >= 1 - EQUIVALENT:
            standing = Standing.AS_GOOD
        else:
            standing = Standing.WORSE if count >= LOOKS[-1] else Standing.OPEN
        return Reduction(
            dropped=tuple(n for n in winner.configuration.values if n not in configuration.values),
            configuration=configuration,
            standing=standing,
            blocks=count,
            record=launches[0] if launches else None,
            overall=overall,
            differences=differences,
            why=why,
        )

    def _broken(self, launches: Sequence[TrialRecord], blocks: int) -> str | None:
        """Which limit a reduced configuration breaks, once it was in enough blocks to tell."""
        if blocks < LOOKS[0]:
            return None
        standings = held(launches, self.limits)
        if standings is None:
            return "too little was measured to tell whether it keeps the limits"
        limit = next((each.limit for each in standings if not each.keeps), None)
        return None if limit is None else f"it breaks the limit {limit}"


def ablation_of(
    space: SearchSpace,
    objectives: Sequence[Objective],
    limits: Sequence[MetricLimit],
    records: Sequence[TrialRecord],
    winner: TrialRecord | None,
) -> Ablation | None:
    """What is known of the settings of `winner`; None where no ablation of it was begun."""
    if winner is None:
        return None
    examiner = Examiner(space=space, objectives=tuple(objectives), limits=tuple(limits))
    found = examiner.examine(records, winner, variants(space, winner.configuration))
    return found if found.blocks and found.worths else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Blocks:
    """The blocks that have the winner, by all objectives together and by each of them."""

    winner: str
    overall: BlockModel
    each: Mapping[str, BlockModel]

    @classmethod
    def of(
        cls, records: Sequence[TrialRecord], winner: TrialRecord, objectives: Sequence[Objective]
    ) -> "_Blocks":
        def model(wanted: Sequence[Objective]) -> BlockModel:
            return blocks_with(records, lambda record: score(record, wanted), winner.configuration.digest)

        return cls(
            winner=winner.configuration.digest,
            overall=model(objectives),
            each={str(objective): model([objective]) for objective in objectives},
        )

    def differences(self, first: str, second: str) -> tuple[Difference | None, Mapping[str, Difference]]:
        """Of `second` to `first`."""
        each = {name: model.difference(first, second) for name, model in self.each.items()}
        found = {name: difference for name, difference in each.items() if difference is not None}
        return self.overall.difference(first, second), found


def _worth(
    variant: Variant,
    blocks: _Blocks,
    records: Sequence[TrialRecord],
    failed: set[str],
    without_effect: Mapping[str, str],
) -> Worth:
    name = variant.configuration.digest
    overall, differences = blocks.differences(name, blocks.winner)
    count = blocks.overall.count(name, blocks.winner)
    need, why = _need(differences, count), None
    if name in failed:
        need, why = Need.NEEDED, _how_it_failed(records, variant.configuration)
    elif variant.left_out is not None:
        why = variant.left_out
    elif variant.setting in without_effect and need in (Need.NOT_MEASURED, Need.NO_DIFFERENCE):
        need, why = Need.NO_DIFFERENCE, without_effect[variant.setting]
    return Worth(
        variant=variant,
        need=need,
        blocks=count,
        launches=sum(r.origin is Origin.ABLATION and _is(r, variant.configuration) for r in records),
        overall=overall,
        differences=differences,
        why=why,
    )


def _need(differences: Mapping[str, Difference], blocks: int) -> Need:
    """A difference that is too small to matter is none."""
    sure = [d for d in differences.values() if d.is_distinguishable and not is_equivalent(d)]
    if any(difference.ratio > 1 for difference in sure):
        return Need.NEEDED
    if sure:
        return Need.HARMFUL
    return Need.NO_DIFFERENCE if differences and blocks >= LOOKS[0] else Need.NOT_MEASURED


def _droppable(worths: Sequence[Worth], blocks: _Blocks) -> Iterator[Sequence[str]]:
    """What could be dropped together, the most first: each time half as many, those worth the least."""

    def worth_log(worth: Worth) -> float:
        found = blocks.overall.log_ratio(worth.variant.configuration.digest, blocks.winner)
        return -math.inf if found is None else found

    able = [w for w in worths if w.need in (Need.HARMFUL, Need.NO_DIFFERENCE)]
    names = [worth.variant.setting for worth in sorted(able, key=worth_log)]
    while names:
        yield tuple(names)
        names = names[: len(names) // 2]


def _how_it_failed(records: Sequence[TrialRecord], configuration: Configuration) -> str:
    last = [record for record in records if _is(record, configuration) and record.failure is not None][-1]
    kind = last.failure.kind if last.failure else ""
    return f"without it the server does not work: {kind}, trial {last.number}"


def _is(record: TrialRecord, configuration: Configuration) -> bool:
    return record.configuration.digest == configuration.digest


def _is_worse(difference: Difference) -> bool:
    return difference.interval.high < 1 and not is_equivalent(difference)
