"""What the loop does next, concluded from the trials so far: start, try again, or end."""

from collections.abc import Sequence
from statistics import median

from autotune.domain.failure import Blame
from autotune.domain.space import Configuration
from autotune.domain.trial import Failed, Interrupted, Interruption, Measured, TrialRecord

FAULTS_IN_A_ROW = 3
"""Environment faults after which the machine, not chance, is to blame."""


def expected_trial_s(records: Sequence[TrialRecord]) -> float | None:
    """How long a trial takes, by the median of those fully measured; None before the first."""
    durations = [sum(r.step_s.values()) for r in records if isinstance(r.outcome, Measured)]
    return median(durations) if durations else None


def worth_starting(records: Sequence[TrialRecord], left_s: float) -> bool:
    """Whether a trial begun now can be expected to end within `left_s` seconds.

    Before the first has been measured there is nothing to expect, and trying is all one can do.
    """
    expected_s = expected_trial_s(records)
    return left_s > 0 and (expected_s is None or expected_s <= left_s)


def due_retry(records: Sequence[TrialRecord], retries: int) -> Configuration | None:
    """The earliest configuration whose last try was cut short by something not its own doing.

    One broken off by the budget or the user, or ended by something the user has to mend, is due when the
    study goes on. One that met a fault of the machine, or during which autotune was killed, is due `retries`
    times: the configuration may be what kills the machine.
    """
    tries: dict[str, list[TrialRecord]] = {}
    for record in records:
        tries.setdefault(record.configuration.digest, []).append(record)
    for history in tries.values():
        faults = sum(_is_fault(record) for record in history)
        last = history[-1]
        if _is_due_when_continued(last) or (_is_fault(last) and faults <= retries):
            return last.configuration
    return None


def _is_due_when_continued(record: TrialRecord) -> bool:
    match record.outcome:
        case Failed(failure=failure):
            return failure.blame in (Blame.USER, Blame.HARNESS)
        case Interrupted(reason=reason):
            return reason is not Interruption.KILLED
        case _:
            return False


def _is_fault(record: TrialRecord) -> bool:
    match record.outcome:
        case Failed(failure=failure):
            return failure.blame is Blame.ENVIRONMENT
        case Interrupted(reason=reason):
            return reason is Interruption.KILLED
        case _:
            return False


def stopping_failure(records: Sequence[TrialRecord]) -> Failed | None:
    """The failure after which this invocation, whose trials `records` are, need not go on; None if it may.

    That is one the user or autotune has to mend, or `FAULTS_IN_A_ROW` faults of the machine in a row.
    """
    last = records[-1].outcome if records else None
    if not isinstance(last, Failed):
        return None
    if last.failure.blame in (Blame.USER, Blame.HARNESS):
        return last
    recent = records[-FAULTS_IN_A_ROW:]
    in_a_row = len(recent) == FAULTS_IN_A_ROW and all(
        isinstance(r.outcome, Failed) and r.outcome.failure.blame is Blame.ENVIRONMENT for r in recent
    )
    return last if in_a_row else None
