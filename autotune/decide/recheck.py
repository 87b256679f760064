"""Which failures of a study another vLLM may have cured, and what running one of them again has shown."""

import re
from collections.abc import Sequence
from itertools import zip_longest

from autotune.domain.failure import Blame, Failure, FailureKind, Phase
from autotune.domain.recheck import Verdict
from autotune.domain.trial import Abandoned, Failed, Interrupted, Measured, Outcome, TrialRecord

_KINDS = (
    FailureKind.INCOMPATIBLE,
    FailureKind.UNSUPPORTED,
    FailureKind.ENGINE_CRASH,
    FailureKind.UNKNOWN,
)
UNKNOWN_WORDS = (
    "flag-unknown",
    "flag-unknown-parser",
    "flag-invalid-choice",
    "value-unknown-to-vllm",
    "env-unknown",
)
"""Rules of flags and values that one version does not know and another may."""

_VARYING = re.compile(r"0x[0-9a-fA-F]+|\d+")


def to_recheck(records: Sequence[TrialRecord]) -> tuple[TrialRecord, ...]:
    """The last failed trial of each configuration that a bug, an incompatibility or a missing feature ended.

    One of each failure comes first, so that little time tells most. What worked in another trial is left out.
    """
    worked = {r.configuration.digest for r in records if r.works}
    last: dict[str, TrialRecord] = {}
    for record in records:
        if _is_curable(record.failure) and record.configuration.digest not in worked:
            last[record.configuration.digest] = record
    groups: dict[tuple[str, ...], list[TrialRecord]] = {}
    for record in last.values():
        if record.failure is not None:
            groups.setdefault(_identity(record.failure), []).append(record)
    rounds = zip_longest(*groups.values())
    return tuple(record for one in rounds for record in one if record is not None)


def streams_to_recheck(record: TrialRecord, ladder: Sequence[int]) -> tuple[int, ...]:
    """The stream counts to measure: one stream, and the count at which `record` failed under load."""
    if record.failure is None or record.failure.phase is not Phase.SERVING:
        return (1,)
    measured = {point.streams for point in record.points}
    failed_at = next((streams for streams in ladder if streams not in measured), 1)
    return tuple(sorted({1, failed_at}))


def judge(before: Failure, outcome: Outcome) -> tuple[Verdict, Failure | None]:
    """What `outcome` says of settings that failed with `before`, and the failure it was now."""
    match outcome:
        case Measured() | Abandoned():
            return Verdict.WORKS, None
        case Interrupted():
            return Verdict.UNDECIDED, None
        case Failed(failure=failure) if failure.blame not in (Blame.CONFIGURATION, Blame.UNKNOWN):
            return Verdict.UNDECIDED, failure
        case Failed(failure=failure):
            same = _identity(failure) == _identity(before)
            return Verdict.STILL_FAILS if same else Verdict.FAILS_OTHERWISE, failure


def _is_curable(failure: Failure | None) -> bool:
    if failure is None or failure.blame not in (Blame.CONFIGURATION, Blame.UNKNOWN):
        return False
    return failure.kind in _KINDS or failure.rule in UNKNOWN_WORDS


def _identity(failure: Failure) -> tuple[str, ...]:
    """What two failures share that are the same: the rule, or without one the error but for its numbers."""
    if failure.rule is not None:
        return (failure.rule,)
    # How far it came tells apart what no line does: a crash of compiled code, an end without a word.
    return (failure.kind, failure.phase, _VARYING.sub("#", failure.root_line or ""))
