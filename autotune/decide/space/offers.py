"""The parameters of the default search space, one function each.

An offer is the parameter, or the reason to leave it out here. Ranges come from the machine, the model and the
workload; where a number has another source, the comment names it.
"""

from collections.abc import Callable, Mapping

from autotune.decide.space.effects import no_effect
from autotune.decide.space.site import GIB, WEIGHT_SHARE, Site
from autotune.domain.expression import Expression
from autotune.domain.space import (
    CategoricalDomain,
    Domain,
    FloatDomain,
    IntDomain,
    Parameter,
    Target,
    TargetKind,
    Value,
)

Offer = Parameter | str
"""A parameter, or why it is left out."""

_BOOL = CategoricalDomain(choices=(False, True))


def _flag(name: str, domain: Domain, omit: tuple[Value, ...] = ()) -> Parameter:
    target = Target(kind=TargetKind.FLAG, name="--" + name.replace("_", "-"))
    return Parameter(name=name, domain=domain, target=target, omit=omit)


# --- Memory


def _max_model_len(site: Site, name: str) -> Offer:
    longest = site.model.max_model_len if site.model else None
    if longest is None:
        return "the longest context of the model is not known here; vLLM finds it out by itself"
    needed = site.needed_context_tokens
    if needed >= longest:
        return f"all of the {longest} tokens that the model was made for are needed"
    return _flag(name, IntDomain(low=needed, high=longest, log=True))


def _gpu_memory_utilization(site: Site, name: str) -> Offer:
    if site.on_cpu:
        return "the KV cache has a fixed size here, and vLLM then does not read it"
    # vLLM's default is 0.92. What is left over has to hold the CUDA graphs (1.0 to 1.4 GiB for an 8B model)
    # and whatever a display takes; below 0.8 there is only less KV cache.
    return _flag(name, FloatDomain(low=0.8, high=0.96, step=0.01))


