"""What was asked for against what is: real logs, and for each check a few lines that only it knows."""

from dataclasses import replace

import pytest
from builders import point
from readings import BOOK, info, read_back, recorded, recorded_metrics

from autotune.domain.effective import Difference, DifferenceKind
from autotune.domain.machine import Device
from autotune.domain.measurement import ServerCounts
from autotune.domain.space import Value

NO_EFFECT, CHANGED = DifferenceKind.NO_EFFECT, DifferenceKind.CHANGED
HEALTHY = (
    *("cpu-0.32/a1-llama-eager", "cpu-0.32/e4-llama-ngram-eager", "cpu-0.32/f12c-kvfp8"),
    *("cpu-0.32/d2b-qwen35moe-dflash-noapc-eager", "cpu-0.32/h-mid-omp2", "cpu-0.32/h-mid-seqs1"),
    *("h200-0.26/s2_llama8b_default", "h200-0.26/v1_eager", "h200-0.26/v2_ngram", "h200-0.26/v3_seqs8"),
    *("h200-0.26/v6_batched512", "h200-0.26/c4_moe_kvfp8", "h200-0.26/c2_moe_batched32768"),
)


@pytest.mark.parametrize("name", HEALTHY)
def test_settings_that_took_effect_are_not_told(name: str) -> None:
    assert recorded(name).differences == ()


def test_preempted_server_whose_number_of_blocks_was_taken() -> None:
    metrics = recorded_metrics("v5_blocks_preempt")
    assert recorded("h200-0.26/v5_blocks_preempt", metrics).differences == ()


def test_offloading_that_the_second_runner_ignores() -> None:
    (difference,) = recorded("h200-0.26/v4_offload8").differences
    assert difference == Difference(
        setting="cpu_offload_gb",
        requested=8,
        effective=None,
        kind=NO_EFFECT,
        sentence="no weights were offloaded: all 13.54 GiB are on the GPU (model runner V2)",
    )


def test_offloading_that_the_first_runner_does() -> None:
    assert _settings("h200-0.26/b1_offload8_v1runner") == [("gpu_memory_utilization", NO_EFFECT)]


def test_a_thread_bound_to_a_cpu_that_is_not_there() -> None:
    assert _settings("cpu-0.32/f04-bind-cpu9") == [("VLLM_CPU_OMP_THREADS_BIND", NO_EFFECT)]
    found = recorded("cpu-0.32/f04d-bind-8-seed").differences
    assert [(d.setting, d.requested, d.effective) for d in found] == [
        ("VLLM_CPU_OMP_THREADS_BIND", 8, None),
        ("OMP_NUM_THREADS", 8, 1),
    ]


def test_offloading_on_a_cpu() -> None:
    assert _settings("cpu-0.32/d6-qwen35moe-ct4-g64-dflash-seedlike") == [
        ("cpu_offload_gb", NO_EFFECT),
        ("cpu_offload_params", NO_EFFECT),
        ("gpu_memory_utilization", NO_EFFECT),
    ]


def test_a_server_that_died_early_says_nothing_of_its_offloading() -> None:
    log = "h200-0.26/g4_weights_oom"
    assert recorded(log).differences == ()
    assert read_back(info("Loading model from scratch..."), ["--cpu-offload-gb", "8"]).differences == ()


def test_old_versions_do_not_tell_what_they_offload() -> None:
    lines = info(
        "Initializing a V1 LLM engine (v0.11.0) with config: x", "Model loading took 9.7 GiB and 41 s"
    )
    assert read_back(lines, ["--cpu-offload-gb", "30"]).differences == ()


