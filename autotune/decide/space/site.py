"""What the parameters of the default search space are made from: machine, vLLM, model and workload."""

from dataclasses import dataclass

from autotune.domain.machine import Device, Machine, Model, VllmInstall
from autotune.domain.workload import Workload

GIB = 2**30

WEIGHT_SHARE = 0.85
"""Of a GPU's memory that weights may fill: the rest is for activations, graphs and some KV cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What the offers are made from; `model` is None where nothing is known of it."""

    machine: Machine
    vllm: VllmInstall
    model: Model | None
    workload: Workload
    context_tokens: int
    """The shortest context a server may be limited to."""

    @property
    def on_cpu(self) -> bool:
        """Whether the model computes on the CPU."""
        return self.vllm.device is Device.CPU

    @property
    def weight_bytes(self) -> int | None:
        """Size of the weights; None where it is not known."""
        return self.model.weight_bytes if self.model else None

    @property
    def has_mtp(self) -> bool:
        """Whether the model is known to carry heads that can draft for it."""
        return self.model is not None and self.model.has_mtp

    @property
    def gpu_bytes(self) -> int:
        """Memory of the smallest GPU; 0 where none is known."""
        return min((gpu.memory_bytes for gpu in self.machine.gpus), default=0)
