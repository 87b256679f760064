"""Rounds of a study: a search and the finals that end it, over and over while the time lasts.

Where a study stands in them is told by its trials and the time that is left alone, so that one that was
killed goes on as if nothing had happened.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.decide.blocks import BASELINE, BlockModel, alpha_of, block_model
from autotune.decide.durations import took_s
from autotune.decide.finals import Block, Finals, block_s, shortest_budget_s
from autotune.decide.race import leader_of
from autotune.decide.student import t_quantile
from autotune.domain.space import Configuration
from autotune.domain.trial import Interrupted, Origin, TrialRecord

MORE_TIMES = 2
"""Where time is of no other use, a finalist may be in so many times the most blocks of finals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Finals that were cut off in `block`, of which the `launches` are still to be made."""

    block: Block
    launches: tuple[Configuration, ...]


def round_s(records: Sequence[TrialRecord], left_s: float) -> float:
    """The time of the present round: what is left, and what its search has taken so far."""
    since = records[_after_finals(records) :]
    return left_s + sum(took_s(record) for record in since if record.origin is not Origin.ABLATION)


def in_finals(records: Sequence[TrialRecord]) -> bool:
    """Whether the last thing done was a launch of the finals."""
    return bool(records) and records[-1].origin is Origin.FINAL


def is_too_short(records: Sequence[TrialRecord], finals: Finals, left_s: float) -> bool:
    """Whether another round would have no finals: what it found could not be confirmed."""
    leader = _leader(block_model(records, finals.read), records, finals)
    return leader is not None and left_s < shortest_budget_s(records, leader)


def more_block(records: Sequence[TrialRecord], finals: Finals, left_s: float) -> Block | None:
    """A further block of the baseline and the best finalist, whatever is decided.

    None where that is not ahead of the baseline, where it has been in enough blocks, and where those for
    which there is time would not make the interval narrower.
    """
    model = block_model(records, finals.read)
    leader = _leader(model, records, finals)
    if leader is None or (model.log_ratio(BASELINE, leader.digest) or 0.0) <= 0:
        return None
    count = model.count(BASELINE, leader.digest)
    most = MORE_TIMES * finals.limits.max_blocks - count
    fitting = min(most, int(left_s / block_s(records, [leader])))
    if fitting < 1 or _reach(model, count, fitting) >= _reach(model, count, 0):
        return None
    number = max(record.block for record in records if record.block is not None) + 1
    index = len({record.block for record in records[_before_finals(records) :]})
    return finals.block(number, index, index + fitting, [leader], records)


def following(
    block: Block, records: Sequence[TrialRecord], finals: Finals, left_s: float, *, may_add: bool
) -> Block | None:
    """The block after `block`; where finals are decided and no others fit, one for a narrower interval.

    That only where it `may_add` such blocks.
    """
    if decided := finals.next_block(block, records, left_s):
        return decided
    return more_block(records, finals, left_s) if may_add and is_too_short(records, finals, left_s) else None


def standing(
    records: Sequence[TrialRecord], finals: Finals, left_s: float, *, may_add: bool
) -> Standing | None:
    """Where the finals stand that the last trials belong to; None where they have come to their end.

    What was decided in them is decided again, from the first of these trials on: it is the same.
    """
    records = [record for record in records if record.origin is not Origin.FINAL or record.block is not None]
    at = _before_finals(records)
    if at == len(records):
        return None
    block = finals.first_block(records[:at], left_s + _sum_s(records, at))
    block = block or more_block(records[:at], finals, left_s + _sum_s(records, at))
    while block is not None:
        end = at
        while end < len(records) and records[end].block == block.number:
            end += 1
        if end == len(records):
            made = [r.configuration for r in records[at:] if not isinstance(r.outcome, Interrupted)]
            if launches := tuple(c for c in block.order if c not in made):
                return Standing(block=block, launches=launches)
        next_block = following(block, records[:end], finals, left_s + _sum_s(records, end), may_add=may_add)
        if end == len(records):
            return Standing(block=next_block, launches=next_block.order) if next_block else None
        if end == at:  # not what was decided then: another version of the program has
            return None
        block, at = next_block, end
    return None


def _leader(model: BlockModel, records: Sequence[TrialRecord], finals: Finals) -> Configuration | None:
    able = finals.eligible(records)
    leader = leader_of(model, [configuration.digest for configuration in able])
    return next((configuration for configuration in able if configuration.digest == leader), None)


def _reach(model: BlockModel, blocks: int, further: int) -> float:
    """How wide the interval is after `further` blocks, for noise of 1: by both of the ways it is found."""
    if model.noise is None or blocks < 2:
        return math.inf
    count = blocks + further
    alpha = alpha_of(count)
    shared = t_quantile(1 - alpha / len(model.finalists) / 2, model.noise.df + further)
    return max(shared, t_quantile(1 - alpha / 2, count - 1)) / math.sqrt(count)


def _sum_s(records: Sequence[TrialRecord], start: int) -> float:
    return sum(map(took_s, records[start:]))


def _after_finals(records: Sequence[TrialRecord]) -> int:
    """Where the trials begin that come after the last launch of finals."""
    return next((i + 1 for i in reversed(range(len(records))) if records[i].origin is Origin.FINAL), 0)


def _before_finals(records: Sequence[TrialRecord]) -> int:
    """Where the launches of finals begin that the records end in."""
    return next((i + 1 for i in reversed(range(len(records))) if records[i].origin is not Origin.FINAL), 0)
