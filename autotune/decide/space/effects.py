"""Settings that vLLM accepts and that still change nothing on the device it runs on."""

import re
from collections.abc import Mapping

from autotune.domain.machine import Device

_CPU: Mapping[str, str] = {
    # vllm/model_executor/offloader/uva.py skips parameters that already lie on the CPU.
    r"--cpu-offload-(gb|params)": "the weights are already in host memory",
    # These three: vllm/platforms/cpu.py and vllm/v1/worker/cpu_worker.py override or ignore them.
    r"--async-scheduling": "vLLM's CPU backend always schedules synchronously",
    r"--cudagraph-capture-sizes|--max-cudagraph-capture-size": "there are no CUDA graphs on a CPU",
    r"--enable-dbo|--enable-sleep-mode": "vLLM's CPU backend ignores it",
    r"CUDA_.*|NCCL_.*|PYTORCH_CUDA_ALLOC_CONF|VLLM_ROCM_.*|VLLM_.*(FLASHINFER|DEEP_GEMM|MARLIN).*": (
        "it is read where vLLM runs on a GPU only"
    ),
}
_GPU: Mapping[str, str] = {r"VLLM_CPU_.*": "it is read by vLLM's CPU backend only"}
_BY_DEVICE = {Device.CPU: _CPU, Device.CUDA: _GPU, Device.OTHER: _GPU}


def no_effect(name: str, device: Device) -> str | None:
    """Why the flag or variable `name` changes nothing on `device`; None when it may change something."""
    for pattern, reason in _BY_DEVICE[device].items():
        if re.fullmatch(pattern, name):
            return reason
    return None
