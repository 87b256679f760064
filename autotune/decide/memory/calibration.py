"""What the trials of a study teach about its memory estimate.

vLLM logs how much memory the device has, what it found for the KV cache and how many tokens that holds. What
that differs from the estimate by is corrected for configurations that are alike, and less for others. A
correction that would refuse more fades with the distance, one that would refuse less does not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autotune.decide.memory.ask import GIB
from autotune.decide.memory.estimator import Estimator, Reading, Traits
from autotune.domain.failure import FailureKind
from autotune.domain.launch import settings
from autotune.domain.space import SearchSpace, Value
from autotune.domain.trial import TrialRecord

_UNCALIBRATED_BYTES, _UNCALIBRATED_SHARE = round(0.3 * GIB), 0.02
"""Of the device. Estimates of peak activation and graphs together were off by up to 0.8 GiB, of weights by
0.05 GiB, on logs of vLLM 0.26 on an H200 of 139.8 GiB."""
_CALIBRATED_BYTES, _CALIBRATED_SHARE = round(0.06 * GIB), 0.0025
"""Where an alike configuration was measured: two launches of one differed by 0.00 to 0.06 GiB."""
_FOREIGN_BYTES = 3 * GIB
"""Memory outside of torch that is not vLLM's: 0.22 to 0.24 GiB were its own, 15.13 GiB while a second server
was starting beside it."""
_SURPLUS = 1.02
"""How many times the tokens foretold a cache must hold before the layout is taken to be misunderstood."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """To be added to what a configuration takes, and how far it may still be off."""

    add_bytes: int
    margin_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """By how much estimates of memory beside the KV cache were too low, below 0 where they were too high."""

    residuals: tuple[tuple[Traits, int], ...] = ()
    kv_surplus: float = 1.0
    """How many times more requests a KV cache was seen to hold than foretold; at least 1."""

    def correction(self, traits: Traits, device_bytes: int) -> Correction:
        """The correction for a configuration, from those that are most like it."""
        loose = _UNCALIBRATED_BYTES + round(_UNCALIBRATED_SHARE * device_bytes)
        if not self.residuals:
            return Correction(add_bytes=0, margin_bytes=loose)
        distance = min(traits.distance(known) for known, _ in self.residuals)
        alike = [r for known, r in self.residuals if traits.distance(known) <= distance]
        # The lowest: a first launch can be charged for what it compiled (vllm#54383).
        lowest, spread = min(alike), max(alike) - min(alike)
        away = min(1.0, distance)
        tight = _CALIBRATED_BYTES + round(_CALIBRATED_SHARE * device_bytes) + spread
        return Correction(
            add_bytes=lowest if lowest < 0 else round(lowest * (1 - away)),
            margin_bytes=round(min(tight, loose) * (1 - away) + loose * away),
        )


def refined(estimator: Estimator, records: Sequence[TrialRecord]) -> Estimator:
    """The estimator with what the trials said of the device, and of offloading."""
    if estimator.host.on_cpu:
        return estimator
    seen = [gib for record in records if (gib := _device_gib(record)) is not None]
    ineffective = any("cpu_offload_gb" in r.effective.without_effect for r in records if r.effective)
    return replace(
        estimator,
        device_bytes=round(max(seen) * GIB) if seen else estimator.device_bytes,
        offloads=not ineffective,
    )


def evidence(estimator: Estimator, space: SearchSpace, records: Sequence[TrialRecord]) -> Evidence:
    """What the trials say of estimates by `estimator`."""
    residuals: list[tuple[Traits, int]] = []
    surplus = 1.0
    for record in records:
        reading = estimator.read(settings(space, record.configuration))
        if reading is None:
            continue
        surplus = max(surplus, _surplus(reading, record))
        residual = _residual(reading, record)
        if residual is not None:
            residuals.append((reading.traits, residual))
    return Evidence(residuals=tuple(residuals), kv_surplus=surplus if surplus > _SURPLUS else 1.0)


def _residual(reading: Reading, record: TrialRecord) -> int | None:
    """What it took beside the KV cache, more than was estimated; None where nothing measured it."""
    available_gib = _available_gib(record)
    facts = _facts(record)
    if reading.estimate.stated_kv_bytes is not None or facts.get("kv_cache_given") or available_gib is None:
        return None
    outside = _number(facts, "non_torch_gib")
    consumed, weights = _number(facts, "consumed_gib"), _number(facts, "weights_gib")
    if outside is None and consumed is not None and weights is not None:
        outside = consumed - weights
    residual = reading.estimate.usable_bytes - round(available_gib * GIB) - reading.estimate.fixed_bytes
    # A server that did not come up does not say what is not its own.
    foreign = residual if outside is None else outside * GIB
    return None if foreign > _FOREIGN_BYTES else residual


def _surplus(reading: Reading, record: TrialRecord) -> float:
    """How many times the tokens that were foretold its cache holds; 1 where nothing says so."""
    facts = _facts(record)
    tokens = _number(facts, "kv_cache_tokens")
    cache_bytes = reading.estimate.stated_kv_bytes
    available_gib = _available_gib(record)
    # It is logged to 0.01 GiB, which of a small cache is much.
    if cache_bytes is None and available_gib is not None and available_gib >= 1:
        cache_bytes = round(available_gib * GIB)
    if tokens is None or cache_bytes is None:
        return 1.0
    context = int(_number(facts, "max_model_len") or reading.estimate.request_tokens)
    foretold = reading.cache.tokens(cache_bytes, context)
    return tokens / foretold if foretold else 1.0


def _available_gib(record: TrialRecord) -> float | None:
    available = _number(_facts(record), "kv_cache_gib")
    if available is None and record.failure is not None:
        return _number(record.failure.numbers, "available_gib")
    return available


def _device_gib(record: TrialRecord) -> float | None:
    """What vLLM, or an out-of-memory error, said the GPU has: less than its driver says."""
    device = _number(_facts(record), "device_gib")
    if device is None and record.failure is not None and record.failure.kind is FailureKind.GPU_OOM:
        return _number(record.failure.numbers, "total_gib")
    return device


def _facts(record: TrialRecord) -> Mapping[str, Value]:
    return record.effective.facts if record.effective else {}


def _number(values: Mapping[str, Value], name: str) -> float | None:
    value = values.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
