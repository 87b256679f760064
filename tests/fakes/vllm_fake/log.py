"""Log lines as vLLM writes them, and the ends of starts that fail (wording of vLLM 0.32 and 0.26)."""

import os
import sys
import time
from collections.abc import Mapping

from vllm_fake.scenario import FLAG_DEFAULTS

VERSION = "0.32.0"


def say(process: str, where: str, text: str, *, level: str = "INFO", pid: int | None = None) -> None:
    """One line for each line of `text`, under the prefix of a vLLM process."""
    prefix = f"({process} pid={pid or os.getpid()}) {level} {time.strftime('%m-%d %H:%M:%S')} [{where}] "
    raw("".join(f"{prefix}{line}\n" for line in text.split("\n")))


def raw(text: str) -> None:
    """Write `text` as it is, at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def banner(model: str, flags: Mapping[str, object]) -> None:
    """What a start writes before the engine is up."""
    given = {name: value for name, value in flags.items() if FLAG_DEFAULTS.get(name) != value}
    say("APIServer", "api_utils.py:347", f"  vLLM version {VERSION}   model   {model}")
    say("APIServer", "api_utils.py:286", f"non-default args: {given}")
    say("APIServer", "model.py:733", "Resolved architecture: LlamaForCausalLM")
    say("APIServer", "model.py:2152", f"Using max model len {flags['max_model_len']}")


def engine_up(pid: int, max_model_len: int, kv_cache_tokens: int) -> None:
    """What the engine writes on its way up."""
    engine = f"Initializing a V1 LLM engine (v{VERSION}) with config: model='fake'"
    say("EngineCore", "core.py:133", engine, pid=pid)
    say("EngineCore", "default_loader.py:501", "Loading weights took 0.01 seconds", pid=pid)
    size = f"CPU KV cache size: {kv_cache_tokens:,} tokens, Maximum concurrency for {max_model_len:,} tokens"
    concurrency = kv_cache_tokens / max_model_len
    say("EngineCore", "kv_cache_utils.py:2327", f"{size} per request: {concurrency:.2f}x", pid=pid)
    init = "init engine (profile, create kv cache, warmup model) took 0.05 s"
    say("EngineCore", "core.py:402", init, pid=pid)


def listening(url: str) -> None:
    """What the API server writes when it begins to answer."""
    say("APIServer", "entry.py:140", f"Starting vLLM server on {url}")
    raw(f"INFO:     Started server process [{os.getpid()}]\n")
    raw("INFO:     Waiting for application startup.\nINFO:     Application startup complete.\n")


def kv_too_small(max_model_len: int, kv_cache_tokens: int) -> str:
    """The line vLLM ends with when one request of `max_model_len` does not fit."""
    gib = 2620 / 2**30  # bytes a token of the model in the recorded log takes
    return (
        f"ValueError: To serve at least one request with the model's max seq len ({max_model_len}), "
        f"({max_model_len * gib:.2f} GiB KV cache is needed, which is larger than the available KV cache "
        f"memory ({kv_cache_tokens * gib:.2f} GiB). Based on the available memory, the estimated maximum "
        f"model length is {kv_cache_tokens // 128 * 128}. Try increasing `gpu_memory_utilization` (which "
        "also controls CPU memory on the CPU backend) or decreasing `max_model_len` when initializing the "
        "engine. See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."
    )


GPU_OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.06 GiB. GPU 0 has a total capacity of "
    "139.80 GiB of which 3.45 GiB is free. Including non-PyTorch memory, this process has 136.34 GiB memory "
    "in use. Of the allocated memory 135.59 GiB is allocated by PyTorch, and 13.82 MiB is reserved by "
    "PyTorch but unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory "
    "Management  "
    "(https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
)
BAD_VALUE = (
    "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
    "  Value error, User-specified max_model_len (65536) is greater than the derived max_model_len "
    "(max_position_embeddings=8192.0 or model_max_length=None in model's config.json). To allow overriding "
    "this maximum, set the env var VLLM_ALLOW_LONG_MAX_MODEL_LEN=1.\n"
    "    For further information visit https://errors.pydantic.dev/2.14/v/value_error"
)


_SITE = "/srv/venv/lib/python3.11/site-packages/vllm"


def engine_start_failed(error: str, pid: int) -> None:
    """The end of a start whose engine raised `error`: its traceback first, the generic line last."""
    trace = (
        "Traceback (most recent call last):\n"
        f'  File "{_SITE}/v1/engine/core.py", line 1482, in run_engine_core\n'
        "    engine_core = EngineCoreProc(*args, engine_index=dp_rank, **kwargs)\n" + error
    )
    say("EngineCore", "core.py:1510", "EngineCore failed to start.", level="ERROR", pid=pid)
    say("EngineCore", "core.py:1510", trace, level="ERROR", pid=pid)
    raw(f"Process EngineCore:\n{trace}\n")
    api_server_failed(
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
    )


def api_server_failed(error: str) -> None:
    """An uncaught exception of the API server."""
    entry = f"{_SITE}/entrypoints/launchers/api_server/entry.py"
    raw(
        f'Traceback (most recent call last):\n  File "{entry}", line 232, in main\n'
        f"    uvloop.run(run_server(args))\n{error}\n"
    )


def engine_died(pid: int) -> None:
    """An engine that dies at a request: the worker's exception, then what it led to."""
    cause = (
        "Traceback (most recent call last):\n"
        f'  File "{_SITE}/v1/worker/gpu_model_runner.py", line 3460, in _sample\n'
        "    sampler_output = self.rejection_sampler(\n"
        "AssertionError: Synthetic acceptance not supported with CPU sampling"
    )
    where = "multiproc_executor.py:1063"
    say("Worker", where, f"WorkerProc hit an exception.\n{cause}", level="ERROR", pid=pid)
    say("EngineCore", "core.py:1520", "EngineCore encountered a fatal error.", level="ERROR", pid=pid)
    dead = (
        "AsyncLLM output_handler failed.\nTraceback (most recent call last):\n"
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. "
        "See stack trace (above) for the root cause."
    )
    say("APIServer", "async_llm.py:906", dead, level="ERROR")
