"""What the time that is left is for: about so many trials of the search, then finals of so many launches."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from autotune.decide.blocks import LOOKS
from autotune.decide.durations import took_s
from autotune.decide.finals import LEAST_BLOCKS, MARGIN, reserved_s
from autotune.decide.rounds import round_s
from autotune.decide.schedule import expected_trial_s
from autotune.domain.study import Limits
from autotune.domain.trial import Origin, TrialRecord

MUCH = 0.2
"""A plan that differs by less than this share from one that was told is the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Of the `left_s` seconds: `search_trials`, then `finals_blocks` that are `finals_launches` together.

    No finals are 0 of both. Finals may take more blocks than these, and what is left after them is searched
    again.
    """

    left_s: float
    search_trials: int
    trial_s: float
    """How long a trial of the search takes on average, failed ones included."""
    finals_blocks: int
    finals_launches: int
    finals_s: float

    def is_like(self, other: "Plan") -> bool:
        """Whether both have as many launches in finals, and about as many trials until they end."""
        done = max(0.0, other.left_s - self.left_s) / other.trial_s
        drift = abs(self.search_trials + done - other.search_trials)
        return self.finals_launches == other.finals_launches and drift <= max(2.0, MUCH * other.search_trials)


def plan(records: Sequence[TrialRecord], left_s: float, limits: Limits) -> Plan | None:
    """The plan of the present round; None before the first trial that was measured.

    It takes finals to have as many finalists as may be. While the search has found fewer it keeps less time
    for them, and begins some trials more.
    """
    launch_s = expected_trial_s(records)
    if launch_s is None:
        return None
    count = limits.finalists
    budget_s, least_s = round_s(records, left_s), MARGIN * LEAST_BLOCKS * 2 * launch_s
    reserve_s = reserved_s(budget_s, least_s, (1 + count) * launch_s) if count else 0.0
    blocks, launches = _fitting(min(reserve_s, left_s), launch_s, limits)
    trial_s = fmean(took_s(r) for r in records if r.outcome is not None and r.origin is not Origin.FINAL)
    return Plan(
        left_s=left_s,
        search_trials=int(max(0.0, left_s - reserve_s) / trial_s),
        trial_s=trial_s,
        finals_blocks=blocks,
        finals_launches=launches,
        finals_s=launches * launch_s,
    )


def _fitting(time_s: float, launch_s: float, limits: Limits) -> tuple[int, int]:
    """Blocks and launches of the finals that fit: with as many finalists as can be."""
    wanted = min(LOOKS[0], limits.max_blocks)
    for finalists, blocks in [*((n, wanted) for n in range(limits.finalists, 0, -1)), (1, LEAST_BLOCKS)]:
        launches = blocks * (1 + finalists)
        if launches * launch_s <= time_s:
            return blocks, launches
    return 0, 0
