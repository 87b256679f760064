"""From the layers of a model to the pages of its KV cache on one device."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from autotune.decide.memory.ask import Ask, NotUnderstood
from autotune.decide.memory.kv_cache import KvCache, Pages, kv_cache
from autotune.decide.memory.numbers import dtype_bytes
from autotune.domain.model_shape import Attention, LatentAttention, Layers, LinearAttention, Mixer, ModelShape

CPU_BLOCK_TOKENS, GPU_BLOCK_TOKENS = 128, 16
"""vLLM's defaults; platforms/cpu.py and config/cache.py of 0.26 to 0.32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What of device and vLLM decides how a cache is laid out."""

    on_cpu: bool
    caches_prefixes: bool
    """Prefix caching is on for hybrids unless it is switched off; known of 0.32."""


def cache_of(
    shape: ModelShape, draft: ModelShape | None, ask: Ask, host: Host, in_flight_tokens: int
) -> KvCache | None:
    """The cache of a model and its draft on one device; None for one that keeps nothing.

    Raises NotUnderstood for a type of cache whose size is not known.
    """
    layout = _Layout(shape, ask, host)
    layers = list(shape.layers)
    if ask.speculation is not None and ask.speculation.mtp:
        if shape.mtp is None:
            raise NotUnderstood
        layers.append(shape.mtp)
    if draft is not None:
        layers += draft.layers
    return kv_cache(layout.pages(layers), in_flight_tokens)


class _Layout:
    """How many tokens a block has, and how many bytes a page."""

    def __init__(self, shape: ModelShape, ask: Ask, host: Host) -> None:
        self.ask = ask
        self.host = host
        self.shape = shape
        self.kv_bits = _kv_bits(shape, ask)
        default = CPU_BLOCK_TOKENS if host.on_cpu else GPU_BLOCK_TOKENS
        self.block_tokens = ask.block_tokens or default
        self.state_page_bytes = 0
        self._make_room_for_states()

    def pages(self, layers: Iterable[Layers]) -> Iterable[Pages]:
        """The pages of all layers that keep something."""
        return [self._pages(kind.mixer, kind.count) for kind in layers if kind.mixer is not None]

    def _pages(self, mixer: Mixer, layers: int) -> Pages:
        if isinstance(mixer, LinearAttention):
            return Pages(
                layers=layers, page_bytes=self.state_page_bytes, block_tokens=None, states=self._states()
            )
        return Pages(
            layers=layers,
            page_bytes=math.ceil(self.block_tokens * self._token_bytes(mixer)),
            block_tokens=self.block_tokens,
            window=mixer.window if isinstance(mixer, Attention) else None,
        )

    def _make_room_for_states(self) -> None:
        """Make a block of attention at least as large as a state, and pad the state to it, as vLLM does.

        vllm/platforms/interface.py, "to ensure that attention page size is >= mamba page size".
        """
        states = [layer.mixer for layer in self.shape.layers if isinstance(layer.mixer, LinearAttention)]
        attention = next(
            (
                layer.mixer
                for layer in self.shape.layers
                if isinstance(layer.mixer, Attention | LatentAttention)
            ),
            None,
        )
        if not states:
            return
        if attention is None:
            raise NotUnderstood
        state_bytes = max(self._state_bytes(state) for state in states)
        token_bytes = self._token_bytes(attention)
        fits = self.block_tokens * math.ceil(state_bytes / (self.block_tokens * token_bytes))
        self.block_tokens = max(self.block_tokens, fits)
        self.state_page_bytes = math.ceil(self.block_tokens * token_bytes)

    def _token_bytes(self, mixer: Attention | LatentAttention) -> float:
        """Key and value of one token in one layer; latent vectors are not split over devices."""
        if isinstance(mixer, LatentAttention):
            return (mixer.latent_dim + mixer.rope_dim) * self.kv_bits / 8
        heads = max(1, mixer.kv_heads // self.ask.devices)
        return 2 * heads * mixer.head_dim * self.kv_bits / 8

    def _state_bytes(self, mixer: LinearAttention) -> int:
        model_bytes = dtype_bytes(self.ask.dtype)
        drafted = self.ask.speculation.tokens if self.ask.speculation else 0
        conv = (mixer.conv_kernel - 1 + drafted) * (mixer.conv_dim // self.ask.devices)
        state = max(1, mixer.heads // self.ask.devices) * mixer.head_state
        # vLLM on a CPU keeps states in 32 bits, whatever was asked for; platforms/cpu.py, "Reset SSM cache".
        asked = "float32" if self.host.on_cpu else self.ask.state_dtype or _state_dtype(mixer)
        return conv * model_bytes + state * (dtype_bytes(asked) if asked else model_bytes)

    def _states(self) -> int:
        """One for each request and drafted token, and with prefix caching the one it came from."""
        drafted = self.ask.speculation.tokens if self.ask.speculation else 0
        caching = self.ask.prefix_caching
        return (2 if (self.host.caches_prefixes if caching is None else caching) else 1) + drafted


def _state_dtype(mixer: LinearAttention) -> str | None:
    """What the config says, unless that is the type of the model."""
    return None if mixer.state_dtype in (None, "auto") else mixer.state_dtype


def _kv_bits(shape: ModelShape, ask: Ask) -> int:
    """Bits of one number in the cache."""
    name = ask.kv_dtype
    latent = any(isinstance(layer.mixer, LatentAttention) for layer in shape.layers)
    if name == "auto":
        from_checkpoint = shape.quantization.kv_bits if shape.quantization else None
        return from_checkpoint or 8 * dtype_bytes(ask.dtype)
    if name in ("bfloat16", "float16", "half"):
        return 16
    # Latent vectors have layouts of their own in 8 bits and less.
    if name.startswith("fp8") and not (latent and "mla" in name):
        return 8
    if name == "int8_per_token_head":
        return 8
    raise NotUnderstood
