"""Machines, vLLMs and models for tests."""

from autotune.domain.machine import Device, FlagFact, Gpu, Machine, Model, VllmInstall

GIB = 2**30

_SWITCHES = ("--enforce-eager", "--enable-prefix-caching", "--enable-chunked-prefill", "--async-scheduling")
_CHOICES = {
    "--kv-cache-dtype": ("auto", "bfloat16", "fp8"),
    "--performance-mode": ("balanced", "interactivity", "throughput"),
    "--dtype": ("auto", "bfloat16"),
}
_FREE = (
    *("--max-model-len", "--gpu-memory-utilization", "--kv-cache-memory-bytes", "--cpu-offload-gb"),
    *("--max-num-seqs", "--max-num-batched-tokens", "--tensor-parallel-size", "--speculative-config"),
)
FLAGS = {
    name: FlagFact(name=name, choices=_CHOICES.get(name))
    for name in (*_SWITCHES, *("--no-" + switch[2:] for switch in _SWITCHES), *_CHOICES, *_FREE)
}


def machine(*, cpus: int = 2, memory_gib: int = 24, gpus: int = 0, gpu_gib: int = 24) -> Machine:
    return Machine(
        hostname="h",
        cpu_model="c",
        cpu_ids=tuple(range(cpus)),
        memory_bytes=memory_gib * GIB,
        kernel="k",
        gpus=tuple(Gpu(index=i, name="g", memory_bytes=gpu_gib * GIB) for i in range(gpus)),
    )


def vllm(device: Device, *, without: tuple[str, ...] = (), asked: bool = True) -> VllmInstall:
    flags = {name: fact for name, fact in FLAGS.items() if name not in without}
    return VllmInstall(
        command=("vllm",),
        python=None,
        version="0.32.0",
        torch_version=None,
        device=device,
        flags=flags if asked else None,
    )


def model(
    *, max_model_len: int | None = 32768, weight_gib: float | None = 1.0, has_mtp: bool = False
) -> Model:
    weight_bytes = None if weight_gib is None else int(weight_gib * GIB)
    return Model(name="m", max_model_len=max_model_len, weight_bytes=weight_bytes, has_mtp=has_mtp)
