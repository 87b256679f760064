"""Where a search begins, beside the baseline: configurations that are known to be worth a launch."""

from dataclasses import dataclass

from autotune.domain.space import Configuration
from autotune.domain.trial import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPoint:
    """`origin` is `FLIP` or `EXPERT`; `why` is a sentence for the user."""

    configuration: Configuration
    origin: Origin
    why: str
