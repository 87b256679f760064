"""Whether a search still finds anything: the stop that is asked for with `--patience`."""

from collections.abc import Sequence

from autotune.decide.hypervolume import growth
from autotune.decide.ranking import candidates
from autotune.domain.metric_limit import MetricLimit
from autotune.domain.objective import Objective
from autotune.domain.trial import Abandoned, TrialRecord

GAIN = 0.01
"""By which share the best, or with several objectives the volume of the front, has to grow to count."""


def is_spent(
    records: Sequence[TrialRecord],
    objectives: Sequence[Objective],
    limits: Sequence[MetricLimit],
    patience: int,
) -> bool:
    """Whether the last `patience` configurations that worked brought together no gain of more than `GAIN`.

    Never where it is 0, and not before there were more of them than that.
    """
    if patience < 1:
        return False
    found = candidates(records, objectives, limits)
    grown = growth([candidate for candidate in found if candidate.keeps_limits], objectives)
    worked = sorted(
        [candidate.record.number for candidate in found]
        + [record.number for record in records if isinstance(record.outcome, Abandoned)]
    )
    if grown is None or len(worked) <= patience:
        return False
    before = max((v for number, v in grown.steps if number < worked[-patience]), default=0.0)
    return grown.steps[-1][1] <= (1 + GAIN) * before
