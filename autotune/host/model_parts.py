"""The parts of a decoder layer, attention and feed-forward, as the fields of a config.json describe them.

All functions raise Unknown where a field they need is not there.
"""

from autotune.domain.model_shape import Attention, FeedForward, LinearAttention
from autotune.host.model_config import ShapeConfig, Unknown, need


def attention(config: ShapeConfig, index: int) -> Attention:
    """Attention of layer `index`, which may look at the last tokens only."""
    return heads(config, window=need(config.sliding_window) if _slides(config, index) else None)


def _slides(config: ShapeConfig, index: int) -> bool:
    if config.layer_types is not None:
        match config.layer_types[index]:
            case "full_attention":
                return False
            case "sliding_attention":
                return True
        raise Unknown
    if not config.sliding_window:
        return False
    match config.model_type:
        case "mistral" | "ministral" | "phi3" | "mixtral":
            return True
        case "gemma2" | "gpt_oss":
            return index % 2 == 0
        case "gemma3_text":
            return (index + 1) % (config.sliding_window_pattern or 6) != 0
        case _ if config.use_sliding_window:
            return index >= need(config.max_window_layers)
    return False


def heads(config: ShapeConfig, *, window: int | None, gated: bool = False) -> Attention:
    """Attention with the config's heads."""
    count = need(config.num_attention_heads)
    width = config.head_dim or config.attention_head_dim or need(config.hidden_size) // count
    return Attention(
        query_heads=count,
        kv_heads=config.num_key_value_heads or count,
        head_dim=need(width),
        window=window,
        gated=gated,
    )


def delta_net(config: ShapeConfig) -> LinearAttention:
    """The gated delta net of Qwen3-Next and Qwen3.5."""
    keys = need(config.linear_num_key_heads) * need(config.linear_key_head_dim)
    value_heads, value_dim = need(config.linear_num_value_heads), need(config.linear_value_head_dim)
    values = value_heads * value_dim
    return LinearAttention(
        conv_dim=2 * keys + values,
        conv_kernel=need(config.linear_conv_kernel_dim),
        heads=value_heads,
        head_state=value_dim * need(config.linear_key_head_dim),
        projected=2 * keys + 2 * values + 2 * value_heads,
        inner=values,
        state_dtype=config.mamba_ssm_dtype,
    )


def nemotron_mamba(config: ShapeConfig) -> LinearAttention:
    """Mamba 2 by Nemotron-H's names; vLLM keeps its state in 32 bits unless the config says otherwise."""
    return _mamba(
        count=need(config.mamba_num_heads),
        width=need(config.mamba_head_dim),
        state=need(config.ssm_state_size),
        groups=need(config.n_groups),
        kernel=need(config.conv_kernel),
        dtype=config.mamba_ssm_cache_dtype or "float32",
    )


def granite_mamba(config: ShapeConfig) -> LinearAttention:
    """Mamba 2 by the names of Granite 4 and Bamba."""
    count, width = need(config.mamba_n_heads), config.mamba_d_head
    if not isinstance(width, int):  # `auto`
        width = need(config.mamba_expand) * need(config.hidden_size) // count
    return _mamba(
        count=count,
        width=need(width),
        state=need(config.mamba_d_state),
        groups=need(config.mamba_n_groups),
        kernel=need(config.mamba_d_conv),
    )


def _mamba(
    *, count: int, width: int, state: int, groups: int, kernel: int, dtype: str | None = None
) -> LinearAttention:
    inner = count * width
    return LinearAttention(
        conv_dim=inner + 2 * groups * state,
        conv_kernel=kernel,
        heads=count,
        head_state=width * state,
        projected=2 * inner + 2 * groups * state + count,
        inner=inner,
        state_dtype=dtype,
    )


def mlp(config: ShapeConfig) -> FeedForward:
    """One gated feed-forward for all tokens."""
    return FeedForward(intermediate=need(config.intermediate_size))


def qwen_experts(config: ShapeConfig, index: int) -> FeedForward:
    """Qwen's experts beside a shared one; some layers are dense."""
    sparse = (index + 1) % (config.decoder_sparse_step or 1) == 0
    if not sparse or index in (config.mlp_only_layers or ()):
        return mlp(config)
    return FeedForward(
        intermediate=config.shared_expert_intermediate_size or 0,
        experts=need(config.num_experts),
        experts_per_token=need(config.num_experts_per_tok),
        expert_intermediate=need(config.moe_intermediate_size),
    )


def routed(config: ShapeConfig, index: int) -> FeedForward:
    """DeepSeek's way: the first layers dense, then routed experts beside shared ones of the same width."""
    if not config.n_routed_experts or index < (config.first_k_dense_replace or 0):
        return mlp(config)
    if config.moe_layer_freq not in (None, 1):
        raise Unknown
    width = need(config.moe_intermediate_size)
    return FeedForward(
        intermediate=width * (config.n_shared_experts or 0),
        experts=config.n_routed_experts,
        experts_per_token=need(config.num_experts_per_tok),
        expert_intermediate=width,
    )


def nemotron_experts(config: ShapeConfig) -> FeedForward:
    """Experts with two matrices each, beside shared ones of another width."""
    return FeedForward(
        intermediate=(config.moe_shared_expert_intermediate_size or 0) * (config.n_shared_experts or 0),
        experts=need(config.n_routed_experts),
        experts_per_token=need(config.num_experts_per_tok),
        expert_intermediate=need(config.moe_intermediate_size),
        gated=False,
    )


def granite_experts(config: ShapeConfig) -> FeedForward:
    """Experts beside a shared one, or the shared one alone."""
    if not config.num_local_experts:
        return FeedForward(intermediate=config.shared_intermediate_size or need(config.intermediate_size))
    return FeedForward(
        intermediate=config.shared_intermediate_size or 0,
        experts=config.num_local_experts,
        experts_per_token=need(config.num_experts_per_tok),
        expert_intermediate=need(config.intermediate_size),
    )