DUMP = "Initializing a V1 LLM engine (v0.32.0) with config: model='m', "
CASES: list[tuple[list[str], list[str], tuple[str, Value, Value | None, DifferenceKind]]] = [
    (
        ["--cpu-offload-gb", "8"],
        [DUMP, "Model loading took 13.54 GiB and 1.8 seconds"],
        ("cpu_offload_gb", 8, None, NO_EFFECT),
    ),
    (
        ["--cpu-offload-gb", "8"],
        ["Total CPU offloaded parameters: 0.00", "Model loading took 13.54 GiB and 1.8 seconds"],
        ("cpu_offload_gb", 8, 0, NO_EFFECT),
    ),
    (["--cpu-offload-gb=8"], ["Total CPU offloaded parameters: 3.6"], ("cpu_offload_gb", 8, 3.6, CHANGED)),
    (
        ["--max-num-batched-tokens", "2k"],
        ["Chunked prefill is enabled with max_num_batched_tokens=8192."],
        ("max_num_batched_tokens", 2000, 8192, CHANGED),
    ),
    (
        ["--max-num-batched-tokens", "4096"],
        ["max_num_scheduled_tokens is set to 3840 based on the speculative decoding settings."],
        ("max_num_batched_tokens", 4096, 3840, CHANGED),
    ),
    (
        ["--enable-prefix-caching"],
        ["Disabling prefix caching: model has non-causal attention layers."],
        ("enable_prefix_caching", True, False, CHANGED),
    ),
    (
        ["--no-enable-prefix-caching"],
        [DUMP + "enable_prefix_caching=True, x"],
        ("enable_prefix_caching", False, True, CHANGED),
    ),
    (
        ["--enable-chunked-prefill"],
        ["Disabling chunked prefill: model has non-causal attention layers."],
        ("enable_chunked_prefill", True, False, CHANGED),
    ),
    (
        ["--kv-cache-dtype", "fp8"],
        [DUMP + "kv_cache_dtype=auto, x"],
        ("kv_cache_dtype", "fp8", "auto", CHANGED),
    ),
    (
        ["--attention-backend", "FLASHINFER"],
        ["Using FLASH_ATTN attention backend out of potential backends"],
        ("attention_backend", "FLASHINFER", "FLASH_ATTN", CHANGED),
    ),
    (
        ["VLLM_ATTENTION_BACKEND=FLASHINFER"],
        ["Using FLASH_ATTN attention backend out of potential backends"],
        ("VLLM_ATTENTION_BACKEND", "FLASHINFER", "FLASH_ATTN", CHANGED),
    ),
    (
        ["--linear-backend", "marlin"],
        [
            "WARNING --linear-backend=marlin was requested, but no marlin kernel exists for fp8 layers; ...",
            "Using MacheteLinearKernel for Some",
        ],
        ("linear_backend", "marlin", "marlin", NO_EFFECT),
    ),
    (["--enforce-eager"], [DUMP + "enforce_eager=False, x"], ("enforce_eager", True, False, CHANGED)),
    (
        ["--max-cudagraph-capture-size", "64"],
        [DUMP + "{'cudagraph_mode': <CUDAGraphMode.NONE: 0>}"],
        ("max_cudagraph_capture_size", 64, None, NO_EFFECT),
    ),
    (
        ["--max-cudagraph-capture-size", "64"],
        [DUMP + "{'cudagraph_mode': <CUDAGraphMode.FULL: 2>, 'max_cudagraph_capture_size': 32}"],
        ("max_cudagraph_capture_size", 64, 32, CHANGED),
    ),
    (
        ["--cudagraph-capture-sizes", "1", "2"],
        [DUMP + "{'cudagraph_mode': <CUDAGraphMode.NONE: 0>}"],
        ("cudagraph_capture_sizes", "1 2", None, NO_EFFECT),
    ),
    (
        ["--compilation-config", '{"cudagraph_mode": "FULL"}'],
        [DUMP + "{'cudagraph_mode': <CUDAGraphMode.PIECEWISE: 1>}"],
        ("compilation_config_cudagraph_mode", "FULL", "PIECEWISE", CHANGED),
    ),
    (
        ["--speculative-config", '{"method": "ngram"}'],
        [DUMP + "speculative_config=None, x"],
        ("speculative_config", '{"method": "ngram"}', "off", NO_EFFECT),
    ),
    (
        ["--speculative-config", '{"num_speculative_tokens": 8}'],
        [DUMP + "speculative_config=SpeculativeConfig(method='mtp', model='m', num_spec_tokens=1), x"],
        ("speculative_config_num_speculative_tokens", 8, 1, CHANGED),
    ),
    (
        ["--gpu-memory-utilization", "0.8"],
        ["reserved 2.5 GiB memory for KV Cache as specified by kv_cache_memory_bytes"],
        ("gpu_memory_utilization", 0.8, None, NO_EFFECT),
    ),
    (
        ["--max-model-len", "-1"],
        ["Auto-fit max_model_len: reduced from 131072 to 62864 to fit"],
        ("max_model_len", -1, 62864, CHANGED),
    ),
    (
        ["--async-scheduling"],
        ["WARNING Async scheduling will be disabled because it is not supported with the `ray` executor"],
        ("async_scheduling", True, False, CHANGED),
    ),
    (
        ["--block-size", "32"],
        ["Setting attention block size to 640 tokens to ensure that attention page size is"],
        ("block_size", 32, 640, CHANGED),
    ),
    (
        ["--mamba-cache-mode", "align"],
        ["WARNING Mamba cache mode is set to 'none' when prefix caching is disabled"],
        ("mamba_cache_mode", "align", "none", CHANGED),
    ),
    (
        ["--num-gpu-blocks-override", "4096"],
        ["Overriding num_gpu_blocks=58358 with num_gpu_blocks_override=1024"],
        ("num_gpu_blocks_override", 4096, 1024, CHANGED),
    ),
    (
        ["VLLM_USE_V2_MODEL_RUNNER=0"],
        ["Using V2 Model Runner"],
        ("VLLM_USE_V2_MODEL_RUNNER", 0, "V2", CHANGED),
    ),
    (["--dtype", "float16"], [DUMP + "dtype=torch.bfloat16, x"], ("dtype", "float16", "bfloat16", CHANGED)),
]


