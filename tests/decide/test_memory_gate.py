"""What the memory gate refuses, what it learns, and the laws it keeps."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from builders import failed, failure, measured, record
from hypothesis import given
from hypothesis import strategies as st
from memory_lab import GIB, model, on_cpu, on_gpu, recorded, space_of
from model_configs import CONFIGS

from autotune.decide.memory.estimate import MemoryModel, draft_names, memory_model
from autotune.decide.memory.gate import MemoryGate, Shortage
from autotune.domain.effective import Effective
from autotune.domain.failure import FailureKind
from autotune.domain.machine import Environment, Model
from autotune.domain.space import Configuration, Fixed, Target, TargetKind, Value
from autotune.domain.trial import Failed, TrialRecord

NAMES = (
    *("max_model_len", "gpu_memory_utilization", "kv_cache_dtype", "max_num_batched_tokens", "max_num_seqs"),
    *("enforce_eager", "kv_cache_memory_bytes", "cpu_offload_gb", "tensor_parallel_size", "dtype"),
    *("quantization", "performance_mode", "VLLM_CPU_KVCACHE_SPACE", "enable_prefix_caching"),
    *(
        "speculative_config__method",
        "speculative_config__model",
        "speculative_config__num_speculative_tokens",
    ),
    *("pipeline_parallel_size", "hf_overrides", "offload_group_size", "num_gpu_blocks_override"),
    *("language_model_only", "block_size", "enable_expert_parallel", "data_parallel_size"),
)
SPACE = space_of(NAMES)
CARD = on_gpu(24 * GIB, name="24 GB card", version="0.32.0")
GATE_DRAFT = replace(model("draft-llama"), name="/models/draft")


def memory(name: str = "llama8b", here: Environment = CARD, draft: Model | None = None) -> MemoryModel:
    found = memory_model(here, model(name), draft)
    assert found is not None
    return found


def gate(name: str = "llama8b", here: Environment = CARD, known: tuple[TrialRecord, ...] = ()) -> MemoryGate:
    return memory(name, here, GATE_DRAFT).calibrated(SPACE, known)


def shortage(values: Mapping[str, Value], over: MemoryGate | None = None) -> Shortage | None:
    return (over or gate()).shortage(Configuration(values=values))


def trial(values: dict[str, Value], number: int = 0, **facts: Value) -> TrialRecord:
    return replace(record(number, measured(s1=1.0), values), effective=Effective(facts=facts))


# ---------------------------------------------------------------- what is refused


def test_a_request_that_does_not_fit_beside_the_weights() -> None:
    short = shortage({"max_model_len": 131072})
    assert short is not None
    assert short.why.startswith("one request of 131,072 tokens needs 16.0 GiB of KV cache, and about 7.")
    assert short.ratio == short.needed_bytes / short.available_bytes > 1
    assert shortage({"max_model_len": 32768}) is None
    # A model's own longest context is what it serves when nothing is said.
    assert shortage({}) == short


def test_less_is_needed_in_8_bits_and_there_is_more_with_offloading_and_on_more_devices() -> None:
    too_long = {"max_model_len": 98304}
    assert shortage(too_long) is not None
    for cure in ({"kv_cache_dtype": "fp8"}, {"cpu_offload_gb": 8}, {"tensor_parallel_size": 2}):
        assert shortage({**too_long, **cure}) is None


def test_a_draft_takes_memory_too() -> None:
    for method, draft in (("draft_model", "/models/draft"), ("ngram", None)):
        values: dict[str, Value] = {
            "speculative_config__method": method,
            "speculative_config__num_speculative_tokens": 3,
        }
        if draft:
            values["speculative_config__model"] = draft
        with_it = gate().estimate(Configuration(values=values))
        without = gate().estimate(Configuration(values={}))
        assert with_it is not None
        assert without is not None
        assert (with_it.weights_bytes > without.weights_bytes) == (draft is not None)
        assert (with_it.kv_bytes_per_token > without.kv_bytes_per_token) == (draft is not None)


def test_on_a_cpu_the_stated_size_has_to_hold_one_request() -> None:
    here = gate("llama", on_cpu())
    stated = {"kv_cache_memory_bytes": 8 * 2**20, "max_model_len": 4096}
    assert shortage(stated, here) is None
    assert shortage({**stated, "max_model_len": 4097}, here) is not None
    assert shortage({**stated, "kv_cache_memory_bytes": "8M"}, here) is None
    # The variable goes before the flag.
    assert shortage({**stated, "max_model_len": 8192, "VLLM_CPU_KVCACHE_SPACE": 1}, here) is None
    too_large = shortage({"VLLM_CPU_KVCACHE_SPACE": 64}, here)
    assert too_large is not None
    assert too_large.why == "a KV cache of 64.0 GiB and 9.6 MiB of weights do not fit into 23.6 GiB"
    # Without a size vLLM takes what is free when it starts.
    assert shortage({"max_model_len": 4096}, here) is None
    assert here.estimate(Configuration(values={"max_model_len": 4096})) is None


def test_a_context_that_vllm_fits_to_the_memory_is_not_refused() -> None:
    for auto in (-1, "auto"):
        estimate = gate().estimate(Configuration(values={"max_model_len": auto}))
        assert estimate is not None
        assert estimate.request_tokens == 1
        assert shortage({"max_model_len": auto}) is None


def test_drafted_tokens_make_the_state_of_a_hybrid_larger() -> None:
    here = memory("qwen35moe", on_cpu()).estimator
    drafting = {"speculative_config__method": "ngram", "speculative_config__num_speculative_tokens": 60}
    blocks = []
    for values in ({}, drafting):
        reading = here.read({"kv_cache_memory_bytes": GIB, **values})
        assert reading is not None
        blocks.append(max(kind.block_tokens or 0 for kind in reading.cache.kinds))
    # 3 columns of the convolution and 4 x 128 x 128 numbers of 32 bits at 512 bytes a token; then 63 columns.
    assert blocks == [640, 768]


@pytest.mark.parametrize(
    "beyond",
    [
        {"pipeline_parallel_size": 2},
        {"hf_overrides": "{}"},
        {"offload_group_size": 4},
        {"enable_expert_parallel": True, "data_parallel_size": 2},
        {"kv_cache_dtype": "nvfp4"},
        {"quantization": "hqq"},
        {"speculative_config__model": "/models/other"},
        {"speculative_config__method": "medusa", "speculative_config__model": "/models/draft"},
        {"speculative_config__method": "mtp"},  # the model has none
        {"speculative_config__num_speculative_tokens": 3},
        {"max_num_batched_tokens": "many"},
        {"gpu_memory_utilization": -1},
    ],
)
def test_what_is_not_understood_is_not_estimated(beyond: Mapping[str, Value]) -> None:
    assert shortage({"max_model_len": 131072, **beyond}) is None
    assert memory(draft=GATE_DRAFT).estimate({"max_model_len": 131072, **beyond}) is None


def test_without_a_shape_or_a_device_there_is_no_model_of_memory() -> None:
    assert memory_model(CARD, replace(model("llama8b"), shape=None)) is None
    assert memory_model(on_gpu(0), model("llama8b")) is None
    # A draft of unknown shape: only what does not use it is estimated.
    unknown = memory(draft=replace(GATE_DRAFT, shape=None))
    assert unknown.estimate({"speculative_config__model": "/models/draft"}) is None
    assert unknown.estimate({}) is not None


def test_drafts_of_a_space_are_found() -> None:
    target = Target(kind=TargetKind.FLAG, name="--speculative-config")
    fixed = Fixed(target=target, value={"method": "eagle3", "model": "/models/a"})
    assert draft_names(replace(space_of(["max_model_len"]), fixed=(fixed,))) == {"/models/a"}
    assert draft_names(space_of(["speculative_config__model"])) == {"any"}
    assert draft_names(space_of(["max_model_len"])) == set()


# ---------------------------------------------------------------- what is learned


def _left(values: Mapping[str, Value], here: MemoryGate) -> float:
    estimate = here.estimate(Configuration(values=values))
    assert estimate is not None
    return estimate.kv_available_bytes / GIB


def test_a_measured_configuration_corrects_its_like_and_tightens_the_margin() -> None:
    values: dict[str, Value] = {"max_model_len": 8192}
    before = _left(values, gate())
    known = gate(known=(trial(values, kv_cache_gib=round(before - 0.5, 2)),))
    assert _left(values, known) == pytest.approx(before - 0.5, abs=0.01)
    # A quarter of a GiB too much is within the margin where nothing was measured, and beyond it where it was.
    longest = int((before + 0.25) * GIB / 131072)
    assert shortage({"max_model_len": longest}) is None
    assert shortage({"max_model_len": longest}, known) is not None


def test_a_correction_that_refuses_more_fades_and_one_that_refuses_less_does_not() -> None:
    values: dict[str, Value] = {"max_num_batched_tokens": 2048}
    far: dict[str, Value] = {"max_num_batched_tokens": 16384}
    before = _left(values, gate())
    assert _left(far, gate(known=(trial(values, kv_cache_gib=before - 1),))) == _left(far, gate())
    more = gate(known=(trial(values, kv_cache_gib=before + 1),))
    assert _left(far, more) == pytest.approx(_left(far, gate()) + 1, abs=0.01)


def test_the_lowest_of_what_alike_configurations_took_counts() -> None:
    """A first launch is charged for what it compiled."""
    values: dict[str, Value] = {"max_model_len": 8192}
    before = _left(values, gate())
    cold, warm = (
        trial(values, number=n, kv_cache_gib=gib) for n, gib in enumerate((before - 2, before - 0.1))
    )
    assert _left(values, gate(known=(cold, warm))) == pytest.approx(before - 0.1, abs=0.01)
    assert _left(values, gate(known=(warm, cold))) == _left(values, gate(known=(cold, warm)))


def test_a_failure_with_its_numbers_teaches_as_well() -> None:
    values: dict[str, Value] = {"max_model_len": 131072}
    numbers: dict[str, float | str] = {"available_gib": 5.0, "needed_gib": 16.0}
    known = replace(record(0, None, values), outcome=Failed(failure=failure(numbers=numbers)))
    assert _left(values, gate(known=(known,))) == pytest.approx(5.0, abs=0.01)
    oom = failure(kind=FailureKind.GPU_OOM, numbers={"total_gib": 23.5})
    smaller = gate(known=(replace(record(0, None, values), outcome=Failed(failure=oom)),))
    assert smaller.estimator.device_bytes == round(23.5 * GIB)
    assert gate(known=(record(0, failed(), values),)) == gate()


def test_memory_that_others_took_teaches_nothing() -> None:
    log = recorded("h200-0.26/a6_race_first")
    calibrated = log.memory.calibrated(space_of(log.settings), [log.trial])
    assert calibrated.evidence.residuals == ()
    # The server that lost the race saw 0.11 GiB left, and nothing else.
    loser = replace(log.trial, effective=Effective(facts={"kv_cache_gib": 0.11}))
    assert log.memory.calibrated(space_of(log.settings), [loser]).evidence.residuals == ()
    # 0.32 logs it together with the weights.
    together = trial({}, kv_cache_gib=2.0, weights_gib=13.5, consumed_gib=20.0)
    assert gate(known=(together,)).evidence.residuals == ()


def test_an_offload_without_effect_makes_no_room() -> None:
    log = recorded("h200-0.26/v4_offload8")
    assert log.trial.effective is not None
    assert "cpu_offload_gb" in log.trial.effective.without_effect
    calibrated = log.memory.calibrated(space_of(log.settings), [log.trial])
    estimate = calibrated.estimate(log.trial.configuration)
    assert estimate is not None
    assert estimate.weights_bytes / GIB == pytest.approx(13.5, abs=0.1)


def test_a_cache_that_holds_more_than_foretold_is_believed() -> None:
    values: dict[str, Value] = {"max_model_len": 8192}
    twice = trial(values, kv_cache_gib=8.0, kv_cache_tokens=2 * 65536)
    assert gate(known=(twice,)).evidence.kv_surplus == pytest.approx(2.0)
    assert shortage({"max_model_len": 98304}, gate(known=(twice,))) is None
    half = trial(values, kv_cache_gib=8.0, kv_cache_tokens=32768)
    assert gate(known=(half,)).evidence.kv_surplus == 1.0


# ---------------------------------------------------------------- laws

_SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "max_model_len": st.integers(1, 200_000),
        "gpu_memory_utilization": st.floats(0.05, 1.0),
        "max_num_batched_tokens": st.integers(1, 65536),
        "max_num_seqs": st.integers(1, 1024),
        "kv_cache_dtype": st.sampled_from(["auto", "fp8"]),
        "enforce_eager": st.booleans(),
        "kv_cache_memory_bytes": st.integers(2**20, 2**36),
        "cpu_offload_gb": st.integers(0, 20),
        "tensor_parallel_size": st.sampled_from([1, 2, 4]),
        "enable_prefix_caching": st.booleans(),
        "block_size": st.sampled_from([16, 32, 64]),
        "performance_mode": st.sampled_from(["balanced", "throughput"]),
    },
)
_RECORDS = st.lists(
    st.builds(trial, _SETTINGS, kv_cache_gib=st.floats(-5, 30), kv_cache_tokens=st.integers(1, 10**6)),
    max_size=4,
).map(tuple)
_GATES = st.builds(
    gate,
    st.sampled_from(sorted(CONFIGS)),
    st.builds(
        lambda gib, version: on_gpu(gib * GIB, version=version),
        st.integers(8, 192),
        st.sampled_from(["0.26.0", "0.32.0"]),
    ),
    _RECORDS,
)


@given(over=_GATES, values=_SETTINGS, more=st.integers(1, 200_000))
def test_a_longer_context_never_turns_a_shortage_off(
    over: MemoryGate, values: dict[str, Value], more: int
) -> None:
    shorter, longer = ({**values, "max_model_len": length} for length in (more, more + 1000))
    if shortage(shorter, over):
        assert shortage(longer, over)


@given(over=_GATES, values=_SETTINGS, share=st.floats(0.05, 0.95), more=st.floats(0, 0.05))
def test_a_larger_share_of_the_memory_never_turns_one_on(
    over: MemoryGate, values: dict[str, Value], share: float, more: float
) -> None:
    smaller, larger = ({**values, "gpu_memory_utilization": u} for u in (share, share + more))
    if shortage(larger, over):
        assert shortage(smaller, over)


@given(over=_GATES, values=_SETTINGS)
def test_8_bits_never_need_more_than_16(over: MemoryGate, values: dict[str, Value]) -> None:
    if shortage({**values, "kv_cache_dtype": "fp8"}, over):
        assert shortage({**values, "kv_cache_dtype": "auto"}, over)


@given(over=_GATES, values=_SETTINGS)
def test_offloading_never_turns_a_shortage_on_where_nothing_was_measured(
    over: MemoryGate, values: dict[str, Value]
) -> None:
    over = memory(over.estimator.model.name).calibrated(SPACE, ())
    if shortage({**values, "cpu_offload_gb": 4}, over):
        assert shortage({**values, "cpu_offload_gb": 0}, over)


@given(name=st.sampled_from(sorted(CONFIGS)), values=_SETTINGS, known=_RECORDS)
def test_the_order_of_trials_does_not_matter(
    name: str, values: dict[str, Value], known: tuple[TrialRecord, ...]
) -> None:
    shuffled = tuple(reversed(known))
    assert shortage(values, gate(name, known=known)) == shortage(values, gate(name, known=shuffled))


_ODD = st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4)


@given(over=_GATES, values=st.dictionaries(st.sampled_from(NAMES), _ODD))
def test_any_settings_are_judged_or_not_understood(over: MemoryGate, values: dict[str, Value]) -> None:
    judged = over.estimate(Configuration(values=values))
    assert judged is not None or shortage(values, over) is None


@given(over=_GATES, values=_SETTINGS)
def test_a_shortage_is_more_than_there_is_and_says_so(over: MemoryGate, values: dict[str, Value]) -> None:
    short = shortage(values, over)
    if short is not None:
        assert short.needed_bytes > short.available_bytes > 0
        assert short.ratio > 1
        assert "iB" in short.why
