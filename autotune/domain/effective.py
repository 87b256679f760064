"""What vLLM made of the settings of a trial, as its log and its metrics tell it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from autotune.domain.measurement import Point
from autotune.domain.space import Value


class DifferenceKind(StrEnum):
    """What became of a setting that was asked for."""

    NO_EFFECT = "no_effect"
    """It was accepted, and nothing came of it."""
    CHANGED = "changed"
    """vLLM took another value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A setting that is not what was asked for. `effective` is None where no line gives a value for it."""

    setting: str
    """A flag's name with underscores, or the name of a variable."""
    requested: Value
    effective: Value | None
    kind: DifferenceKind
    sentence: str
    """What happened instead, in plain words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """Facts by name, with the unit in the name; one that neither log nor metrics gave is absent."""

    facts: Mapping[str, Value] = field(default_factory=dict)
    differences: tuple[Difference, ...] = ()
    """Settings without effect first."""

    @property
    def without_effect(self) -> tuple[str, ...]:
        """The settings that had no effect."""
        return tuple(d.setting for d in self.differences if d.kind is DifferenceKind.NO_EFFECT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerMetrics:
    """One look at a server's `/metrics`. `totals` are summed over all labels, so over all engines."""

    totals: Mapping[str, float]
    labels: Mapping[str, Mapping[str, str]]
    """Labels of the metrics whose name ends in `_info`: they hold settings, their value is always 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What is left of a server to be read back. `argv` and `env` are what it was started with."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    log: str
    metrics: ServerMetrics | None
    points: tuple[Point, ...] = ()
