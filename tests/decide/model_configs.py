"""The config.json of the models that the recorded logs are of, and of some well-known ones."""

from collections.abc import Mapping

Config = Mapping[str, object]


def _config(base: Config, **changes: object) -> Config:
    return {**base, **changes}


_TINY = {"vocab_size": 4096, "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4}
_TINY |= {"num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 704, "dtype": "bfloat16"}
_TINY |= {"max_position_embeddings": 8192, "tie_word_embeddings": False}

LLAMA = _config(_TINY, model_type="llama")
QWEN35MOE = _config(
    _TINY,
    model_type="qwen3_5_moe_text",
    intermediate_size=None,
    layer_types=["linear_attention"] * 3 + ["full_attention"],
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    linear_key_head_dim=128,
    linear_value_head_dim=128,
    linear_conv_kernel_dim=4,
    num_experts=8,
    num_experts_per_tok=2,
    moe_intermediate_size=128,
    shared_expert_intermediate_size=128,
    mtp_num_hidden_layers=1,
)


def _awq(group: int) -> Config:
    return {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True}


def _int4(group: int, *, symmetric: bool = True, ignore: tuple[str, ...] = ()) -> Config:
    weights = {"num_bits": 4, "type": "int", "symmetric": symmetric, "group_size": group}
    return {
        "quant_method": "compressed-tensors",
        "ignore": list(ignore),
        "kv_cache_scheme": None,
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }


_H200 = {"dtype": "bfloat16", "vocab_size": 32000, "head_dim": 128, "hidden_size": 4096}
_H200 |= {"num_attention_heads": 32, "num_key_value_heads": 8, "tie_word_embeddings": False}

LLAMA_8B = _config(
    _H200,
    model_type="llama",
    intermediate_size=14336,
    num_hidden_layers=32,
    max_position_embeddings=131072,
)
QWEN3_8B = _config(
    _H200,
    model_type="qwen3",
    intermediate_size=12288,
    num_hidden_layers=36,
    max_position_embeddings=40960,
    sliding_window=None,
    use_sliding_window=False,
    max_window_layers=28,
)

CONFIGS: Mapping[str, Config] = {
    # cpu-0.32
    "llama": LLAMA,
    "qwen3": _config(LLAMA, model_type="qwen3", layer_types=["full_attention"] * 4),
    "llama-awq": _config(LLAMA, quantization_config=_awq(32)),
    "llama-ct4": _config(LLAMA, quantization_config=_int4(32)),
    "llama-ct4-asym": _config(LLAMA, quantization_config=_int4(32, symmetric=False)),
    "qwen35moe": QWEN35MOE,
    "qwen35moe-awq": _config(QWEN35MOE, quantization_config=_awq(32)),
    "qwen35moe-ct4-attnonly": _config(QWEN35MOE, quantization_config=_int4(32)),
    "qwen35moe-ct4-g64": _config(QWEN35MOE, quantization_config=_int4(64)),
    "dflash": _config(LLAMA, model_type="qwen3", num_hidden_layers=2, intermediate_size=512),
    "eagle3": _config(LLAMA, num_hidden_layers=1, intermediate_size=512),
    "draft-llama": _config(
        LLAMA,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
    ),
    "dflash-badlayers": _config(LLAMA, model_type="qwen3", num_hidden_layers=2, intermediate_size=512),
    # As tools/make_tiny_model.py makes it.
    **dict.fromkeys(
        ("tiny", "mid"),
        _config(
            LLAMA,
            hidden_size=512,
            intermediate_size=1408,
            num_hidden_layers=8,
            num_attention_heads=8,
            num_key_value_heads=4,
        ),
    ),
    # h200-0.26
    "llama8b": LLAMA_8B,
    **{
        f"llama{layers}l": _config(
            LLAMA_8B,
            hidden_size=8192,
            intermediate_size=28672,
            num_hidden_layers=layers,
            num_attention_heads=64,
        )
        for layers in (86, 100)
    },
    "qwen3_06b": _config(
        QWEN3_8B,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        tie_word_embeddings=True,
    ),
    "qwen3_8b": QWEN3_8B,
    "qwen3_8b_awq": _config(QWEN3_8B, quantization_config=_awq(128)),
    "qwen3_30b_a3b": _config(
        QWEN3_8B,
        model_type="qwen3_moe",
        hidden_size=2048,
        intermediate_size=6144,
        num_hidden_layers=48,
        num_key_value_heads=4,
        num_experts=128,
        num_experts_per_tok=8,
        moe_intermediate_size=768,
        decoder_sparse_step=1,
        mlp_only_layers=[],
    ),
}
"""By the name of the model's directory in the log."""
