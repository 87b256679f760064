"""How the weights of a checkpoint are stored, by the `quantization_config` of its config.json."""

import re
from collections.abc import Iterable
from typing import Annotated

import msgspec

from autotune.domain.model_shape import Part, Quantization

_Bits = Annotated[int, msgspec.Meta(ge=1, le=64)] | None
_ONE_LAYER = re.compile(r"layers\.\d")
_KEPT_WORDS = {
    "self_attn": Part.ATTENTION,
    "linear_attn": Part.LINEAR_ATTENTION,
    "mamba": Part.LINEAR_ATTENTION,
    "shared_expert": Part.FEED_FORWARD,
    "experts": Part.EXPERTS,
}


class _Weights(msgspec.Struct):
    num_bits: _Bits = None
    group_size: int | None = None
    symmetric: bool = True


class _Group(msgspec.Struct):
    weights: _Weights | None = None


class _KvCacheScheme(msgspec.Struct):
    num_bits: _Bits = None


class _Config(msgspec.Struct):
    quant_method: str
    bits: _Bits = None
    group_size: int | None = None
    modules_to_not_convert: list[str] | None = None
    ignore: list[str] | None = None
    config_groups: dict[str, _Group] | None = None
    kv_cache_scheme: _KvCacheScheme | None = None
    quant_algo: str | None = None
    kv_cache_quant_algo: str | None = None
    load_in_4bit: bool = False
    load_in_8bit: bool = False


def quantization(content: object) -> Quantization:
    """What the `quantization_config` says. Raises msgspec.ValidationError when it is none."""
    config = msgspec.convert(content, _Config)
    kv_bits = config.kv_cache_scheme.num_bits if config.kv_cache_scheme else None
    if config.kv_cache_quant_algo:
        kv_bits = 8 if "8" in config.kv_cache_quant_algo else 4
    bits, group, zero_points = _format(config)
    kept = _kept(config.modules_to_not_convert or config.ignore or ())
    if config.quant_method == "mxfp4":
        kept = frozenset(Part) - {Part.EXPERTS}
    return Quantization(
        method=config.quant_method,
        bits=bits,
        group=group,
        zero_points=zero_points,
        kept=kept,
        kv_bits=kv_bits,
    )


def _format(config: _Config) -> tuple[int | None, int | None, bool]:
    """Bits of a weight, weights to a scale of 16 bits, and whether zero points stand beside the scales."""
    match config.quant_method:
        case "awq" | "gptq":
            return config.bits, config.group_size, True
        case "fp8":
            return 8, None, False
        case "mxfp4":  # a scale of 8 bits for 32 weights
            return 4, 64, False
        case "bitsandbytes" if config.load_in_4bit:
            return 4, None, False
        case "bitsandbytes" if config.load_in_8bit:
            return 8, None, False
        case "modelopt" if config.quant_algo == "FP8":
            return 8, None, False
        case "modelopt" if config.quant_algo == "NVFP4":  # a scale of 8 bits for 16 weights
            return 4, 32, False
        case "compressed-tensors":
            formats = {
                (group.weights.num_bits, group.weights.group_size, not group.weights.symmetric)
                for group in (config.config_groups or {}).values()
                if group.weights
            }
            if len(formats) == 1:
                return formats.pop()
    return None, None, False


def _kept(names: Iterable[str]) -> frozenset[Part]:
    """Parts left as they are in all layers. A name of one layer counts for little, and is not counted."""
    parts = set()
    for name in names:
        if not _ONE_LAYER.search(name):
            found = [part for word, part in _KEPT_WORDS.items() if word in name]
            parts.update(found[:1])
    return frozenset(parts)
