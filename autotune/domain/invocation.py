"""One call of `autotune run`: a study can be made in several."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """When it began, how long it might take and took; None while it runs, and of one that was killed."""

    began_at: datetime
    budget_s: float
    spent_s: float | None = None
