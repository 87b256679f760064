"""What is known of good settings, as the file `rules/starts.toml` says it, and the facts it can refer to."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from autotune.decide.space.site import GIB, Site
from autotune.domain.expression import Expression
from autotune.domain.expression_kinds import Kind
from autotune.domain.model_shape import LinearAttention, ModelShape
from autotune.domain.space import Value
from autotune.errors import ExpressionError

Wish = Value | Expression
"""The value that a setting should get: itself, or what an expression over facts comes to."""

FACTS: Mapping[str, Kind] = {
    "device": Kind.TEXT,
    "cpus": Kind.NUMBER,
    "cpu_ids": Kind.TEXT,
    "memory_gib": Kind.NUMBER,
    "gpus": Kind.NUMBER,
    "gpu_name": Kind.TEXT,
    "gpu_gib": Kind.NUMBER,
    "quantization": Kind.TEXT,
    "has_mtp": Kind.BOOL,
    "hybrid": Kind.BOOL,
    "weights_gib": Kind.NUMBER,
    "weight_share": Kind.NUMBER,
    "max_model_len": Kind.NUMBER,
    "min_streams": Kind.NUMBER,
    "max_streams": Kind.NUMBER,
    "context_tokens": Kind.NUMBER,
    "shares_prefixes": Kind.BOOL,
}
"""What a condition can ask for, and a value be made of. docs/search-spaces.md says what each one is."""

OF_THE_SETTING: Mapping[str, Kind | None] = {"low": None, "high": None, "default": None}
"""What a value can be made of besides: the ends of its own range, and what it is where nothing is said."""


def facts(site: Site) -> dict[str, Value]:
    """The `FACTS` of `site`; one that is not known is absent, and a condition that hangs on it is false."""
    machine, model, workload = site.machine, site.model, site.workload
    room = machine.memory_bytes if site.on_cpu else site.gpu_bytes
    known: dict[str, Value | None] = {
        "device": site.vllm.device.value,
        "cpus": len(machine.cpu_ids),
        "cpu_ids": site.cpu_list,
        "memory_gib": machine.memory_bytes / GIB,
        "gpus": len(machine.gpus),
        "gpu_name": machine.gpus[0].name if machine.gpus else None,
        "gpu_gib": site.gpu_bytes / GIB if machine.gpus else None,
        "quantization": model.quantization if model else None,
        "has_mtp": site.has_mtp,
        "hybrid": _is_hybrid(model.shape) if model and model.shape else None,
        "weights_gib": site.weight_bytes / GIB if site.weight_bytes else None,
        "weight_share": site.weight_bytes / room if site.weight_bytes and room else None,
        "max_model_len": model.max_model_len if model else None,
        "min_streams": workload.streams[0],
        "max_streams": workload.streams[-1],
        "context_tokens": site.needed_context_tokens,
        "shares_prefixes": workload.shares_prefixes,
    }
    return {name: value for name, value in known.items() if value is not None}


def _is_hybrid(shape: ModelShape) -> bool:
    """Whether some layers keep a state of constant size instead of keys and values."""
    return any(isinstance(layer.mixer, LinearAttention) for layer in shape.layers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usual:
    """The value of one setting where a start point says nothing else; `setting` is vLLM's name for it."""

    setting: str
    value: Wish
    when: Expression | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """One setting worth changing alone, to each of `values`; `also` is what has to go along with it."""

    setting: str
    values: tuple[Wish, ...]
    why: str
    also: Mapping[str, Wish]
    when: Expression | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expert:
    """Settings that are good together for some use; without those in `needs` they make no sense."""

    name: str
    settings: Mapping[str, Wish]
    why: str
    needs: frozenset[str] = frozenset()
    when: Expression | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartBook:
    """All of it, the most valuable first. Of several `Usual` for one setting the first that holds counts."""

    defaults: tuple[Usual, ...] = ()
    """What vLLM takes by itself, where its own parser does not tell."""
    base: tuple[Usual, ...] = ()
    """What a start point has instead."""
    experts: tuple[Expert, ...] = ()
    flips: tuple[Flip, ...] = ()


def holds(when: Expression | None, known: Mapping[str, Value]) -> bool:
    """Whether an entry counts here; not where its condition hangs on something that is not known."""
    try:
        return when is None or when.holds(known, absent=False)
    except ExpressionError:  # a division by the memory of GPUs that are not there
        return False


def wished(wish: Wish, known: Mapping[str, Value]) -> Value | None:
    """What `wish` comes to; None where it hangs on something that is not known, or is no finite number."""
    if not isinstance(wish, Expression):
        return wish
    try:
        value = wish.value(known)
    except ExpressionError:  # `2 * default` in a space that offers texts
        return None
    return None if isinstance(value, float) and not math.isfinite(value) else value
