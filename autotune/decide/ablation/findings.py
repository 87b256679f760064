"""What an ablation has found: of each setting what it is worth, and of the winner what it can do without."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from autotune.decide.ablation.variants import Variant
from autotune.decide.blocks import LOOKS
from autotune.decide.race import is_equivalent
from autotune.domain.difference import Difference
from autotune.domain.space import Configuration
from autotune.domain.trial import TrialRecord


class Need(StrEnum):
    """What is known of a setting."""

    NEEDED = "needed"
    """Without it an objective is worse beyond doubt, or the server does not work."""
    HARMFUL = "harmful"
    """Without it an objective is better beyond doubt, and none is worse."""
    NO_DIFFERENCE = "no_difference"
    """None was shown."""
    NOT_MEASURED = "not_measured"
    """Not in enough blocks, or in none."""


class Standing(StrEnum):
    """What is known of a reduced configuration."""

    OPEN = "open"
    AS_GOOD = "as_good"
    WORSE = "worse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """One setting. `differences`, by objective, are of the winner to it without the setting: above 1 the
    setting does good. `overall` is that of all objectives (geometric mean). `why` says what else is known.
    """

    variant: Variant
    need: Need
    blocks: int
    launches: int
    """In an ablation, those that failed among them."""
    overall: Difference | None = None
    differences: Mapping[str, Difference]
    why: str | None = None

    @property
    def decided(self) -> bool:
        """Whether more blocks would tell nothing new of it alone. Decided is only at a look."""
        if self.why is not None or self.blocks >= LOOKS[-1]:
            return True
        sure = self.need in (Need.NEEDED, Need.HARMFUL) or (
            bool(self.differences) and all(map(is_equivalent, self.differences.values()))
        )
        return self.blocks in LOOKS and sure


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """The winner without the parameters `dropped`; differences are of it to the winner, more is better."""

    dropped: tuple[str, ...]
    configuration: Configuration
    standing: Standing
    blocks: int
    record: TrialRecord | None
    """Its first launch that was measured."""
    overall: Difference | None
    differences: Mapping[str, Difference]
    why: str | None = None
    """Why it is worse, where no difference tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ablation:
    """What is known of the settings of `winner`. Of the reductions `tried` all but the last are worse."""

    winner: TrialRecord
    worths: tuple[Worth, ...]
    tried: tuple[Reduction, ...]
    blocks: int
    """That the winner was in for it."""

    @property
    def reduced(self) -> Reduction | None:
        """What can be deployed in place of the winner; None where nothing was shown to be droppable."""
        last = self.tried[-1] if self.tried else None
        return last if last is not None and last.standing is Standing.AS_GOOD else None

    def worth(self, setting: str) -> Worth | None:
        """Of this parameter; None where there is none."""
        return next((worth for worth in self.worths if worth.variant.setting == setting), None)
