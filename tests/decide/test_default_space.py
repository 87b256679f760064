from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sites import GIB, machine, model, vllm

from autotune.decide.space.check import check_space
from autotune.decide.space.default_space import default_space
from autotune.decide.space.offers import OFFERS
from autotune.decide.space.sampling import sample
from autotune.domain.launch import server_args
from autotune.domain.machine import Device, Machine, Model
from autotune.domain.space import CategoricalDomain, Configuration, IntDomain, SearchSpace
from autotune.domain.workload import Lengths, Workload

WORKLOAD = Workload(prompt_tokens=Lengths.fixed(128), output_tokens=Lengths.fixed(32), streams=(1, 2, 4, 8))


def on_cpu(
    site: Machine | None = None, known: Model | None = None, workload: Workload = WORKLOAD, **more
) -> SearchSpace:
    return default_space(site or machine(), vllm(Device.CPU, **more), known, workload)


def on_gpu(
    site: Machine | None = None, known: Model | None = None, workload: Workload = WORKLOAD, **more
) -> SearchSpace:
    return default_space(site or machine(cpus=16, gpus=1), vllm(Device.CUDA, **more), known, workload)


def names(space: SearchSpace) -> set[str]:
    return {parameter.name for parameter in space.parameters}


def test_on_a_cpu() -> None:
    space = on_cpu(known=model())
    assert names(space) == {
        *("max_model_len", "kv_cache_dtype", "max_num_seqs", "max_num_batched_tokens"),
        *("enable_prefix_caching", "enforce_eager", "omp_threads_bind", "omp_num_threads"),
        *("speculation", "ngram_tokens", "ngram_lookup"),
    }
    assert space.left_out["cpu_offload_gb"] == "the weights are already in host memory"
    assert "fixed size" in space.left_out["gpu_memory_utilization"]


def test_on_a_gpu() -> None:
    space = on_gpu(known=model())
    assert {"gpu_memory_utilization", "performance_mode", "enforce_eager", "kv_cache_dtype"} <= names(space)
    assert space.left_out["omp_threads_bind"] == (
        "VLLM_CPU_OMP_THREADS_BIND: it is read by vLLM's CPU backend only"
    )
    assert "on the GPU" in space.left_out["omp_num_threads"]
    assert space.left_out["tensor_parallel_size"] == "there is one GPU"
    assert space.fixed == ()


MACHINES = [
    *(machine(cpus=c, memory_gib=m) for c, m in product((1, 2, 64), (2, 24, 512))),
    *(machine(cpus=16, memory_gib=64, gpus=g, gpu_gib=m) for g, m in product((0, 1, 2, 6, 8), (8, 24, 141))),
]
MODELS = [
    None,
    *(
        model(max_model_len=length, weight_gib=size, has_mtp=mtp)
        for length, size, mtp in product((None, 512, 262144), (None, 0.01, 20, 400), (False, True))
    ),
]
WORKLOADS = [
    WORKLOAD,
    Workload(),
    Workload(streams=(1,), prompt_tokens=Lengths.fixed(1), output_tokens=Lengths.fixed(1)),
    Workload(streams=(1, 1024), prompt_tokens=Lengths.fixed(100_000), output_tokens=Lengths.fixed(28_000)),
]