def _cpu_offload_gb(site: Site, name: str) -> Offer:
    reason = no_effect("--cpu-offload-gb", site.vllm.device)
    if reason is not None:
        return reason
    if site.weight_bytes is None or not site.gpu_bytes:
        return (
            "the size of the weights is not known here, and offloading without need costs most of the speed"
        )
    # The flag counts for each GPU. Every offloaded byte crosses PCIe at each step: 8 GiB cost an 8B model on
    # an H200 a factor of 36, so that it is offered only where the weights would not fit.
    gpus = _gpu_counts(site)[-1]
    weights, room = site.weight_bytes // gpus, int(WEIGHT_SHARE * site.gpu_bytes)
    if weights <= room:
        return f"the {site.weight_bytes / GIB:.1f} GiB of weights fit into GPU memory"
    low, high = -(-(weights - room) // GIB), min(weights, site.machine.memory_bytes // 2 // gpus) // GIB
    if low > high:
        return f"{low} GiB of weights for each GPU do not fit there, and not into host memory either"
    return _flag(name, IntDomain(low=low, high=high))


def _kv_cache_dtype(_site: Site, name: str) -> Offer:
    # "auto" is the model's own type; fp8 stores twice the tokens in the same memory, less exactly.
    return _flag(name, CategoricalDomain(choices=("auto", "fp8")), omit=("auto",))


# --- Batching


def _max_num_seqs(site: Site, name: str) -> Offer:
    # vLLM's default is 128 on a CPU and 256 or 1024 on GPUs. More sequences than streams never run; fewer
    # leave streams waiting, which can still be best for the latency of those that run.
    top, usual = site.workload.streams[-1], 128 if site.on_cpu else 256
    return _flag(name, IntDomain(low=max(1, top // 4), high=max(usual, 2 * top), log=True))


def _max_num_batched_tokens(site: Site, name: str) -> Offer:
    # vLLM's default is 2048 on a CPU and on GPUs below 70 GiB, 8192 or 16384 above.
    if site.on_cpu:
        low, high = 256, 4096
    elif site.gpu_bytes < 70 * GIB:
        low, high = 512, 8192
    else:
        low, high = 1024, 32768
    # One step never holds more than the prompts of all streams; the next power of two is enough for them.
    useful = 1 << (site.workload.streams[-1] * site.workload.context_tokens).bit_length()
    return _flag(name, IntDomain(low=low, high=max(2048, min(high, useful)), log=True))


def _enable_prefix_caching(_site: Site, name: str) -> Offer:
    # On by default for almost every model, so that off has to be said as well.
    return _flag(name, _BOOL)


# --- Execution


def _enforce_eager(_site: Site, name: str) -> Offer:
    return _flag(name, _BOOL, omit=(False,))


def _performance_mode(site: Site, name: str) -> Offer:
    # "throughput" only doubles max_num_batched_tokens and max_num_seqs where they are unset, and here they
    # never are; "interactivity" captures a CUDA graph for each small batch size (vllm/config/vllm.py).
    if site.on_cpu:
        return "it sets CUDA graph sizes, and max_num_batched_tokens and max_num_seqs, which are searched"
    return _flag(name, CategoricalDomain(choices=("balanced", "interactivity")), omit=("balanced",))


def _gpu_counts(site: Site) -> tuple[int, ...]:
    """Numbers of GPUs that can hold the weights, powers of two; all GPUs where no number can. Never empty."""
    counts = tuple(2**i for i in range(max(1, len(site.machine.gpus)).bit_length()))
    room = WEIGHT_SHARE * site.gpu_bytes
    return tuple(n for n in counts if (site.weight_bytes or 0) <= n * room) or counts[-1:]


def _tensor_parallel_size(site: Site, name: str) -> Offer:
    if site.on_cpu:
        return "on a CPU each rank needs a memory node of its own"
    if len(site.machine.gpus) < 2:
        return "there is one GPU" if site.machine.gpus else "the number of GPUs is not known"
    return _flag(name, CategoricalDomain(choices=_gpu_counts(site)))


def _omp_threads_bind(site: Site, name: str) -> Offer:
    if site.on_cpu and len(site.machine.cpu_ids) < 2:
        return "there is one processor"
    # "auto" takes one thread of each core and keeps one core free, "nobind" leaves it to OMP_NUM_THREADS, and
    # a list of processor ids (not a number of threads) takes exactly these.
    return Parameter(
        name=name,
        domain=CategoricalDomain(choices=("auto", "nobind", site.cpu_list)),
        target=Target(kind=TargetKind.ENV, name="VLLM_CPU_OMP_THREADS_BIND"),
        omit=("auto",),
    )


def _omp_num_threads(site: Site, name: str) -> Offer:
    if not site.on_cpu:
        return "OMP_NUM_THREADS: the model computes on the GPU"
    count = len(site.machine.cpu_ids)
    if count < 2:
        return "there is one processor"
    return Parameter(
        name=name,
        domain=IntDomain(low=max(1, count // 4), high=count),
        target=Target(kind=TargetKind.ENV, name="OMP_NUM_THREADS"),
        # With any other binding, vLLM sets it to the number of bound processors.
        when=Expression.parse('omp_threads_bind == "nobind"'),
    )


# --- Speculative decoding: every parameter is a key of --speculative-config


def _draft(name: str, key: str, domain: Domain, method: str) -> Parameter:
    target = Target(kind=TargetKind.JSON, name="--speculative-config", keys=(key,))
    when = Expression.parse(f'speculation == "{method}"')
    return Parameter(name=name, domain=domain, target=target, when=when)


def _speculation(site: Site, name: str) -> Offer:
    methods = ("off", "ngram", "mtp") if site.has_mtp else ("off", "ngram")
    target = Target(kind=TargetKind.JSON, name="--speculative-config", keys=("method",))
    return Parameter(name=name, domain=CategoricalDomain(choices=methods), target=target, omit=("off",))


def _ngram_tokens(_site: Site, name: str) -> Offer:
    return _draft(name, "num_speculative_tokens", IntDomain(low=1, high=8), "ngram")


def _ngram_lookup(_site: Site, name: str) -> Offer:
    # The length of the text that must match. `prompt_lookup_min` follows it; vLLM's default is 5 for both.
    return _draft(name, "prompt_lookup_max", IntDomain(low=2, high=5), "ngram")


def _mtp_tokens(site: Site, name: str) -> Offer:
    if not site.has_mtp:
        return "no multi-token-prediction heads are known of this model"
    return _draft(name, "num_speculative_tokens", IntDomain(low=1, high=4), "mtp")


OFFERS: Mapping[str, Callable[[Site, str], Offer]] = {
    "max_model_len": _max_model_len,
    "gpu_memory_utilization": _gpu_memory_utilization,
    "cpu_offload_gb": _cpu_offload_gb,
    "kv_cache_dtype": _kv_cache_dtype,
    "max_num_seqs": _max_num_seqs,
    "max_num_batched_tokens": _max_num_batched_tokens,
    "enable_prefix_caching": _enable_prefix_caching,
    "enforce_eager": _enforce_eager,
    "performance_mode": _performance_mode,
    "tensor_parallel_size": _tensor_parallel_size,
    "omp_threads_bind": _omp_threads_bind,
    "omp_num_threads": _omp_num_threads,
    "speculation": _speculation,
    "ngram_tokens": _ngram_tokens,
    "ngram_lookup": _ngram_lookup,
    "mtp_tokens": _mtp_tokens,
}
"""In the order of the space; a `when` names earlier ones only."""
