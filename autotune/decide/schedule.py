"""What the loop does next, concluded from the trials so far: start, try again, or end."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from statistics import median

from autotune.decide.durations import cautious_s, took_s
from autotune.domain.failure import Blame, Failure, FailureKind
from autotune.domain.launch import settings
from autotune.domain.space import Configuration, SearchSpace, Value
from autotune.domain.trial import Failed, Interrupted, Interruption, Measured, Origin, Outcome, TrialRecord

FAULTS_IN_A_ROW = 3
"""Environment faults after which the machine, not chance, is to blame."""

MARGIN = 1.1
"""A KV cache that is short by no more than this may be large enough once vLLM has compiled: compiling counts
as working memory when vLLM measures how much of that it needs (vllm#54383)."""


_IN_BLOCKS = (Origin.FINAL, Origin.ABLATION)
_GIVEN_SIZES = {"kv_cache_memory_bytes", "VLLM_CPU_KVCACHE_SPACE"}


def expected_trial_s(records: Sequence[TrialRecord]) -> float | None:
    """How long a trial takes, by the median of those fully measured; None before the first."""
    durations = [took_s(record) for record in records if isinstance(record.outcome, Measured)]
    return median(durations) if durations else None


def expected_launch_s(records: Sequence[TrialRecord], configuration: Configuration) -> float | None:
    """How long another trial of `configuration` takes, by its own so far, else by all; None without any."""
    own = [record for record in records if record.configuration == configuration]
    return expected_trial_s(own) or expected_trial_s(records)


def worth_starting(
    records: Sequence[TrialRecord],
    left_s: float,
    configuration: Configuration | None = None,
    flags: Collection[str] | None = None,
) -> bool:
    """Whether a trial begun now can be expected to end within `left_s` seconds (`cautious_s`).

    Before the first has been measured there is nothing to expect, and trying is all one can do.
    """
    expected_s = cautious_s(records, configuration, flags)
    return left_s > 0 and (expected_s is None or expected_s <= left_s)


def control_due(records: Sequence[TrialRecord], every: int) -> bool:
    """Whether it is time to measure the baseline again: after `every` trials of the search without it.

    Never where `every` is 0, and not before the baseline has been measured once. Retries do not count, and
    one of the baseline that was broken off is due again.
    """
    if every < 1 or not any(isinstance(r.outcome, Measured) and not r.configuration.values for r in records):
        return False
    ran = [r for r in records if r.configuration.values or not isinstance(r.outcome, Interrupted)]
    since = takewhile(lambda record: bool(record.configuration.values), reversed(ran))
    return sum(record.origin not in (*_IN_BLOCKS, Origin.RETRY) for record in since) >= every


def worth_isolating(records: Sequence[TrialRecord], launches: int, left_s: float) -> bool:
    """Whether `launches` more trials, and one that profits from what they tell, can be expected to fit."""
    expected_s = expected_trial_s(records)
    return left_s > 0 and (expected_s is None or expected_s * (launches + 1) <= left_s)


def is_marginal(failure: Failure, given: Mapping[str, Value]) -> bool:
    """Whether a KV cache was so nearly large enough that a second start, with all compiled, may do.

    That is when at most `MARGIN` times what there was is needed, or what there was is not known. Not when the
    size of the cache was given, or nothing is compiled: then a second start is like the first.
    """
    if failure.kind is not FailureKind.KV_CACHE_TOO_SMALL or failure.blame is not Blame.CONFIGURATION:
        return False
    if given.get("enforce_eager") is True or given.keys() & _GIVEN_SIZES:
        return False
    needed, available = failure.numbers.get("needed_gib"), failure.numbers.get("available_gib")
    if isinstance(needed, float) and isinstance(available, float):
        return needed <= MARGIN * available
    return not failure.numbers.keys() & {"needed_gib", "available_gib", "estimated_len", "blocks"}


def due_warm_retry(
    records: Sequence[TrialRecord], space: SearchSpace, retries: int, forbids: Callable[[Configuration], bool]
) -> Configuration | None:
    """The earliest configuration that failed once, marginally (`is_marginal`), and no lesson forbids."""
    return next(
        (
            r.configuration
            for r in records
            if awaits_retry(r, records, space, retries) and not forbids(r.configuration)
        ),
        None,
    )


def awaits_retry(
    record: TrialRecord, records: Sequence[TrialRecord], space: SearchSpace, retries: int
) -> bool:
    """Whether a failed trial has to be tried once more before anything may be learned from it."""
    if retries < 1 or record.failure is None:
        return False
    tries = sum(other.configuration == record.configuration for other in records)
    return tries == 1 and is_marginal(record.failure, settings(space, record.configuration))


def due_retry(
    records: Sequence[TrialRecord],
    retries: int,
    forbids: Callable[[Configuration], bool] = lambda _: False,
) -> Configuration | None:
    """The earliest configuration whose last try was cut short by something not its own doing.

    One broken off by the budget or the user, or ended by something the user has to mend, is due when the
    study goes on. One that met a fault of the machine, or during which autotune was killed, is due `retries`
    times: the configuration may be what kills the machine. What a lesson `forbids` is never due, and
    controls, finals and ablations are not repeated: what they measure again has been measured.
    """
    tries: dict[str, list[TrialRecord]] = {}
    for record in records:
        if record.origin not in (Origin.CONTROL, *_IN_BLOCKS):
            tries.setdefault(record.configuration.digest, []).append(record)
    for history in tries.values():
        faults = sum(_is_fault(record) for record in history)
        last = history[-1]
        due = _is_due_when_continued(last) or (_is_fault(last) and faults <= retries)
        if due and not forbids(last.configuration):
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


def attributed(outcome: Outcome, records: Sequence[TrialRecord]) -> Outcome:
    """`outcome`, with a failure blamed on the user laid to the configuration once anything was measured.

    Model, access and workload are fine then. What is missing or wrong belongs to the settings of this trial,
    a draft model for example, and is no reason to end the night.
    """
    if not isinstance(outcome, Failed) or outcome.failure.blame is not Blame.USER:
        return outcome
    if not any(isinstance(record.outcome, Measured) for record in records):
        return outcome
    return replace(outcome, failure=replace(outcome.failure, blame=Blame.CONFIGURATION))


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