@given(
    st.sampled_from(MACHINES),
    st.sampled_from(MODELS),
    st.sampled_from(WORKLOADS),
    st.sampled_from(list(Device)),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_every_space_is_sound(site, known, workload, device, flags_known, rng: Random) -> None:
    install = vllm(device, asked=flags_known)
    space = default_space(site, install, known, workload)
    assert names(space) | space.left_out.keys() == OFFERS.keys()
    assert not names(space) & space.left_out.keys()
    assert all(space.left_out.values())
    seen: set[str] = set()
    for parameter in space.parameters:
        assert parameter.when is None or parameter.when.names <= seen
        seen.add(parameter.name)
    assert [str(f) for f in check_space(space, install) if f.severity != "info"] == []
    configuration = sample(space, rng)
    assert configuration is not None
    server_args(space, configuration)
    length = configuration.values.get("max_model_len")
    assert length is None or length >= workload.context_tokens
    assert length is None or length >= min(8192, known.max_model_len)
    assert configuration.values["max_num_batched_tokens"] >= configuration.values["max_num_seqs"]
    assert "host" not in str(server_args(space, Configuration()))


@pytest.mark.parametrize("flag", ["--performance-mode", "--speculative-config", "--max-num-seqs"])
def test_a_flag_this_vllm_does_not_have(flag: str) -> None:
    space = on_gpu(known=model(has_mtp=True), without=(flag,))
    assert not any(parameter.target.name == flag for parameter in space.parameters)
    assert f"vLLM 0.32.0 has no {flag}" in space.left_out.values()
    assert all(c.require.names <= names(space) for c in space.constraints)


def test_a_choice_this_vllm_does_not_take() -> None:
    install = vllm(Device.CUDA)
    dtype = install.flags["--kv-cache-dtype"]
    object.__setattr__(dtype, "choices", ("auto", "bfloat16"))
    try:
        space = default_space(machine(gpus=1), install, model(), WORKLOAD)
    finally:
        object.__setattr__(dtype, "choices", ("auto", "bfloat16", "fp8"))
    assert space.left_out["kv_cache_dtype"] == "vLLM 0.32.0 takes only auto, bfloat16 for --kv-cache-dtype"


@pytest.mark.parametrize(
    ("workload_tokens", "asked_for", "low"),
    [(3500, 8192, 8192), (3500, 1, 3584), (9000, 8192, 9216), (3500, 32768, 32768)],
)
def test_the_context_covers_the_workload_and_what_was_asked_for(
    workload_tokens: int, asked_for: int, low: int
) -> None:
    workload = Workload(prompt_tokens=Lengths.fixed(workload_tokens - 500), output_tokens=Lengths.fixed(500))
    known = model(max_model_len=40960)
    space = default_space(machine(gpus=1), vllm(Device.CUDA), known, workload, asked_for)
    assert space.parameter("max_model_len").domain == IntDomain(low=low, high=40960, log=True)


@pytest.mark.parametrize(
    ("known", "told"),
    [
        (None, "is not known here"),
        (model(max_model_len=None), "is not known here"),
        (model(max_model_len=200), "all of the 200 tokens"),
    ],
)
def test_no_context_to_choose(known: Model | None, told: str) -> None:
    assert told in on_gpu(known=known).left_out["max_model_len"]


def fixed_args(space: SearchSpace):
    return server_args(space, Configuration())


@pytest.mark.parametrize(
    ("memory_gib", "weight_gib", "expected_gib"),
    [(24, 1.0, 10.0), (24, None, 10.5), (2, 1.0, 0.25), (16, 30.0, 0.25), (1024, 10.0, 32.0)],
)
def test_kv_cache_on_a_cpu(memory_gib: int, weight_gib: float | None, expected_gib: float) -> None:
    space = on_cpu(machine(memory_gib=memory_gib), model(weight_gib=weight_gib))
    size = str(int(expected_gib * GIB))
    assert fixed_args(space).flags == ("--kv-cache-memory-bytes", size)
    assert (
        on_cpu(machine(memory_gib=memory_gib), model(weight_gib=weight_gib), asked=False).fixed == space.fixed
    )


def test_kv_cache_of_an_older_vllm_on_a_cpu() -> None:
    space = on_cpu(known=model(weight_gib=0.5), without=("--kv-cache-memory-bytes",))
    assert fixed_args(space).env == {"VLLM_CPU_KVCACHE_SPACE": "10"}
    assert fixed_args(space).flags == ()


def test_threads() -> None:
    space = on_cpu(machine(cpus=8))
    bind = space.parameter("omp_threads_bind")
    assert bind.domain == CategoricalDomain(choices=("auto", "nobind", "0-7"))
    assert space.parameter("omp_num_threads").domain == IntDomain(low=2, high=8)
    assert server_args(space, Configuration(values={"omp_threads_bind": "auto"})).env == {}
    threads = {"omp_threads_bind": "nobind", "omp_num_threads": 4}
    assert server_args(space, Configuration(values=threads)).env == {
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "4",
    }
    assert on_cpu(machine(cpus=1)).left_out["omp_num_threads"] == "there is one processor"


def test_processor_ids_with_gaps() -> None:
    gaps = Machine(hostname="h", cpu_model="c", cpu_ids=(9, 2, 3, 0, 4), memory_bytes=24 * GIB, kernel="k")
    assert "0,2-4,9" in on_cpu(gaps).parameter("omp_threads_bind").domain


@pytest.mark.parametrize(
    ("gpus", "weight_gib", "counts"),
    [
        (2, 1.0, (1, 2)),
        (6, 1.0, (1, 2, 4)),
        (8, 50.0, (4, 8)),
        (2, 30.0, (2,)),
        (2, 400.0, (2,)),
        (4, None, (1, 2, 4)),
    ],
)
def test_tensor_parallelism_holds_the_weights(gpus: int, weight_gib: float | None, counts: tuple) -> None:
    space = on_gpu(machine(gpus=gpus, gpu_gib=24), model(weight_gib=weight_gib))
    assert space.parameter("tensor_parallel_size").domain == CategoricalDomain(choices=counts)


@pytest.mark.parametrize(
    ("gpus", "memory_gib", "weight_gib", "expected"),
    [
        (1, 64, 20.0, "the 20.0 GiB of weights fit"),
        (1, 64, None, "not known here"),
        (1, 64, 24.0, IntDomain(low=4, high=24)),
        (1, 16, 30.0, "not into host memory either"),
        (2, 256, 60.0, IntDomain(low=10, high=30)),
    ],
)
def test_offloading_only_where_the_weights_do_not_fit(gpus, memory_gib, weight_gib, expected) -> None:
    space = on_gpu(machine(gpus=gpus, memory_gib=memory_gib), model(weight_gib=weight_gib))
    if isinstance(expected, str):
        assert expected in space.left_out["cpu_offload_gb"]
    else:
        assert space.parameter("cpu_offload_gb").domain == expected


def test_speculation() -> None:
    plain, mtp = on_gpu(known=model()), on_gpu(known=model(has_mtp=True))
    assert plain.parameter("speculation").domain == CategoricalDomain(choices=("off", "ngram"))
    assert mtp.parameter("speculation").domain == CategoricalDomain(choices=("off", "ngram", "mtp"))
    assert server_args(mtp, Configuration(values={"speculation": "off"})).flags == ()
    ngram = {"speculation": "ngram", "ngram_tokens": 3, "ngram_lookup": 4}
    assert server_args(mtp, Configuration(values=ngram)).flags == (
        "--speculative-config",
        '{"method":"ngram","num_speculative_tokens":3,"prompt_lookup_max":4}',
    )
    heads = {"speculation": "mtp", "mtp_tokens": 2}
    assert server_args(mtp, Configuration(values=heads)).flags == (
        "--speculative-config",
        '{"method":"mtp","num_speculative_tokens":2}',
    )


def test_ranges_hold_what_the_streams_need() -> None:
    few = on_gpu(
        workload=Workload(prompt_tokens=Lengths.fixed(100), output_tokens=Lengths.fixed(28), streams=(1, 2))
    )
    many = on_gpu(
        workload=Workload(
            prompt_tokens=Lengths.fixed(4000), output_tokens=Lengths.fixed(1000), streams=(1, 300)
        )
    )
    assert few.parameter("max_num_seqs").domain == IntDomain(low=1, high=256, log=True)
    assert few.parameter("max_num_batched_tokens").domain == IntDomain(low=512, high=2048, log=True)
    assert many.parameter("max_num_seqs").domain == IntDomain(low=75, high=600, log=True)
    assert many.parameter("max_num_batched_tokens").domain == IntDomain(low=512, high=8192, log=True)
    big = on_gpu(machine(gpus=1, gpu_gib=141), workload=Workload(streams=(1, 256)))
    assert big.parameter("max_num_batched_tokens").domain == IntDomain(low=1024, high=32768, log=True)
