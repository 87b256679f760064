"""How much each setting mattered for an objective."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Importance:
    """`shares` are by parameter, the largest first, and add up to 1.

    `beyond_chance` names those so large that in fewer than 1 of 20 studies a parameter that does not matter
    would come to as much. Both are empty, and `missing` says why, where there is too little to tell.
    """

    shares: Mapping[str, float] = field(default_factory=dict)
    beyond_chance: frozenset[str] = frozenset()
    missing: str | None = None
