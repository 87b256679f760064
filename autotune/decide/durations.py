"""How long a trial takes, learned from those so far: its launch and all that follows apart.

A launch depends on what has to be compiled and captured, a measurement on the ladder. So launches of the same
kind are what a launch is expected by, and all ladders what a ladder is.
"""

from collections.abc import Collection, Sequence
from statistics import quantiles

from autotune.domain.space import Configuration
from autotune.domain.trial import Measured, Step, TrialRecord

_EAGER_FLAGS = {"--enforce-eager", "--enforce_eager"}
_SAME_KIND = 3
"""Launches of one kind from which on it is judged by itself."""


def cautious_s(
    records: Sequence[TrialRecord],
    configuration: Configuration | None = None,
    flags: Collection[str] | None = None,
) -> float | None:
    """How long to allow for the next trial: what three of four like it kept to. None before the first.

    Of a `configuration` that was measured its own trials count. Else it is the launches of its kind, by the
    server's `flags` with or without compiling, and the ladders of all; of the quicker kind where nothing is
    known of the next trial.
    """
    measured = [record for record in records if isinstance(record.outcome, Measured)]
    if not measured:
        return None
    if own := [took_s(record) for record in measured if record.configuration == configuration]:
        return _upper_quartile(own)
    after_s = _upper_quartile([took_s(record) - _launch_s(record) for record in measured])
    kinds = (True, False) if flags is None else (_is_eager(flags),)
    return after_s + min(_kind_s(records, is_eager=kind) for kind in kinds)


def took_s(record: TrialRecord) -> float:
    """How long all its steps took."""
    return sum(record.step_s.values())


def _kind_s(records: Sequence[TrialRecord], *, is_eager: bool) -> float:
    """Of launches that came to their end; of all of them where there are few of that kind."""
    ready = [r for r in records if isinstance(r.outcome, Measured) or Step.SMOKE in r.step_s]
    same = [record for record in ready if _is_eager(record.argv) is is_eager]
    return _upper_quartile([_launch_s(record) for record in (same if len(same) >= _SAME_KIND else ready)])


def _is_eager(words: Collection[str]) -> bool:
    return any(word in _EAGER_FLAGS for word in words)


def _launch_s(record: TrialRecord) -> float:
    return record.step_s.get(Step.LAUNCH, 0.0)


def _upper_quartile(values: Sequence[float]) -> float:
    return quantiles(values, n=4, method="inclusive")[2] if len(values) > 1 else values[0]
