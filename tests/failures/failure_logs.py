"""Recorded logs with their labels, and logs made around the few lines that a rule is about."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from autotune.domain.failure import Evidence

DATA = Path(__file__).parent.parent / "data"
LOGS = DATA / "logs"


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known of a server beside its log."""

    exit_code: int | None = None
    ready: bool = False
    served: bool = False
    timed_out: bool = False
    client_error: str | None = None
    stop_requested: bool = False

    def with_log(self, log: str) -> Evidence:
        return Evidence(
            log=log,
            exit_code=self.exit_code,
            ready=self.ready,
            served=self.served,
            timed_out=self.timed_out,
            client_error=self.client_error,
            stop_requested=self.stop_requested,
        )


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """A recorded log and what a reader found in it."""

    name: str
    exit_code: int
    ready: bool
    served: bool
    stop_requested: bool = False
    healthy: bool = False
    silent: bool = False
    kind: str = ""
    phase: str = ""
    blame: str = ""
    line: int = 0
    root: str = ""

    @property
    def text(self) -> str:
        return (LOGS / self.name).read_bytes().decode()

    @property
    def fails(self) -> bool:
        """Its lines show a failure."""
        return not (self.healthy or self.silent)

    @property
    def evidence(self) -> Evidence:
        known = Known(
            exit_code=self.exit_code,
            ready=self.ready,
            served=self.served,
            stop_requested=self.stop_requested,
        )
        return known.with_log(self.text)

    def __str__(self) -> str:
        return self.name


def labelled() -> list[Labelled]:
    labels = tomllib.loads((LOGS / "labels.toml").read_text())
    return [Labelled(name=name, **label) for name, label in labels.items()]


@dataclass(frozen=True, kw_only=True)
class Snippet:
    """The lines a rule knows, and the server they come from: see `render`."""

    at: str
    lines: tuple[str, ...] = ()
    frames: tuple[str, ...] | None = None
    traceback: bool | None = None
    alone: bool = False
    process: str | None = None
    level: str | None = None
    version: str = "0.26.0"
    args: Mapping[str, object] = field(default_factory=dict)
    info: tuple[str, ...] = ()
    numbers: Mapping[str, float | str] = field(default_factory=dict)
    evidence: Known | None = None


QUIET = Snippet(at="args", traceback=False, alone=True)
"""A server that says nothing wrong; `replace(QUIET, at=...)` has it come further."""


def snippets() -> dict[str, Snippet]:
    table = tomllib.loads((DATA / "rule_snippets.toml").read_text())
    read = {}
    for rule, raw in table.items():
        known = raw.pop("evidence", None)
        read[rule] = replace(Snippet(**raw), evidence=Known(**known) if known else None)
    return read


# How far a server has come before a snippet's lines, as vLLM 0.26 says it.
_STEPS = {
    "args": [],
    "config": [
        "(APIServer pid=11) INFO 06-01 10:00:02 [model.py:623] Resolved architecture: LlamaForCausalLM"
    ],
    "device": [
        "(EngineCore pid=22) INFO 06-01 10:00:12 [core.py:116] Initializing a V1 LLM engine (v{version}) "
        "with config: model='meta/llama', speculative_config=None, tokenizer='meta/llama'",
        "(EngineCore pid=22) INFO 06-01 10:00:13 [parallel_state.py:1615] world_size=1 rank=0 backend=nccl",
    ],
    "weights": [
        "(EngineCore pid=22) INFO 06-01 10:00:14 [model_runner.py:284] Loading model from scratch..."
    ],
    "profile": [
        "(EngineCore pid=22) INFO 06-01 10:00:20 [model_runner.py:305] Model loading took 13.54 GiB and "
        "5.9 seconds"
    ],
    "kv_cache": [
        "(EngineCore pid=22) INFO 06-01 10:00:24 [gpu_worker.py:560] Available KV cache memory: 51.2 GiB",
        "(EngineCore pid=22) INFO 06-01 10:00:24 [kv_cache_utils.py:2177] GPU KV cache size: 419,430 tokens",
    ],
    "graphs": [
        "(EngineCore pid=22) Capturing CUDA graphs (PIECEWISE):   0%|          | 0/51 [00:00<?, ?it/s]"
    ],
    "first_request": [
        "(EngineCore pid=22) INFO 06-01 10:00:31 [model_runner.py:747] Graph capturing finished in 6 secs",
        "(APIServer pid=11) INFO 06-01 10:00:32 [api_server.py:1346] Starting vLLM server on http://127.0.0.1:8000",
        "(APIServer pid=11) INFO:     Application startup complete.",
        '(APIServer pid=11) INFO:     127.0.0.1:51001 - "GET /health HTTP/1.1" 200 OK',
    ],
    "serving": [
        '(APIServer pid=11) INFO:     127.0.0.1:51002 - "POST /v1/completions HTTP/1.1" 200 OK',
        "(APIServer pid=11) INFO 06-01 10:00:42 [loggers.py:310] Engine 000: Avg prompt throughput: 8.0 "
        "tokens/s, Avg generation throughput: 41.3 tokens/s, Running: 1 reqs, Waiting: 0 reqs",
    ],
}
_FUNCTIONS = {
    "args": ("<module>", "main"),
    "config": ("run_server", "build_async_engine_client", "create_engine_config"),
    "device": ("run_engine_core", "_init_executor", "init_device"),
    "weights": ("run_engine_core", "_init_executor", "load_model", "initialize_model"),
    "profile": ("run_engine_core", "_initialize_kv_caches", "determine_available_memory", "profile_run"),
    "kv_cache": ("run_engine_core", "_initialize_kv_caches", "get_kv_cache_configs"),
    "graphs": ("run_engine_core", "_initialize_kv_caches", "compile_or_warm_up_model", "capture_model"),
    "first_request": ("run_engine_core", "run_busy_loop", "_process_engine_step", "execute_model"),
    "serving": ("run_engine_core", "run_busy_loop", "_process_engine_step", "execute_model"),
}
_FILE = "/opt/venv/lib/python3.12/site-packages/vllm/v1/some/module.py"
_WRAPPER = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
_DEAD = "EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause."


