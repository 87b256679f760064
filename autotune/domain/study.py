"""A study: one model, one space, one workload, and the trials made for them."""

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.domain.machine import Environment
from autotune.domain.objective import Objective
from autotune.domain.space import Json, SearchSpace
from autotune.domain.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long each part of a trial may take, in seconds, and how often a fault is tried again."""

    startup_s: float = 900.0
    smoke_s: float = 120.0
    stop_grace_s: float = 10.0
    """From SIGTERM to SIGKILL: an idle vLLM goes in about 1 s."""
    retries: int = 1
    """Further tries of one configuration after a fault that was not its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySpec:
    """What must stay the same for as long as a study goes on."""

    name: str
    model: str
    space: SearchSpace
    workload: Workload
    objectives: tuple[Objective, ...]
    seed: int = 0
    limits: Limits = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyInfo:
    """A study as it is kept: what it is about and where it was made."""

    name: str
    model: str
    space: Mapping[str, Json]
    """The content of its search space's file."""
    space_digest: str
    workload: Workload
    objectives: tuple[Objective, ...]
    seed: int
    environment: Environment
    spent_s: float = 0.0
    """Wall-clock time of all invocations so far."""

    @property
    def space_name(self) -> str:
        """What the search space is called."""
        return str(self.space["name"])
