"""A recheck: a configuration that failed in a study, run again to see whether it still does."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from autotune.domain.failure import Failure


class Verdict(StrEnum):
    """What became of it."""

    WORKS = "works"
    """The server started, answered, and went through what it had failed at."""
    STILL_FAILS = "still_fails"
    FAILS_OTHERWISE = "fails_otherwise"
    """It fails, and for another reason than before."""
    UNDECIDED = "undecided"
    """The machine got in the way, or autotune was killed: nothing is known of these settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recheck:
    """One run again. Times are UTC; `failure` is None unless it failed."""

    trial_number: int
    vllm_version: str
    started_at: datetime
    finished_at: datetime
    verdict: Verdict
    failure: Failure | None = None
    log_path: str | None = None
