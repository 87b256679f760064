"""What went wrong in a trial, in the words that decide what happens next."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from autotune.domain.aftermath import Aftermath


class FailureKind(StrEnum):
    """What happened."""

    GPU_OOM = "gpu_oom"
    KV_CACHE_TOO_SMALL = "kv_cache_too_small"
    MEMORY_BUSY = "memory_busy"
    HOST_OOM = "host_oom"
    BAD_FLAG = "bad_flag"
    INCOMPATIBLE = "incompatible"
    UNSUPPORTED = "unsupported"
    MODEL_ACCESS = "model_access"
    ENVIRONMENT = "environment"
    STALL = "stall"
    ENGINE_CRASH = "engine_crash"
    CLIENT = "client"
    SILENT = "silent"
    UNKNOWN = "unknown"


class Phase(StrEnum):
    """How far the server had come, in this order."""

    ARGS = "args"
    CONFIG = "config"
    DEVICE = "device"
    WEIGHTS = "weights"
    QUANTIZE = "quantize"
    PROFILE = "profile"
    KV_CACHE = "kv_cache"
    GRAPHS = "graphs"
    FIRST_REQUEST = "first_request"
    SERVING = "serving"
    STOP = "stop"


class Blame(StrEnum):
    """Who has to change something; decides what the sampler is told and whether the study goes on."""

    CONFIGURATION = "configuration"
    """These settings: infeasible for the sampler, never launched again."""
    ENVIRONMENT = "environment"
    """The machine at that moment: tried again a bounded number of times, nothing learned."""
    USER = "user"
    """The request as a whole (no such model, no access): the study stops and says so."""
    HARNESS = "harness"
    """autotune: the study stops."""
    UNKNOWN = "unknown"
    """Not to be told from the evidence: treated as the configuration, and flagged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A named failure with its evidence. `line_number` counts the log's lines from 1."""

    kind: FailureKind
    phase: Phase
    blame: Blame
    why: str
    """The reason in plain words, for the person who reads it in the morning."""
    cure: str
    """What to change; empty when nothing is known."""
    rule: str | None = None
    """The signature that named it; None when it follows from how the process behaved."""
    root_line: str | None = None
    line_number: int | None = None
    process: str | None = None
    numbers: Mapping[str, float | str] = field(default_factory=dict)
    """Values the log gave, named as in the rule."""
    source: str | None = None
    """A public thread or source where the rule comes from."""
    confidence: float = 1.0
    """0 to 1: how sure the naming is."""
    frames: tuple[str, ...] = ()
    """Up to five functions of the traceback, the innermost last, as `function (file:line)`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that is known of a server that ended badly: what the log does not say, and the log.

    `exit_code` is None while the process lives and negative for a signal, as in `subprocess`.
    """

    log: str
    exit_code: int | None
    ready: bool
    """`/health` had answered 200."""
    served: bool
    """A real completion had come back."""
    timed_out: bool = False
    """It was stopped because a deadline had passed."""
    client_error: str | None = None
    """What the client saw, when a request failed."""
    stop_requested: bool = False
    """autotune had begun to stop it, so what its log says after that proves nothing."""
    aftermath: Aftermath = field(default_factory=Aftermath)
    """What was seen of it from outside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something a log says that is no failure: a setting without effect, a fault that was survived."""

    rule: str
    why: str
    line: str | None = None
    line_number: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFinding:
    """What a log alone says. `failure` is None when it shows none, of kind `unknown` when no rule fits."""

    failure: Failure | None
    phase: Phase
    """How far the server came, by its own words."""
    ready: bool
    """It said that it accepts requests."""
    served: bool
    """It answered a completion with status 200."""
    stopped: bool
    """It was told to stop."""
    version: str | None
    """Of vLLM, when the log names it."""
    lines: int
    run: int = 1
    """Which start of the server this is about, from 1; a container's log often holds several."""
    runs: int = 1
    notices: tuple[Notice, ...] = ()
