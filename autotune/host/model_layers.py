"""The decoder layers that a config.json describes, for the families of models that are understood here."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from autotune.domain.model_shape import FeedForward, LatentAttention, Layers, Mixer
from autotune.host.model_config import ShapeConfig, Unknown, need
from autotune.host.model_parts import (
    attention,
    delta_net,
    granite_experts,
    granite_mamba,
    heads,
    mlp,
    nemotron_experts,
    nemotron_mamba,
    qwen_experts,
    routed,
)

_MOST_LAYERS = 1000
"""Today's models have up to about 130; a config that says more is not believed."""


def layers(config: ShapeConfig) -> tuple[Layers, ...]:
    """The decoder layers, each kind once. Raises Unknown for a model that is not understood."""
    family = FAMILIES.get(config.model_type or "")
    if family is None:
        raise Unknown
    count = _count(config)
    if not 0 < count <= _MOST_LAYERS:
        raise Unknown
    kinds = Counter(family(config, index) for index in range(count))
    return tuple(replace(kind, count=count) for kind, count in kinds.items())


def _count(config: ShapeConfig) -> int:
    if config.hybrid_override_pattern:
        return len(config.hybrid_override_pattern)
    count = need(config.num_hidden_layers)
    if config.layer_types is not None and len(config.layer_types) != count:
        raise Unknown
    return count


def _dense(config: ShapeConfig, index: int) -> Layers:
    return Layers(mixer=attention(config, index), feed_forward=mlp(config))


def _experts_everywhere(config: ShapeConfig, index: int) -> Layers:
    """Mixtral, gpt-oss: every layer has experts, whose width is called `intermediate_size`."""
    experts = FeedForward(
        experts=need(config.num_local_experts),
        experts_per_token=need(config.num_experts_per_tok),
        expert_intermediate=need(config.intermediate_size),
    )
    return Layers(mixer=attention(config, index), feed_forward=experts)


def _qwen_moe(config: ShapeConfig, index: int) -> Layers:
    return Layers(mixer=attention(config, index), feed_forward=qwen_experts(config, index))


def _qwen_hybrid(config: ShapeConfig, index: int) -> Layers:
    """Qwen3-Next and Qwen3.5: gated delta nets, and attention with an output gate at every fourth layer."""
    if config.layer_types is not None:
        kind = config.layer_types[index]
    else:
        kind = "linear_attention" if (index + 1) % (config.full_attention_interval or 4) else "full_attention"
    mixer: Mixer
    match kind:
        case "linear_attention":
            mixer = delta_net(config)
        case "full_attention":
            mixer = heads(config, window=None, gated=True)
        case _:
            raise Unknown
    return Layers(
        mixer=mixer, feed_forward=qwen_experts(config, index) if config.num_experts else mlp(config)
    )


def _deepseek(config: ShapeConfig, index: int) -> Layers:
    if config.index_topk:
        raise Unknown
    mixer = LatentAttention(
        query_heads=need(config.num_attention_heads),
        latent_dim=need(config.kv_lora_rank),
        rope_dim=need(config.qk_rope_head_dim),
        nope_dim=need(config.qk_nope_head_dim),
        value_dim=need(config.v_head_dim),
        query_latent_dim=config.q_lora_rank or None,
    )
    return Layers(mixer=mixer, feed_forward=routed(config, index))


def _glm_moe(config: ShapeConfig, index: int) -> Layers:
    return Layers(mixer=attention(config, index), feed_forward=routed(config, index))


def _nemotron_h(config: ShapeConfig, index: int) -> Layers:
    """A pattern of letters; each layer is one part: Mamba, attention, feed-forward or experts."""
    match (config.hybrid_override_pattern or "")[index : index + 1]:
        case "M":
            return Layers(mixer=nemotron_mamba(config))
        case "*":
            return Layers(mixer=heads(config, window=None))
        case "-":
            return Layers(feed_forward=FeedForward(intermediate=need(config.intermediate_size), gated=False))
        case "E" if not config.moe_latent_size:
            return Layers(feed_forward=nemotron_experts(config))
    raise Unknown


def _mamba_hybrid(config: ShapeConfig, index: int) -> Layers:
    """Granite 4 and Bamba: Mamba 2 with attention now and then, and a feed-forward in every layer."""
    if config.layer_types is not None:
        kind = config.layer_types[index]
    elif config.attn_layer_indices is not None:
        kind = "attention" if index in config.attn_layer_indices else "mamba"
    else:
        raise Unknown
    mixer: Mixer
    match kind:
        case "attention":
            mixer = heads(config, window=None)
        case "mamba":
            mixer = granite_mamba(config)
        case _:
            raise Unknown
    return Layers(mixer=mixer, feed_forward=granite_experts(config))


Family = Callable[[ShapeConfig, int], Layers]

FAMILIES: Mapping[str, Family] = {
    **dict.fromkeys(("llama", "mistral", "ministral", "qwen2", "qwen3", "phi3", "granite", "olmo2"), _dense),
    **dict.fromkeys(("gemma", "gemma2", "gemma3_text", "qwen2_5_vl_text", "qwen3_vl_text", "glm4"), _dense),
    **dict.fromkeys(("mixtral", "gpt_oss"), _experts_everywhere),
    **dict.fromkeys(("qwen2_moe", "qwen3_moe", "qwen3_vl_moe_text"), _qwen_moe),
    **dict.fromkeys(("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"), _qwen_hybrid),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "kimi_k2"), _deepseek),
    "glm4_moe": _glm_moe,
    "nemotron_h": _nemotron_h,
    **dict.fromkeys(("granitemoehybrid", "bamba"), _mamba_hybrid),
}
"""By `model_type`."""
