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

    @property
    def needed_context_tokens(self) -> int:
        """The context that every configuration has to allow."""
        # The next multiple of 256: room for the few tokens that a chat template adds.
        return -(-max(self.workload.context_tokens, self.context_tokens) // 256) * 256

    @property
    def cpu_list(self) -> str:
        """Processor ids as vLLM reads them: `0-3,8`."""
        runs: list[tuple[int, int]] = []
        for number in sorted(self.machine.cpu_ids):
            if runs and number == runs[-1][1] + 1:
                runs[-1] = (runs[-1][0], number)
            else:
                runs.append((number, number))
        return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
