"""What the machine, the installed vLLM and the model are: facts, read by `autotune.host`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from autotune.domain.model_shape import ModelShape


class Device(StrEnum):
    """What vLLM computes on."""

    CPU = "cpu"
    CUDA = "cuda"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU as its driver names it."""

    index: int
    name: str
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Processor, memory and GPUs. `cpu_ids` are those this process may run on."""

    hostname: str
    cpu_model: str
    cpu_ids: tuple[int, ...]
    memory_bytes: int
    """Of the machine, or of the container's limit where that is lower."""
    kernel: str
    driver: str | None = None
    gpus: tuple[Gpu, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagFact:
    """One `vllm serve` flag as its own parser declares it; `choices` is None where anything goes."""

    name: str
    choices: tuple[str, ...] | None = None
    default: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmInstall:
    """A vLLM that answers: how to start it and what it is."""

    command: tuple[str, ...]
    """The words before `serve`."""
    python: str | None
    """The interpreter it runs in; None when that cannot be told (a wrapper script)."""
    version: str
    torch_version: str | None
    device: Device
    flags: Mapping[str, FlagFact] | None = field(default=None)
    """By option string, `--no-x` included; None when this vLLM could not be asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What can be known of a model without loading it; None where its config is not on this machine."""

    name: str
    """As given to `vllm serve`."""
    architecture: str | None = None
    max_model_len: int | None = None
    """Longest context the model was made for, tokens."""
    quantization: str | None = None
    has_mtp: bool = False
    """It carries multi-token-prediction heads that can draft for it."""
    weight_bytes: int | None = None
    """Size of the weight files; None when they are not on this machine."""
    shape: ModelShape | None = None
    """What decides how much memory it takes; None where its config is of a kind that is not understood."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What results may be compared under: only measurements of equal environments are."""

    machine: Machine
    vllm: VllmInstall