@pytest.mark.parametrize(("asked", "bodies", "expected"), CASES, ids=lambda value: str(value)[:60])
def test_each_check(
    asked: list[str], bodies: list[str], expected: tuple[str, Value, Value | None, DifferenceKind]
) -> None:
    argv, env = _words(asked)
    found = read_back(_log(bodies), argv, env).differences
    of_setting = [(d.setting, d.requested, d.effective, d.kind) for d in found if d.setting == expected[0]]
    assert of_setting == [expected]
    assert all("{" not in d.sentence.replace('{"', "") for d in found)
    assert read_back(_log(bodies)).differences == ()
    assert read_back("", argv, env).differences == ()


def test_every_check_has_a_case() -> None:
    cases = {(expected[0], expected[3]) for _, _, expected in CASES}
    elsewhere = {("VLLM_CPU_OMP_THREADS_BIND", NO_EFFECT), ("OMP_NUM_THREADS", CHANGED)}
    assert {(check.setting, check.kind) for check in BOOK.checks} == cases | elsewhere


def test_speculation_that_never_drafted() -> None:
    argv = ["--speculative-config", '{"method":"ngram","num_speculative_tokens":3}']
    log = info(
        DUMP + "speculative_config=SpeculativeConfig(method='ngram', model=None, num_spec_tokens=3), x"
    )
    silent = replace(point(1, 10.0), server=ServerCounts(draft_tokens=0))
    busy = replace(point(2, 10.0), server=ServerCounts(draft_tokens=30))
    (difference,) = read_back(log, argv, points=(silent,)).differences
    assert (difference.setting, difference.kind, difference.effective) == ("speculative_config", NO_EFFECT, 0)
    assert read_back(log, argv, points=(silent, busy)).differences == ()
    assert read_back(log, argv, points=(point(1, 10.0),)).differences == ()


def test_variables_of_the_other_device_have_no_effect() -> None:
    env = {"VLLM_CPU_KVCACHE_SPACE": "4"}
    assert [d.setting for d in read_back("", env=env).differences] == ["VLLM_CPU_KVCACHE_SPACE"]
    assert read_back("", env=env, device=Device.CPU).differences == ()


def test_settings_without_effect_come_first() -> None:
    log = info(DUMP + "dtype=torch.bfloat16, x", "Model loading took 13.54 GiB and 1.8 seconds")
    found = read_back(log, ["--dtype", "float16", "--cpu-offload-gb", "8"])
    assert [d.kind for d in found.differences] == [NO_EFFECT, CHANGED]
    assert found.without_effect == ("cpu_offload_gb",)


def _words(asked: list[str]) -> tuple[list[str], dict[str, str]]:
    env = dict(word.split("=", 1) for word in asked if word.startswith("VLLM_"))
    return [word for word in asked if not word.startswith("VLLM_")], env


def _log(bodies: list[str]) -> str:
    return "\n".join(
        info(body.removeprefix("WARNING "), level="WARNING" if body.startswith("WARNING ") else "INFO")
        for body in bodies
    )


def _settings(name: str) -> list[tuple[str, DifferenceKind]]:
    return [(d.setting, d.kind) for d in recorded(name).differences]
