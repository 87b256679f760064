"""Which configurations cannot fit, and by how much, as far as model, device and the study's trials tell.

Two things are known before a launch: weights that do not fit, and a KV cache too small for one request of the
longest context, with which vLLM does not start. A margin goes to the configuration: one refused for nothing
costs more than one launched for nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from autotune.decide.memory.balance import MemoryEstimate
from autotune.decide.memory.calibration import Evidence
from autotune.decide.memory.estimator import Estimator
from autotune.domain.launch import settings
from autotune.domain.space import Configuration, SearchSpace, Value
from autotune.units import format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """What a configuration needs and what there is, in bytes; `why` is the reason with the sizes."""

    needed_bytes: int
    available_bytes: int
    why: str

    @property
    def ratio(self) -> float:
        """How many times what there is would be needed; 1 is exactly full."""
        return self.needed_bytes / self.available_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryGate:
    """The estimate with what a study has taught."""

    space: SearchSpace
    estimator: Estimator
    evidence: Evidence

    def estimate(self, configuration: Configuration) -> MemoryEstimate | None:
        """What `configuration` takes, corrected; None where that is not known."""
        judged = self._judged(settings(self.space, configuration))
        return judged[0] if judged else None

    def shortage(self, configuration: Configuration) -> Shortage | None:
        """Why `configuration` cannot start for want of memory; None where it may, or nothing is known."""
        judged = self._judged(settings(self.space, configuration))
        if judged is None:
            return None
        estimate, margin_bytes = judged
        if estimate.stated_kv_bytes is not None:
            return _stated_too_small(estimate) or _stated_too_large(estimate)
        return _does_not_fit(estimate, margin_bytes)

    def _judged(self, given: Mapping[str, Value]) -> tuple[MemoryEstimate, int] | None:
        """The estimate after correction, and how far off it may be."""
        reading = self.estimator.read(given)
        if reading is None:
            return None
        estimate = reading.estimate
        correction = self.evidence.correction(reading.traits, estimate.device_bytes)
        corrected = replace(
            estimate,
            other_bytes=estimate.other_bytes + correction.add_bytes,
            request_bytes=round(estimate.request_bytes / self.evidence.kv_surplus),
            kv_bytes_per_token=estimate.kv_bytes_per_token / self.evidence.kv_surplus,
        )
        return corrected, correction.margin_bytes


def _stated_too_small(estimate: MemoryEstimate) -> Shortage | None:
    """A cache of a given size that does not hold one request: exact, since nothing is measured."""
    stated = estimate.stated_kv_bytes or 0
    if estimate.request_bytes <= stated:
        return None
    return Shortage(
        needed_bytes=estimate.request_bytes,
        available_bytes=max(stated, 1),
        why=f"{_request(estimate)}, which was given {format_bytes(stated)}",
    )


def _stated_too_large(estimate: MemoryEstimate) -> Shortage | None:
    """A cache of a given size that does not fit beside the weights, on all of the device."""
    stated = estimate.stated_kv_bytes or 0
    needed, device_bytes = estimate.weights_bytes + stated, estimate.device_bytes
    if needed <= device_bytes:
        return None
    both = f"a KV cache of {format_bytes(stated)} and {format_bytes(estimate.weights_bytes)} of weights"
    return Shortage(
        needed_bytes=needed,
        available_bytes=device_bytes,
        why=f"{both} do not fit into {format_bytes(device_bytes)}",
    )


def _does_not_fit(estimate: MemoryEstimate, margin_bytes: int) -> Shortage | None:
    """Weights, working memory and one request in what vLLM may use of the device."""
    needed, usable = estimate.fixed_bytes + estimate.request_bytes, estimate.usable_bytes
    if needed <= usable + margin_bytes:
        return None
    left = estimate.kv_available_bytes
    weights, working = format_bytes(estimate.weights_bytes), format_bytes(estimate.working_bytes)
    taken = f"{weights} of weights and about {working} of working memory"
    if left > 0:
        remains = f"about {format_bytes(left)} are left of {format_bytes(usable)} by {taken}"
        why = f"{_request(estimate)}, and {remains}"
    else:
        why = f"{taken} do not fit into the {format_bytes(usable)} that vLLM may use"
    return Shortage(needed_bytes=needed, available_bytes=max(usable, 1), why=why)


def _request(estimate: MemoryEstimate) -> str:
    size = format_bytes(estimate.request_bytes)
    return f"one request of {estimate.request_tokens:,} tokens needs {size} of KV cache"
