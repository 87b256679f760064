"""The memory a study's configurations take: what is known before its first launch.

Where a model, a setting or a value is not understood there is no estimate: nothing is refused on a guess.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from autotune.decide.failures.signatures import Versions
from autotune.decide.memory.ask import DRAFT_MODEL
from autotune.decide.memory.balance import MemoryEstimate
from autotune.decide.memory.calibration import evidence, refined
from autotune.decide.memory.estimator import Estimator
from autotune.decide.memory.gate import MemoryGate
from autotune.decide.memory.pages import Host
from autotune.domain.launch import setting_name, settings
from autotune.domain.machine import Device, Environment, Gpu, Model
from autotune.domain.space import CategoricalDomain, Configuration, SearchSpace, Value
from autotune.domain.trial import TrialRecord

_CACHES_PREFIXES = Versions(since=(0, 32))
"""Of vLLM, where prefix caching of hybrids is known to be on by default. Before, less is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryModel:
    """A model, perhaps with a draft, on a device."""

    estimator: Estimator

    def estimate(self, given: Mapping[str, Value]) -> MemoryEstimate | None:
        """What a configuration takes; None where that is not known.

        `given` are its settings by vLLM's names, as `autotune.domain.launch.settings` has them.
        """
        reading = self.estimator.read(given)
        return reading.estimate if reading else None

    def calibrated(self, space: SearchSpace, records: Iterable[TrialRecord]) -> MemoryGate:
        """The gate of a study with these trials: the same for the same trials, in whatever order."""
        trials = tuple(records)
        estimator = refined(self.estimator, trials)
        return MemoryGate(space=space, estimator=estimator, evidence=evidence(estimator, space, trials))


def memory_model(environment: Environment, model: Model, draft: Model | None = None) -> MemoryModel | None:
    """What to estimate memory with; None where the shape of `model` or the memory of the device is not known.

    `draft` goes by the name that configurations have for it; one whose shape is not known is as good as none.
    """
    on_cpu = environment.vllm.device is Device.CPU
    gpu = max(environment.machine.gpus, key=_gpu_bytes, default=None)
    device_bytes = environment.machine.memory_bytes if on_cpu else gpu.memory_bytes if gpu else 0
    if model.shape is None or environment.vllm.device is Device.OTHER or device_bytes <= 0:
        return None
    estimator = Estimator(
        model=model,
        shape=model.shape,
        draft=draft if draft and draft.shape else None,
        host=Host(on_cpu=on_cpu, caches_prefixes=_CACHES_PREFIXES.hold(environment.vllm.version)),
        device_bytes=device_bytes,
        device_name="" if on_cpu or gpu is None else gpu.name,
    )
    return MemoryModel(estimator=estimator)


def draft_names(space: SearchSpace) -> set[str]:
    """The models that a configuration of `space` can be told to draft with."""
    names = {settings(space, Configuration()).get(DRAFT_MODEL)}
    for parameter in space.parameters:
        if setting_name(parameter.target) == DRAFT_MODEL and isinstance(parameter.domain, CategoricalDomain):
            names.update(choice for choice in parameter.domain.choices if choice not in parameter.omit)
    return {name for name in names if isinstance(name, str)}


def _gpu_bytes(gpu: Gpu) -> int:
    return gpu.memory_bytes
