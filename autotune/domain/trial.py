"""A trial: one configuration, launched, measured or failed, and everything kept about it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from autotune.domain.effective import Effective
from autotune.domain.failure import Failure
from autotune.domain.fill import Fill
from autotune.domain.measurement import Point
from autotune.domain.output import Output
from autotune.domain.refusal import Refusal
from autotune.domain.space import Configuration


class Origin(StrEnum):
    """Why a configuration was tried."""

    BASELINE = "baseline"
    """vLLM's own defaults (with the space's fixed settings): always trial 0."""
    FLIP = "flip"
    """The baseline with one setting changed, as a start point of the search."""
    EXPERT = "expert"
    """A start point from what is known to be good for some use."""
    SAMPLED = "sampled"
    """Chosen by the sampler."""
    LOCAL = "local"
    """A neighbour of one of the best so far."""
    AUDIT = "audit"
    """What the memory estimate refuses, launched to learn whether it is wrong."""
    RETRY = "retry"
    """The same settings once more, after a fault that was not, or perhaps not, theirs."""
    ISOLATION = "isolation"
    """A failed configuration with one setting taken back, to find out which settings conflict."""
    CONTROL = "control"
    """The baseline once more, in the course of the search: shows how much this machine varies by itself."""
    FINAL = "final"
    """A finalist, or the baseline beside it, in a block of the finals."""
    ABLATION = "ablation"
    """The winner, or the winner with one setting back at its default, in a block of an ablation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What to try next, and why; `refused` says why others, drawn before it, are not launched.

    `block` numbers the blocks of the finals from 0; None outside them.
    """

    configuration: Configuration
    origin: Origin
    refused: tuple[Refusal, ...] = ()
    block: int | None = None


class Step(StrEnum):
    """What a running trial is doing, in this order."""

    LAUNCH = "launch"
    SMOKE = "smoke"
    MEASURE = "measure"
    STOP = "stop"


class Interruption(StrEnum):
    """Why a trial was broken off without a verdict on its settings."""

    BUDGET = "budget"
    USER = "user"
    KILLED = "killed"
    """autotune itself was killed; found when the study was opened again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The whole ladder was measured; one point for each stream count."""

    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandoned:
    """The settings work, and what was measured rules them out; `points` are those measured before.

    `why` is one sentence.
    """

    why: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The settings did not work here; `points` are those measured before."""

    failure: Failure
    points: tuple[Point, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted:
    """Broken off: says nothing about the settings."""

    reason: Interruption
    points: tuple[Point, ...] = ()


Outcome = Measured | Abandoned | Failed | Interrupted


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    """A trial as it is kept; `outcome` is None while it runs. Times are UTC, durations seconds."""

    number: int
    origin: Origin
    configuration: Configuration
    argv: tuple[str, ...]
    """The server's words without host and port, which differ from launch to launch."""
    env: Mapping[str, str]
    """The variables that belong to the configuration, not those autotune adds for its own ends."""
    started_at: datetime
    finished_at: datetime | None = None
    step_s: Mapping[Step, float] = field(default_factory=dict)
    """How long each step took."""
    log_path: str | None = None
    outcome: Outcome | None = None
    effective: Effective | None = None
    """What vLLM made of the settings; None until it was read back."""
    block: int | None = None
    """The block of the finals it belongs to."""
    outputs: tuple[Output, ...] = ()
    """Its greedy answers to the fixed prompts; empty where it was not asked."""
    fills: tuple[Fill, ...] = ()
    """What of its context it was seen to serve, in rising stream counts; empty where that was not tried."""

    @property
    def points(self) -> tuple[Point, ...]:
        """The points measured, in rising stream counts."""
        return self.outcome.points if self.outcome else ()

    @property
    def works(self) -> bool:
        """Whether its settings have shown that they work."""
        return isinstance(self.outcome, Measured | Abandoned)

    @property
    def failure(self) -> Failure | None:
        """Why it failed; None unless it did."""
        return self.outcome.failure if isinstance(self.outcome, Failed) else None

    @property
    def context_tokens(self) -> int | None:
        """The context it allows: what vLLM took, or where that is not known what was asked for."""
        for known in (self.effective.facts if self.effective else {}, self.configuration.values):
            value = known.get("max_model_len")
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
        return None
