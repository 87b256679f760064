"""What a failure forbids: which configurations need not be launched any more, and who found that out.

A lesson speaks of settings by the names vLLM has for them (`autotune.domain.launch.settings`), not by those
of a search space, so that it holds for another space too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from autotune.domain.expression import Expression
from autotune.domain.failure import FailureKind
from autotune.domain.space import Value
from autotune.errors import ExpressionError


class LessonForm(StrEnum):
    """How much a lesson forbids."""

    BOUND = "bound"
    """A region: everything that asks for at least as much with at most as much to have it from."""
    NO_GOOD = "no_good"
    """Settings that do not go together, each of which may be fine alone."""
    BAN = "ban"
    """A value that this vLLM, or this device, does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Where something was found out: what a lesson holds for."""

    vllm_version: str
    model: str
    architecture: str
    """Of the model; its name where the architecture is not known."""
    device: str


class Standing(StrEnum):
    """Whether a lesson counts in a study, and if not, why."""

    APPLIES = "applies"
    FORGOTTEN = "forgotten"
    """By the user's wish."""
    EXPIRED = "expired"
    """Taught by another version of vLLM, which may have had the fault."""
    ELSEWHERE = "elsewhere"
    """Taught with another model or on another device."""
    REFUTED = "refuted"
    """A configuration that it forbids has been measured: success beats a lesson."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is forbidden: a configuration whose settings make `forbids` true."""

    form: LessonForm
    forbids: Expression
    while_unset: frozenset[str] = frozenset()
    """Settings that were left to vLLM when it was found, and must be for it to hold: whether another value
    would help was not tried."""

    def rejects(self, settings: Mapping[str, Value]) -> bool:
        """Whether a configuration with these settings is forbidden; what is not known never is."""
        if not self.while_unset.isdisjoint(settings):
            return False
        try:
            return self.forbids.holds(settings, absent=False)
        except ExpressionError:  # a value of another sort than the one that taught: nothing is known of it
            return False

    def __str__(self) -> str:
        source = self.forbids.source
        return source.replace(" and ", " while ", 1) if self.form is LessonForm.BOUND else source


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """A finding and where it comes from. `number` counts the lessons of one study file from 1."""

    number: int
    finding: Finding
    why: str
    kind: FailureKind
    trial: int
    study: str
    scope: Scope
    forgotten: bool = False

    def holds_in(self, scope: Scope) -> bool:
        """Whether it was taught under `scope`, the version of vLLM aside.

        How much memory something takes depends on the very model, what goes together on its architecture.
        """
        same = self.scope.architecture == scope.architecture and self.scope.device == scope.device
        return same and (self.finding.form is not LessonForm.BOUND or self.scope.model == scope.model)
