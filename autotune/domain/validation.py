"""What the installed vLLM says of a configuration without being launched with it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.domain.space import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """It builds its own configuration of it. `effective` is what that comes to, under names of its own: equal
    for two configurations that are one to it. Empty where that could not be read."""

    effective: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A launch would end with this error. `text` is what vLLM writes, its last line the message."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotKnown:
    """Nothing can be said, and only a launch can tell."""

    why: str


Validation = Accepted | Refused | NotKnown
