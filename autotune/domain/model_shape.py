"""What of a model's config.json decides how much memory it takes: layers, widths, types of numbers."""

from dataclasses import dataclass, replace
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """A key and a value of every token, or of the last `window` ones, for each of the `kv_heads`."""

    query_heads: int
    kv_heads: int
    head_dim: int
    window: int | None = None
    gated: bool = False
    """The query projection also makes a gate for the output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek's MLA): one vector of every token, for all heads together."""

    query_heads: int
    latent_dim: int
    """`kv_lora_rank`."""
    rope_dim: int
    nope_dim: int
    value_dim: int
    query_latent_dim: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearAttention:
    """A layer with a state of constant size for each request: Mamba 2, gated delta net."""

    conv_dim: int
    conv_kernel: int
    heads: int
    head_state: int
    """Numbers in the state of one head."""
    projected: int
    """Width of all it projects its input to."""
    inner: int
    """Width of what is projected back."""
    state_dtype: str | None = None
    """What the config says its state is kept in; None is the type of the model."""


Mixer = Attention | LatentAttention | LinearAttention


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedForward:
    """`intermediate` is the width that every token goes through, shared experts included; 0 without one."""

    intermediate: int = 0
    experts: int = 0
    experts_per_token: int = 0
    expert_intermediate: int = 0
    gated: bool = True
    """Three matrices (gate, up, down), else two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """Decoder layers that are alike; some hybrids have layers with only one of the two parts."""

    count: int = 1
    mixer: Mixer | None = None
    feed_forward: FeedForward | None = None


class Part(StrEnum):
    """Parts of a model that a quantization leaves as they are, or not."""

    ATTENTION = "attention"
    LINEAR_ATTENTION = "linear_attention"
    FEED_FORWARD = "feed_forward"
    EXPERTS = "experts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """How the matrices are stored. `bits` is None where the config does not say, or not in a known way."""

    method: str
    bits: int | None = None
    group: int | None = None
    """Weights that share a scale; None or below 1 where a scale is for more than can matter."""
    zero_points: bool = False
    kept: frozenset[Part] = frozenset()
    """What is not quantized, besides embeddings and norms."""
    kv_bits: int | None = None
    """What the checkpoint says its KV cache is kept in; None where it says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The language model of a checkpoint, without encoders for images or sound."""

    hidden: int
    vocabulary: int
    layers: tuple[Layers, ...]
    """Each kind once, in the order in which they first come."""
    dtype: str
    """Of the weights as they are stored: `bfloat16`."""
    tied_embeddings: bool = False
    quantization: Quantization | None = None
    mtp_layers: int = 0
    """Layers that draft by multi-token prediction, beside `layers`; loaded only where they are used."""

    @property
    def mtp(self) -> Layers | None:
        """They are like the last kind with attention over all tokens; None where there are none."""
        full = (
            layer
            for layer in reversed(self.layers)
            if isinstance(layer.mixer, LatentAttention)
            or (isinstance(layer.mixer, Attention) and layer.mixer.window is None)
        )
        like = next(full, None) if self.mtp_layers else None
        return replace(like, count=self.mtp_layers) if like else None