def render(snippet: Snippet) -> str:
    """The log of a server that came as far as `at` and then said `lines`.

    `frames` are the functions of the traceback that ends in them; `traceback = false` leaves it out. `args`
    and `info` add to what was said before, `level` is that of the lines, `alone` leaves out what follows.
    """
    return "\n".join([*_before(snippet), *_error(snippet), *_after(snippet)]) + "\n"


def _before(snippet: Snippet) -> Iterator[str]:
    if snippet.at != "args":
        yield f"(APIServer pid=11) INFO 06-01 10:00:01 [api_utils.py:345]  ▄▄ ▄█ █  version {snippet.version}"
        args = {"model": "meta/llama", **snippet.args}
        yield f"(APIServer pid=11) INFO 06-01 10:00:01 [api_utils.py:273] non-default args: {args}"
    for step, lines in _STEPS.items():
        yield from (line.replace("{version}", snippet.version) for line in lines)
        if step == snippet.at:
            break
    yield from snippet.info


def _error(snippet: Snippet) -> Iterator[str]:
    at, early = snippet.at, snippet.at in ("args", "config")
    level = ("" if early else "ERROR") if snippet.level is None else snippet.level
    process = snippet.process
    if process is None:
        process = {"args": "", "config": "APIServer pid=11"}.get(at, "EngineCore pid=22")
    tag = f"({process}) " if process else ""
    tag += (
        f"{level} 06-01 10:00:50 [{'core.py:1332' if level == 'ERROR' else 'interface.py:771'}] "
        if level
        else ""
    )
    if (at != "args") if snippet.traceback is None else snippet.traceback:
        serves = at in ("first_request", "serving")
        if level:
            yield tag + ("EngineCore encountered a fatal error." if serves else "EngineCore failed to start.")
        yield tag + "Traceback (most recent call last):"
        for function in snippet.frames or _FUNCTIONS[at]:
            yield tag + f'  File "{_FILE}", line 7, in {function}'
            yield tag + "    return do(what, it, does)"
    yield from (tag + line for line in snippet.lines)


def _after(snippet: Snippet) -> Iterator[str]:
    if snippet.alone or snippet.at in ("args", "config"):
        return
    if snippet.at not in ("first_request", "serving"):
        yield "(APIServer pid=11) Traceback (most recent call last):"
        yield f'(APIServer pid=11)   File "{_FILE}", line 9, in wait_for_engine_startup'
        yield "(APIServer pid=11)     raise RuntimeError("
        yield f"(APIServer pid=11) {_WRAPPER}"
        return
    yield "(APIServer pid=11) ERROR 06-01 10:00:51 [async_llm.py:704] AsyncLLM output_handler failed."
    yield f"(APIServer pid=11) ERROR 06-01 10:00:51 [async_llm.py:704] vllm.v1.engine.exceptions.{_DEAD}"
    yield '(APIServer pid=11) INFO:     127.0.0.1:51007 - "POST /v1/completions HTTP/1.1" 500 Internal'
    yield "(APIServer pid=11) INFO:     Shutting down"
    yield "(APIServer pid=11) INFO:     Application shutdown complete."
