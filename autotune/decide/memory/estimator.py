"""What a configuration takes, by the model's config and the device alone."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from math import log2

from autotune.decide.memory.activations import (
    GRAPH_BYTES,
    OTHER_BYTES,
    activation_bytes,
    batch,
    default_batch,
)
from autotune.decide.memory.ask import GIB, Ask, NotUnderstood, read_ask
from autotune.decide.memory.balance import MemoryEstimate
from autotune.decide.memory.kv_cache import KvCache
from autotune.decide.memory.numbers import dtype_bytes
from autotune.decide.memory.pages import Host, cache_of
from autotune.decide.memory.weights import embedding_parameters, loaded_bytes
from autotune.domain.machine import Model
from autotune.domain.model_shape import ModelShape
from autotune.domain.space import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What decides how wrong an estimate is: two with the same traits are wrong by the same."""

    batched_tokens: int
    others: tuple[Hashable, ...]

    def distance(self, other: "Traits") -> float:
        """0 for the same; 1 for twice the tokens, or another value of any one of the others."""
        apart = sum(mine != theirs for mine, theirs in zip(self.others, other.others, strict=True))
        return abs(log2(self.batched_tokens / other.batched_tokens)) + apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A configuration as it is understood."""

    estimate: MemoryEstimate
    cache: KvCache
    traits: Traits


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimator:
    """The facts an estimate is made from; `model` is one whose shape is known, and so is the draft."""

    model: Model
    shape: ModelShape
    draft: Model | None
    host: Host
    device_bytes: int
    """Of one GPU, or of the machine where the model runs on its CPU."""
    device_name: str
    offloads: bool = True
    """`cpu_offload_gb` makes room on the device."""

    def read(self, settings: Mapping[str, Value]) -> Reading | None:
        """What a configuration takes, by vLLM's names of its settings; None where that is not known."""
        try:
            ask = read_ask(settings)
            draft = self._draft(ask)
            tokens, sequences = batch(ask, self._defaults)
            cache = cache_of(self.shape, draft.shape if draft else None, ask, self.host, tokens)
        except NotUnderstood:
            return None
        weights = self._weights(ask, draft)
        context = ask.context_tokens or self.model.max_model_len
        if cache is None or weights is None or context is None:
            return None
        stated = self._stated_bytes(ask, cache)
        if stated is None and self.host.on_cpu:
            return None  # vLLM takes what is free at that moment
        gpu = not self.host.on_cpu
        estimate = MemoryEstimate(
            device_bytes=self.device_bytes,
            usable_bytes=round(self.device_bytes * ask.utilization),
            weights_bytes=round(weights),
            activation_bytes=activation_bytes(self.shape, tokens, sequences, ask.devices) if gpu else 0,
            graph_bytes=GRAPH_BYTES if gpu and not ask.eager else 0,
            other_bytes=OTHER_BYTES if gpu else 0,
            stated_kv_bytes=stated,
            kv_bytes_per_token=cache.bytes_per_token,
            request_tokens=1 if ask.fits_any_context else context,
            request_bytes=cache.request_bytes(1 if ask.fits_any_context else context),
        )
        others = (ask.eager, ask.devices, ask.dtype, ask.quantization, ask.offload_bytes, ask.speculation)
        return Reading(estimate=estimate, cache=cache, traits=Traits(batched_tokens=tokens, others=others))

    @property
    def _defaults(self) -> tuple[int, int]:
        return default_batch(self.device_bytes, self.device_name, on_cpu=self.host.on_cpu)

    def _draft(self, ask: Ask) -> Model | None:
        """The model that drafts, where one does. Raises NotUnderstood for one that is not known."""
        name = ask.speculation.model if ask.speculation else None
        if name is None:
            return None
        if self.draft is None or self.draft.name != name:
            raise NotUnderstood
        return self.draft

    def _weights(self, ask: Ask, draft: Model | None) -> float | None:
        """On one device, less what is offloaded from it."""
        speculation = ask.speculation
        target = loaded_bytes(
            self.model,
            dtype=ask.dtype,
            quantization=ask.quantization,
            with_mtp=speculation is not None and speculation.mtp,
            text_only=ask.text_only,
        )
        if target is None:
            return None
        drafting = 0.0
        if draft is not None and draft.shape is not None:
            drafting = loaded_bytes(draft, dtype=ask.dtype) or 0.0
            if draft.weight_bytes is None and speculation is not None and not speculation.own_embeddings:
                drafting -= embedding_parameters(draft.shape) * dtype_bytes(ask.dtype)
        offloaded = ask.offload_bytes if self.offloads and not self.host.on_cpu else 0
        return max(0.0, (target + drafting) / ask.devices - offloaded)

    def _stated_bytes(self, ask: Ask, cache: KvCache) -> int | None:
        """The size of the KV cache on one device, where it was given in bytes or blocks."""
        if ask.kv_blocks is not None:
            return ask.kv_blocks * cache.block_bytes
        if self.host.on_cpu and ask.kv_space_gib is not None:
            return ask.kv_space_gib * GIB
        return ask.kv_bytes
