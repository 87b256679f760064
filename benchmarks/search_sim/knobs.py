"""Settings as columns of numbers, so that many configurations are judged at once; a choice is its position.

Settings have the names that vLLM has for them (`autotune.domain.launch.settings`).
"""

import json
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.domain.launch import ServerArgs
from autotune.domain.space import Value

Column = NDArray[np.float64]
Columns = Mapping[str, Column]

LENGTH = "max_model_len"
SHARE = "gpu_memory_utilization"
OFFLOAD = "cpu_offload_gb"
BATCHED = "max_num_batched_tokens"
SEQS = "max_num_seqs"
KV_DTYPE = "kv_cache_dtype"
EAGER = "enforce_eager"
PREFIX = "enable_prefix_caching"
METHOD = "speculative_config__method"
DRAFTS = "speculative_config__num_speculative_tokens"
LOOKUP = "speculative_config__prompt_lookup_max"
THREADS = "OMP_NUM_THREADS"
BIND = "VLLM_CPU_OMP_THREADS_BIND"
CPU_KV = "VLLM_CPU_KVCACHE_SPACE"
BACKEND = "attention_backend"
ASYNC = "async_scheduling"
CHUNKED = "enable_chunked_prefill"

CHOICES: Mapping[str, Sequence[Value]] = {
    KV_DTYPE: ("auto", "fp8"),
    METHOD: ("off", "ngram", "mtp"),
    BIND: ("auto", "nobind"),
    BACKEND: ("FLASH_ATTN", "FLASHINFER", "TRITON_ATTN"),
}
"""Settings that are words; all others are numbers, or on and off."""

OFF, NGRAM, MTP = 0, 1, 2


def code(name: str, value: Value) -> float:
    """The number that stands for `value`; ValueError for a word that the simulated vLLM does not know."""
    return float(CHOICES[name].index(value) if name in CHOICES else value)


def columns(settings: Sequence[Mapping[str, Value]], defaults: Mapping[str, float]) -> Columns:
    """A row for each of `settings`; what one of them leaves out has its default."""
    return {
        name: np.array([code(name, row[name]) if name in row else default for row in settings])
        for name, default in defaults.items()
    }


def read_args(args: ServerArgs) -> dict[str, Value]:
    """The settings that a command line and its variables say."""
    said: dict[str, Value] = {}
    words = list(args.flags)
    while words:
        flag = words.pop(0)
        name = flag.removeprefix("--").removeprefix("no-").replace("-", "_")
        if not words or words[0].startswith("--"):
            said[name] = not flag.startswith("--no-")
        elif words[0].startswith("{"):
            said |= {f"{name}__{key}": value for key, value in json.loads(words.pop(0)).items()}
        else:
            said[name] = _value(words.pop(0))
    return said | {name: _value(text) for name, text in args.env.items()}


def _value(text: str) -> Value:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
