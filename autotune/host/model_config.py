"""The fields of a config.json that say how a language model is built, by the names its makers gave them."""

from typing import Annotated

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0)] | None
"""Zero is how some configs say that there is none."""


class ShapeConfig(msgspec.Struct):
    """What the families of `autotune.host.model_layers` are told by; None where a config says nothing."""

    model_type: str | None = None
    hidden_size: Count = None
    vocab_size: Count = None
    num_hidden_layers: Count = None
    intermediate_size: Count = None
    tie_word_embeddings: bool | None = None
    dtype: str | None = None
    torch_dtype: str | None = None

    # Attention
    num_attention_heads: Count = None
    num_key_value_heads: Count = None
    head_dim: Count = None
    attention_head_dim: Count = None
    sliding_window: Count = None
    use_sliding_window: bool | None = None
    max_window_layers: Count = None
    sliding_window_pattern: Count = None
    layer_types: list[str] | None = None

    # Latent attention
    kv_lora_rank: Count = None
    q_lora_rank: Count = None
    qk_rope_head_dim: Count = None
    qk_nope_head_dim: Count = None
    v_head_dim: Count = None
    index_topk: Count = None
    """There is an indexer, which keeps a cache of its own (DeepSeek V3.2)."""

    # Linear attention: gated delta net, and Mamba 2 under two sets of names
    linear_num_key_heads: Count = None
    linear_num_value_heads: Count = None
    linear_key_head_dim: Count = None
    linear_value_head_dim: Count = None
    linear_conv_kernel_dim: Count = None
    full_attention_interval: Count = None
    mamba_ssm_dtype: str | None = None
    mamba_num_heads: Count = None
    mamba_head_dim: Count = None
    ssm_state_size: Count = None
    n_groups: Count = None
    conv_kernel: Count = None
    mamba_ssm_cache_dtype: str | None = None
    hybrid_override_pattern: str | None = None
    mamba_n_heads: Count = None
    mamba_d_head: int | str | None = None
    mamba_d_state: Count = None
    mamba_n_groups: Count = None
    mamba_d_conv: Count = None
    mamba_expand: Count = None
    attn_layer_indices: list[int] | None = None

    # Experts
    num_experts: Count = None
    num_local_experts: Count = None
    n_routed_experts: Count = None
    num_experts_per_tok: Count = None
    moe_intermediate_size: Count = None
    n_shared_experts: Count = None
    shared_expert_intermediate_size: Count = None
    shared_intermediate_size: Count = None
    moe_shared_expert_intermediate_size: Count = None
    moe_latent_size: Count = None
    first_k_dense_replace: Count = None
    moe_layer_freq: int | list[int] | None = None
    decoder_sparse_step: Count = None
    mlp_only_layers: list[int] | None = None

    # Multi-token prediction
    num_nextn_predict_layers: Count = None
    mtp_num_hidden_layers: Count = None


class Unknown(Exception):
    """The config does not say what must be known, or says what is not understood."""


def need(value: int | None) -> int:
    """`value`; raises Unknown where there is none, or zero."""
    if not value:
        raise Unknown
    return value
