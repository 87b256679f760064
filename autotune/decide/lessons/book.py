"""What can be learned from which failure, as data: `autotune/rules/lessons.toml` holds it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.domain.failure import Failure, FailureKind, Phase
from autotune.domain.lesson import LessonForm
from autotune.domain.space import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """In which direction each setting makes a failure more certain: all configurations at least that bad.

    A setting that was left to vLLM has an unknown value, so that the region holds only while it is.
    """

    at_most: tuple[str, ...] = ()
    """What there is less of: a smaller value fails all the more."""
    at_least: tuple[str, ...] = ()
    """What is asked for: a larger value fails all the more."""
    same: tuple[str, ...] = ()
    """Has an effect of which the direction is not known."""
    extra: tuple[str, ...] = ()
    """What only adds to the demand, and adds nothing where it is not set."""
    free: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    """Values of `extra` settings that add nothing either."""

    @property
    def decisive(self) -> frozenset[str]:
        """Settings whose value counts even where vLLM chooses it."""
        return frozenset((*self.at_most, *self.at_least, *self.same))


@dataclass(frozen=True, slots=True, kw_only=True)
class Teaching:
    """One way to make a lesson of a failure, which one of `rules` named, or of `kind` at one of `phases`."""

    form: LessonForm
    rules: frozenset[str] = frozenset()
    kind: FailureKind | None = None
    phases: frozenset[Phase] = frozenset()
    when_set: tuple[str, ...] = ()
    """Only if the configuration sets one of these."""
    forbids: tuple[str, ...] = ()
    """Expressions, of which the first that is true of the configuration counts; `{name}` is a number of the
    failure."""
    same: tuple[str, ...] = ()
    """The settings that conflict, all of which the configuration must set."""
    named_by: str | None = None
    """The number of the failure that holds the flags or the variable it complains of."""
    valued_by: str | None = None
    """The number of the failure that holds the value it complains of."""
    any_value: bool = False
    """With `named_by`: whatever the value."""
    region: Region | None = None
    """The lesson holds within this region."""

    def fits(self, failure: Failure, settings: Mapping[str, Value]) -> bool:
        """Whether this is how to learn from `failure` of a configuration with these settings."""
        named = failure.rule in self.rules
        of_kind = failure.kind is self.kind and (not self.phases or failure.phase in self.phases)
        return (named or of_kind) and (not self.when_set or any(name in settings for name in self.when_set))


@dataclass(frozen=True, slots=True, kw_only=True)
class LessonBook:
    """All of it: the first entry that yields a lesson counts."""

    teachings: tuple[Teaching, ...]
