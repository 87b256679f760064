"""Recorded logs with their labels, and logs made around the few lines that a rule is about."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.domain.failure import Evidence

DATA = Path(__file__).parent.parent / "data"
LOGS = DATA / "logs"


@dataclass(frozen=True)
class Labelled:
    """A recorded log and what a reader found in it."""

    name: str
    label: Mapping[str, Any]

    @property
    def text(self) -> str:
        return (LOGS / self.name).read_bytes().decode()

    @property
    def fails(self) -> bool:
        """Its lines show a failure."""
        return not (self.label.get("healthy") or self.label.get("silent"))

    def evidence(self, **changes: Any) -> Evidence:
        facts = {key: self.label[key] for key in ("exit_code", "ready", "served")}
        facts["stop_requested"] = self.label.get("stop_requested", False)
        return Evidence(log=self.text, **{**facts, **changes})

    def __str__(self) -> str:
        return self.name


def labelled() -> list[Labelled]:
    labels = tomllib.loads((LOGS / "labels.toml").read_text())
    return [Labelled(name, label) for name, label in labels.items()]


def snippets() -> dict[str, dict[str, Any]]:
    return tomllib.loads((DATA / "rule_snippets.toml").read_text())


# How far a server has come before a snippet's lines, as vLLM 0.26 says it.
_STEPS = {
    "args": [],
    "config": ["(APIServer pid=11) INFO 06-01 10:00:02 [model.py:623] Resolved architecture: LlamaForCausalLM"],
    "device": [
        "(EngineCore pid=22) INFO 06-01 10:00:12 [core.py:116] Initializing a V1 LLM engine (v{version}) with config:"
        " model='meta/llama', speculative_config=None, tokenizer='meta/llama'",
        "(EngineCore pid=22) INFO 06-01 10:00:13 [parallel_state.py:1615] world_size=1 rank=0 local_rank=0 backend=nccl",
    ],
    "weights": ["(EngineCore pid=22) INFO 06-01 10:00:14 [model_runner.py:284] Loading model from scratch..."],
    "profile": ["(EngineCore pid=22) INFO 06-01 10:00:20 [model_runner.py:305] Model loading took 13.54 GiB and 5.9 seconds"],
    "kv_cache": [
        "(EngineCore pid=22) INFO 06-01 10:00:24 [gpu_worker.py:560] Available KV cache memory: 51.2 GiB",
        "(EngineCore pid=22) INFO 06-01 10:00:24 [kv_cache_utils.py:2177] GPU KV cache size: 419,430 tokens",
    ],
    "graphs": ["(EngineCore pid=22) Capturing CUDA graphs (PIECEWISE):   0%|          | 0/51 [00:00<?, ?it/s]"],
    "first_request": [
        "(EngineCore pid=22) INFO 06-01 10:00:31 [model_runner.py:747] Graph capturing finished in 6 secs, took 0.98 GiB",
        "(APIServer pid=11) INFO 06-01 10:00:32 [api_server.py:1346] Starting vLLM server on http://127.0.0.1:8000",
        "(APIServer pid=11) INFO:     Application startup complete.",
        '(APIServer pid=11) INFO:     127.0.0.1:51001 - "GET /health HTTP/1.1" 200 OK',
    ],
    "serving": [
        '(APIServer pid=11) INFO:     127.0.0.1:51002 - "POST /v1/completions HTTP/1.1" 200 OK',
        "(APIServer pid=11) INFO 06-01 10:00:42 [loggers.py:310] Engine 000: Avg prompt throughput: 8.0 tokens/s, Avg "
        "generation throughput: 41.3 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.1%",
    ],
}
_FUNCTIONS = {
    "config": ["run_server", "build_async_engine_client", "create_engine_config"],
    "device": ["run_engine_core", "_init_executor", "init_device"],
    "weights": ["run_engine_core", "_init_executor", "load_model", "initialize_model"],
    "profile": ["run_engine_core", "_initialize_kv_caches", "determine_available_memory", "profile_run"],
    "kv_cache": ["run_engine_core", "_initialize_kv_caches", "get_kv_cache_configs"],
    "graphs": ["run_engine_core", "_initialize_kv_caches", "compile_or_warm_up_model", "capture_model"],
    "first_request": ["run_engine_core", "run_busy_loop", "_process_engine_step", "execute_model"],
    "serving": ["run_engine_core", "run_busy_loop", "_process_engine_step", "execute_model"],
}
_WRAPPER = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
_DEAD = "EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause."


def render(snippet: Mapping[str, Any]) -> str:
    """The log of a server that came as far as `at` and then said `lines`.

    `frames` are the functions of the traceback that ends in them; `traceback = false` leaves it out. `args` and
    `info` add to what was said before, `level` is that of the lines, `alone` leaves out what follows a death.
    """
    return "\n".join(_rendered(snippet)) + "\n"


def _rendered(snippet: Mapping[str, Any]) -> Iterator[str]:
    at, version = snippet["at"], snippet.get("version", "0.26.0")
    if at != "args":
        yield f"(APIServer pid=11) INFO 06-01 10:00:01 [api_utils.py:345]  ▄▄ ▄█ █  █  █ ▀▄▀ █  version {version}"
        args = {"model": "meta/llama", **snippet.get("args", {})}
        yield f"(APIServer pid=11) INFO 06-01 10:00:01 [api_utils.py:273] non-default args: {args}"
    for step, lines in _STEPS.items():
        yield from (line.replace("{version}", version) for line in lines)
        if step == at:
            break
    yield from snippet.get("info", [])
    yield from _error(snippet, at)
    if snippet.get("alone") or at in ("args", "config"):
        return
    yield from _aftermath(started=at in ("first_request", "serving"))


def _error(snippet: Mapping[str, Any], at: str) -> Iterator[str]:
    early = at in ("args", "config")
    process = snippet.get("process", "APIServer pid=11" if early else "EngineCore pid=22")
    level = snippet.get("level", "" if early else "ERROR")
    title = "EngineCore encountered a fatal error." if at in ("first_request", "serving") else "EngineCore failed to start."
    source = "core.py:1332" if level == "ERROR" else "interface.py:771"
    tag = f"({process}) " if process and at != "args" else ""
    tag += f"{level} 06-01 10:00:50 [{source}] " if level else ""
    traceback = snippet.get("traceback", at != "args")
    if traceback:
        if level:
            yield tag + title
        yield tag + "Traceback (most recent call last):"
        for function in snippet.get("frames", _FUNCTIONS.get(at, ["main"])):
            yield tag + f'  File "/opt/venv/lib/python3.12/site-packages/vllm/v1/some/module.py", line 7, in {function}'
            yield tag + "    return do(what, it, does)"
    yield from (tag + line for line in snippet["lines"])


def _aftermath(*, started: bool) -> Iterator[str]:
    if not started:
        yield "(APIServer pid=11) Traceback (most recent call last):"
        yield '(APIServer pid=11)   File "/opt/venv/lib/python3.12/site-packages/vllm/v1/engine/utils.py", line 9, in wait'
        yield "(APIServer pid=11)     raise RuntimeError("
        yield f"(APIServer pid=11) {_WRAPPER}"
        return
    yield "(APIServer pid=11) ERROR 06-01 10:00:51 [async_llm.py:704] AsyncLLM output_handler failed."
    yield f"(APIServer pid=11) ERROR 06-01 10:00:51 [async_llm.py:704] vllm.v1.engine.exceptions.{_DEAD}"
    yield '(APIServer pid=11) INFO:     127.0.0.1:51007 - "POST /v1/completions HTTP/1.1" 500 Internal Server Error'
    yield "(APIServer pid=11) INFO:     Shutting down"
    yield "(APIServer pid=11) INFO:     Application shutdown complete."
