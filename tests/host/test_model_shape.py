"""What of a config.json decides memory, held against what is published of well-known models."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from autotune.decide.memory.ask import read_ask
from autotune.decide.memory.pages import Host, cache_of
from autotune.decide.memory.weights import parameters
from autotune.domain.model_shape import Attention, LinearAttention, ModelShape, Part, Quantization
from autotune.host.model_shape import read_shape

Config = Mapping[str, object]

LLAMA_31_8B: Config = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}
DEEPSEEK_V3: Config = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "n_shared_experts": 1,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "vocab_size": 129280,
    "tie_word_embeddings": False,
    "num_nextn_predict_layers": 1,
    "quantization_config": {"quant_method": "fp8"},
}
DEEPSEEK_V2_LITE: Config = {
    **DEEPSEEK_V3,
    "model_type": "deepseek_v2",
    "hidden_size": 2048,
    "intermediate_size": 10944,
    "moe_intermediate_size": 1408,
    "num_hidden_layers": 27,
    "n_routed_experts": 64,
    "num_experts_per_tok": 6,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "q_lora_rank": None,
    "num_attention_heads": 16,
    "vocab_size": 102400,
    "num_nextn_predict_layers": None,
    "quantization_config": None,
}
MIXTRAL_8X7B: Config = {
    **LLAMA_31_8B,
    "model_type": "mixtral",
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "vocab_size": 32000,
    "sliding_window": None,
}
QWEN25_7B: Config = {
    **LLAMA_31_8B,
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "use_sliding_window": False,
    "sliding_window": 131072,
    "max_window_layers": 28,
}
PHI4_MINI: Config = {
    **LLAMA_31_8B,
    "model_type": "phi3",
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_attention_heads": 24,
    "vocab_size": 200064,
    "sliding_window": 262144,
    "tie_word_embeddings": True,
}
GEMMA2_9B: Config = {
    "model_type": "gemma2",
    "hidden_size": 3584,
    "intermediate_size": 14336,
    "num_hidden_layers": 42,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 256,
    "vocab_size": 256000,
    "sliding_window": 4096,
}
GPT_OSS_20B: Config = {
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_hidden_layers": 24,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "num_local_experts": 32,
    "num_experts_per_tok": 4,
    "vocab_size": 201088,
    "sliding_window": 128,
    "tie_word_embeddings": False,
    "quantization_config": {"quant_method": "mxfp4"},
}
QWEN3_NEXT_80B: Config = {
    "model_type": "qwen3_next",
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
}
NEMOTRON_H_8B: Config = {
    "model_type": "nemotron_h",
    "hidden_size": 4096,
    "intermediate_size": 21504,
    "num_hidden_layers": 52,
    "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "attention_head_dim": 128,
    "mamba_num_heads": 128,
    "mamba_head_dim": 64,
    "ssm_state_size": 128,
    "n_groups": 8,
    "conv_kernel": 4,
    "vocab_size": 131072,
    "tie_word_embeddings": False,
}
GRANITE_4_SMALL: Config = {
    "model_type": "granitemoehybrid",
    "hidden_size": 4096,
    "intermediate_size": 768,
    "shared_intermediate_size": 1536,
    "num_local_experts": 72,
    "num_experts_per_tok": 10,
    "num_hidden_layers": 40,
    "layer_types": ["attention" if index in (5, 15, 25, 35) else "mamba" for index in range(40)],
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "mamba_n_heads": 128,
    "mamba_d_head": "auto",
    "mamba_d_state": 128,
    "mamba_n_groups": 1,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "vocab_size": 100352,
    "tie_word_embeddings": True,
}


def _shape(config: Config) -> ModelShape:
    shape = read_shape(config)
    assert shape is not None
    return shape


@pytest.mark.parametrize(
    ("config", "billions"),
    [
        (LLAMA_31_8B, 8.03),
        (DEEPSEEK_V3, 671.0),
        (DEEPSEEK_V2_LITE, 15.7),
        (MIXTRAL_8X7B, 46.7),
        (QWEN25_7B, 7.62),
        (PHI4_MINI, 3.836),
        (GEMMA2_9B, 9.24),
        (GPT_OSS_20B, 20.9),
        (QWEN3_NEXT_80B, 79.7),
        (NEMOTRON_H_8B, 8.1),
        (GRANITE_4_SMALL, 32.2),
    ],
    ids=lambda value: value["model_type"] if isinstance(value, dict) else "",
)
def test_the_parameters_are_as_many_as_published(config: Config, billions: float) -> None:
    assert parameters(_shape(config)) / 1e9 == pytest.approx(billions, rel=0.001)


@pytest.mark.parametrize(
    ("config", "bytes_per_token"),
    [
        (LLAMA_31_8B, 131072),
        (DEEPSEEK_V3, 61 * 576 * 2),
        (GEMMA2_9B, 21 * 2 * 8 * 256 * 2),  # half of its layers keep the last 4096 tokens only
        (GPT_OSS_20B, 12 * 2 * 8 * 64 * 2),
        (QWEN3_NEXT_80B, 12 * 2 * 2 * 256 * 2),
        (NEMOTRON_H_8B, 4 * 2 * 8 * 128 * 2),
    ],
    ids=lambda value: value["model_type"] if isinstance(value, dict) else "",
)
def test_keys_and_values_of_a_token(config: Config, bytes_per_token: int) -> None:
    host = Host(on_cpu=False, caches_prefixes=True)
    cache = cache_of(_shape(config), None, read_ask({}), host, in_flight_tokens=2048)
    assert cache is not None
    assert cache.bytes_per_token == bytes_per_token


def test_a_window_bounds_what_a_request_takes() -> None:
    host = Host(on_cpu=False, caches_prefixes=True)
    cache = cache_of(_shape(GEMMA2_9B), None, read_ask({}), host, in_flight_tokens=2048)
    assert cache is not None
    layer_bytes = 2 * 8 * 256 * 2
    blocks = (4096 - 1 + 2048) // 16 + 1 + 1  # of the window, begun anywhere, and a step
    assert cache.request_bytes(100_000) == 21 * layer_bytes * (100_000 + 16 * blocks)


def _windows(config: Config) -> Mapping[int | None, int]:
    """How many layers have attention with which window."""
    kinds = [kind for kind in _shape(config).layers if isinstance(kind.mixer, Attention)]
    return {kind.mixer.window: kind.count for kind in kinds if isinstance(kind.mixer, Attention)}


def test_layers_of_each_kind() -> None:
    assert _windows(GEMMA2_9B) == {4096: 21, None: 21}
    gemma3 = {**GEMMA2_9B, "model_type": "gemma3_text", "sliding_window": 512, "sliding_window_pattern": 6}
    assert _windows(gemma3) == {512: 35, None: 7}
    assert _windows(QWEN25_7B) == {None: 28}  # `use_sliding_window` is false
    assert _windows({**QWEN25_7B, "use_sliding_window": True, "max_window_layers": 20}) == {
        None: 20,
        131072: 8,
    }
    assert _windows(PHI4_MINI) == {262144: 32}
    assert _windows(QWEN3_NEXT_80B) == {None: 12}
    linear = [k.count for k in _shape(QWEN3_NEXT_80B).layers if isinstance(k.mixer, LinearAttention)]
    assert linear == [36]


def test_the_language_model_of_one_that_sees_stands_apart() -> None:
    text = {**QWEN3_NEXT_80B, "model_type": "qwen3_5_moe_text", "mtp_num_hidden_layers": 1}
    quantized = {"quant_method": "fp8"}
    whole = {"model_type": "qwen3_5_moe", "text_config": text, "quantization_config": quantized}
    shape = _shape(whole)
    assert shape.mtp_layers == 1
    assert shape.quantization == Quantization(method="fp8", bits=8)
    assert shape.mtp == replace(shape.layers[-1], count=1)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 128},
            Quantization(method="gptq", bits=4, group=128, zero_points=True),
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"a": {"weights": {"num_bits": 8, "group_size": None}}},
                "kv_cache_scheme": {"num_bits": 8, "type": "float"},
                "ignore": ["lm_head", "re:.*self_attn.*", "model.layers.0.mlp.experts.3.up_proj"],
            },
            Quantization(method="compressed-tensors", bits=8, kv_bits=8, kept=frozenset({Part.ATTENTION})),
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"a": {"weights": {"num_bits": 8}}, "b": {"weights": {"num_bits": 4}}},
            },
            Quantization(method="compressed-tensors"),
        ),
        (
            {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"},
            Quantization(method="modelopt", bits=4, group=32, kv_bits=8),
        ),
        (
            {"quant_method": "mxfp4"},
            Quantization(method="mxfp4", bits=4, group=64, kept=frozenset(Part) - {Part.EXPERTS}),
        ),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, Quantization(method="bitsandbytes", bits=4)),
        ({"quant_method": "quark"}, Quantization(method="quark")),
    ],
    ids=lambda value: value["quant_method"] if isinstance(value, dict) else "",
)
def test_quantizations(content: Config, expected: Quantization) -> None:
    assert _shape({**LLAMA_31_8B, "quantization_config": content}).quantization == expected


@pytest.mark.parametrize(
    "config",
    [
        None,
        [],
        {},
        {**LLAMA_31_8B, "model_type": "gemma3n"},  # shares its cache between layers
        {**LLAMA_31_8B, "num_attention_heads": None},
        {**LLAMA_31_8B, "num_attention_heads": 0},
        {**LLAMA_31_8B, "hidden_size": "4096"},
        {**LLAMA_31_8B, "num_hidden_layers": 10**9},
        {**LLAMA_31_8B, "layer_types": ["full_attention"] * 31},
        {**LLAMA_31_8B, "layer_types": ["chunked_attention"] * 32},
        {**LLAMA_31_8B, "quantization_config": []},
        {**DEEPSEEK_V3, "index_topk": 2048},  # keeps a second cache for its indexer
        {**DEEPSEEK_V3, "kv_lora_rank": None},
        {**NEMOTRON_H_8B, "hybrid_override_pattern": "M-?"},
        {**GRANITE_4_SMALL, "layer_types": None},
    ],
)
def test_what_is_not_understood_has_no_shape(config: object) -> None:
    assert read_shape(config) is None
