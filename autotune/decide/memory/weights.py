"""Bytes of the weights that vLLM loads, by the sizes of the files or by the shape of the model."""

from collections.abc import Mapping

from autotune.decide.memory.numbers import dtype_bytes
from autotune.domain.machine import Model
from autotune.domain.model_shape import (
    Attention,
    FeedForward,
    LatentAttention,
    Layers,
    LinearAttention,
    Mixer,
    ModelShape,
    Part,
    Quantization,
)

ONLINE: Mapping[str, int] = {"fp8": 8, "bitsandbytes": 4}
"""Bits to which vLLM itself quantizes a checkpoint that is not, by `--quantization`."""


def loaded_bytes(
    model: Model,
    *,
    dtype: str | None = None,
    quantization: str | None = None,
    with_mtp: bool = False,
    text_only: bool = False,
) -> float | None:
    """Bytes of all weights of `model`, which has a shape, on however many devices; None when not known.

    The files decide where they are there, less what is not loaded of them. `dtype` and `quantization` are
    what vLLM was asked for; None is what the checkpoint has.
    """
    shape = model.shape
    if shape is None:
        return None
    if quantization is not None and shape.quantization is None:
        if quantization not in ONLINE:
            return None
        shape_quantized = Quantization(method=quantization, bits=ONLINE[quantization])
        return shape_bytes(shape, shape_quantized, dtype, with_mtp=with_mtp)
    by_shape = shape_bytes(shape, shape.quantization, dtype, with_mtp=with_mtp)
    if model.weight_bytes is None:
        return by_shape
    by_files = model.weight_bytes * _kept_of_the_files(shape, dtype, with_mtp=with_mtp)
    return min(by_files, by_shape) if text_only and by_shape is not None else by_files


def _kept_of_the_files(shape: ModelShape, dtype: str | None, *, with_mtp: bool) -> float:
    """The share of the files' bytes that is loaded."""
    share = 1.0
    if shape.quantization is None:
        share *= dtype_bytes(dtype) / dtype_bytes(shape.dtype)
    if shape.mtp and not with_mtp:
        target = parameters(shape)
        share *= target / (target + _of_all(shape.mtp, shape.hidden))
    return share


def shape_bytes(
    shape: ModelShape, quantization: Quantization | None, dtype: str | None, *, with_mtp: bool = False
) -> float | None:
    """Bytes of the weights by the shape alone; None when the quantization is not understood."""
    if quantization is not None and quantization.bits is None:
        return None
    plain = dtype_bytes(dtype)
    total = plain * float(embedding_parameters(shape))
    for layer in _layers(shape, with_mtp=with_mtp):
        for part, count in layer_parameters(layer, shape.hidden).items():
            kept = quantization is None or part in quantization.kept
            total += (
                layer.count
                * count
                * (plain if kept or quantization is None else _quantized_bytes(quantization))
            )
    return total


def embedding_parameters(shape: ModelShape) -> int:
    """Of the embeddings and of the matrix that makes logits, which no quantization here changes."""
    return shape.hidden * shape.vocabulary * (1 if shape.tied_embeddings else 2)


def layer_parameters(layer: Layers, hidden: int) -> Mapping[Part, int]:
    """Weights of one such layer; norms and biases, some thousandths of it, are left out."""
    counts: dict[Part, int] = {}
    if layer.mixer is not None:
        part = Part.LINEAR_ATTENTION if isinstance(layer.mixer, LinearAttention) else Part.ATTENTION
        counts[part] = _mixer_parameters(layer.mixer, hidden)
    if layer.feed_forward is not None:
        counts |= _feed_forward_parameters(layer.feed_forward, hidden)
    return counts


def _mixer_parameters(mixer: Mixer, hidden: int) -> int:
    match mixer:
        case Attention():
            queries = mixer.query_heads * mixer.head_dim
            keys = mixer.kv_heads * mixer.head_dim
            return hidden * (queries * (3 if mixer.gated else 2) + 2 * keys)
        case LatentAttention():
            latent, heads = mixer.query_latent_dim, mixer.query_heads
            query_width = heads * (mixer.nope_dim + mixer.rope_dim)
            queries = latent * (hidden + query_width) if latent else hidden * query_width
            keys = hidden * (mixer.latent_dim + mixer.rope_dim)
            expanded = mixer.latent_dim * heads * (mixer.nope_dim + mixer.value_dim)
            return queries + keys + expanded + heads * mixer.value_dim * hidden
        case LinearAttention():
            return hidden * (mixer.projected + mixer.inner) + mixer.conv_dim * mixer.conv_kernel


def _feed_forward_parameters(feed_forward: FeedForward, hidden: int) -> Mapping[Part, int]:
    matrices = 3 if feed_forward.gated else 2
    return {
        # The router of the experts is a row of `hidden` weights for each.
        Part.FEED_FORWARD: matrices * hidden * feed_forward.intermediate + hidden * feed_forward.experts,
        Part.EXPERTS: matrices * hidden * feed_forward.expert_intermediate * feed_forward.experts,
    }


def _quantized_bytes(quantization: Quantization) -> float:
    """Bytes of one weight with its share of scales, of 16 bits, and zero points."""
    bits = quantization.bits or 0
    group = quantization.group or 0
    beside = (16 + (bits if quantization.zero_points else 0)) / group if group > 0 else 0.0
    return (bits + beside) / 8


def _layers(shape: ModelShape, *, with_mtp: bool) -> tuple[Layers, ...]:
    return (*shape.layers, shape.mtp) if with_mtp and shape.mtp else shape.layers


def parameters(shape: ModelShape) -> int:
    """Of the whole model, without the layers that draft."""
    return embedding_parameters(shape) + sum(_of_all(layer, shape.hidden) for layer in shape.layers)


def _of_all(layer: Layers, hidden: int) -> int:
    return layer.count * sum(layer_parameters(layer, hidden).values())
