"""What the settings of a configuration ask memory for."""

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.decide.asked import read_value
from autotune.domain.space import Value

GIB = 2**30

DEFAULT_UTILIZATION = 0.92
"""vllm/config/cache.py, 0.26 to 0.32."""

DRAFT_MODEL = "speculative_config__model"

_BEYOND = ("hf_overrides", "config", "offload_group_size", "mamba_block_size", "kv_transfer_config")
"""Settings whose effect on memory is not known here."""
_SPREAD = ("pipeline_parallel_size", "decode_context_parallel_size", "prefill_context_parallel_size")
"""Ways to spread a model over devices whose effect on memory is not known here."""
_DRAFTLESS = frozenset({"ngram", "ngram_gpu", "suffix"})
"""Methods of speculation that have no weights and no cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """How many tokens are drafted, and by what: a model, the target's own MTP layers, or neither."""

    tokens: int
    model: str | None = None
    mtp: bool = False
    own_embeddings: bool = False
    """Of the model, that it shares nothing with the target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """The settings by their meaning; None is vLLM's default."""

    context_tokens: int | None
    fits_any_context: bool
    """vLLM makes the context as long as the memory allows."""
    batched_tokens: int | None
    sequences: int | None
    doubled: bool
    """`performance_mode` throughput, which doubles the defaults of the two."""
    utilization: float
    kv_bytes: int | None
    kv_space_gib: int | None
    """VLLM_CPU_KVCACHE_SPACE, which goes before `kv_bytes`; on a CPU alone."""
    kv_blocks: int | None
    kv_dtype: str
    block_tokens: int | None
    dtype: str | None
    state_dtype: str | None
    quantization: str | None
    offload_bytes: int
    devices: int
    """A layer is split over, `tensor_parallel_size`."""
    eager: bool
    prefix_caching: bool | None
    text_only: bool
    """Encoders for images and sound are left out, or may be."""
    speculation: Speculation | None


class NotUnderstood(Exception):
    """A setting, or its value, has an effect on memory that is not known here."""


def read_ask(settings: Mapping[str, Value]) -> Ask:
    """The meaning of settings by the names of `autotune.domain.launch.settings`.

    Raises NotUnderstood where one of them has an effect that is not known.
    """
    said = _Said(settings)
    if any(settings.get(name) for name in _BEYOND) or any(said.count(name, 1) > 1 for name in _SPREAD):
        raise NotUnderstood
    if settings.get("enable_expert_parallel") and said.count("data_parallel_size", 1) > 1:
        raise NotUnderstood
    context = said.text("max_model_len", "")
    fits_any = context in ("auto", "-1")
    return Ask(
        context_tokens=None if fits_any else said.count_if_any("max_model_len"),
        fits_any_context=fits_any,
        batched_tokens=said.count_if_any("max_num_batched_tokens"),
        sequences=said.count_if_any("max_num_seqs"),
        doubled=settings.get("performance_mode") == "throughput",
        utilization=said.number("gpu_memory_utilization", DEFAULT_UTILIZATION),
        kv_bytes=said.count_if_any("kv_cache_memory_bytes"),
        kv_space_gib=said.count_if_any("VLLM_CPU_KVCACHE_SPACE"),
        kv_blocks=said.count_if_any("num_gpu_blocks_override"),
        kv_dtype=said.text("kv_cache_dtype", "auto"),
        block_tokens=said.count_if_any("block_size"),
        dtype=said.name("dtype"),
        state_dtype=said.name("mamba_ssm_cache_dtype"),
        quantization=said.name("quantization"),
        offload_bytes=round(said.number("cpu_offload_gb", 0.0) * GIB),
        devices=said.count("tensor_parallel_size", 1) or 1,
        eager=settings.get("enforce_eager") is True,
        prefix_caching=said.switch("enable_prefix_caching"),
        text_only=bool(settings.get("language_model_only"))
        or any(name.startswith("limit_mm_per_prompt") for name in settings),
        speculation=_speculation(said),
    )


def _speculation(said: "_Said") -> Speculation | None:
    method, model = said.name("speculative_config__method"), said.name(DRAFT_MODEL)
    if method is None and model is None:
        if any(name.startswith("speculative_config") for name in said.settings):
            raise NotUnderstood
        return None
    tokens = said.count("speculative_config__num_speculative_tokens", 0)
    if method in _DRAFTLESS:
        return Speculation(tokens=tokens)
    if method is not None and method.endswith("mtp"):  # `mtp`, `deepseek_mtp` and more
        return Speculation(tokens=tokens or 1, mtp=True)
    if model is None or method not in (None, "draft_model", "eagle", "eagle3", "dflash"):
        raise NotUnderstood
    return Speculation(tokens=tokens, model=model, own_embeddings=method == "draft_model")


@dataclass(frozen=True, slots=True)
class _Said:
    """Settings read as numbers and names; all raise NotUnderstood for a value of another sort."""

    settings: Mapping[str, Value]

    def number(self, name: str, default: float) -> float:
        value = self.settings.get(name)
        if isinstance(value, str):
            value = read_value(value)
        if value is None or value == "":
            return default
        if isinstance(value, bool | str) or value < 0:
            raise NotUnderstood
        return value

    def count(self, name: str, default: int) -> int:
        return int(self.number(name, default))

    def count_if_any(self, name: str) -> int | None:
        return self.count(name, 0) or None

    def text(self, name: str, default: str) -> str:
        return str(self.settings.get(name, default))

    def name(self, name: str) -> str | None:
        """None also for `auto`."""
        text = self.text(name, "auto")
        return None if text == "auto" else text

    def switch(self, name: str) -> bool | None:
        value = self.settings.get(name)
        return value if isinstance(value, bool) else None
