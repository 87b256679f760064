"""A study: one model, one space, one workload, and the trials made for them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.domain.imported import Imported
from autotune.domain.machine import Environment
from autotune.domain.metric_limit import MetricLimit
from autotune.domain.objective import Objective
from autotune.domain.refusal import Grounds
from autotune.domain.space import Json, SearchSpace
from autotune.domain.start import StartPoint
from autotune.domain.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long each part of a trial may take, in seconds, and what it may do to the machine."""

    startup_s: float = 900.0
    smoke_s: float = 120.0
    stop_grace_s: float = 10.0
    """From SIGTERM to SIGKILL: an idle vLLM goes in about 1 s."""
    retries: int = 1
    """Further tries of one configuration after a fault that was not its own."""
    isolation_launches: int = 6
    """Launches that finding out which settings conflict may take, for one failure; 0 for none."""
    control_every: int = 6
    """The baseline is measured again after so many trials of the search; 0 for never."""
    finalists: int = 4
    """Configurations that at most are measured again beside the baseline; 0 for no finals."""
    patience: int = 0
    """The search ends when so many configurations in a row that worked brought no gain; 0 for never."""
    max_blocks: int = 8
    """How often at most each finalist and the baseline are measured in finals; at least 2."""
    memory_floor_bytes: int | None = None
    """A server is ended at once when less memory than this is available on its machine, which might else
    stop answering; None for the larger of 512 MiB and 3 % of the memory, 0 for no such watch."""

    @property
    def stop_reserve_s(self) -> float:
        """Kept of a budget to end the last server: the grace, SIGKILL, the proof that all is gone."""
        return self.stop_grace_s + 5.0


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
    metric_limits: tuple[MetricLimit, ...] = ()
    """What a configuration must keep to be chosen."""
    starts: tuple[StartPoint, ...] = ()
    """Tried first, in this order, after the baseline."""
    architecture: str | None = None
    """Of the model; None where it is not known."""
    imported: Imported | None = None
    """The file that it was begun from."""
    allows_drift: bool = False
    """Whether a configuration that changes the model's answers may be chosen."""


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
    architecture: str | None = None
    """Of the model; None where it is not known."""
    metric_limits: tuple[MetricLimit, ...] = ()
    refused: Mapping[Grounds, int] = field(default_factory=dict)
    """How many configurations that came up were not launched, by what refused them, in all invocations."""
    imported: Imported | None = None
    """The file that it was begun from."""
    allows_drift: bool = False
    """Whether a configuration that changes the model's answers may be chosen."""

    @property
    def refusals(self) -> int:
        """All of them."""
        return sum(self.refused.values())

    @property
    def space_name(self) -> str:
        """What the search space is called."""
        return str(self.space["name"])
