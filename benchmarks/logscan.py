"""How fast a log is read: prints MB/s for a generated log of each kind, 100 MB by default.

    python benchmarks/logscan.py [MEGABYTES]

`serving` is a server's day: requests, statistics, a failure at the end. `failing` is nothing but tracebacks.
`hostile` is lines made to be slow: every literal of the rules, none of the texts.
"""

import itertools
import sys
import time
from collections.abc import Iterator

from autotune.decide.failures.logscan import scan
from autotune.decide.failures.rulebook import Rules
from autotune.files.rules import VLLM_RULES, read_rules

_API, _ENGINE = "(APIServer pid=11) INFO 06-01 10:00:01", "(EngineCore pid=22) INFO 06-01 10:00:12"
_START = [
    f"{_API} [api_utils.py:273] non-default args: {{'model': 'meta/llama'}}",
    f"{_ENGINE} [core.py:116] Initializing a V1 LLM engine (v0.26.0) with config: x",
    "(APIServer pid=11) INFO:     Application startup complete.",
]
_REQUESTS = [
    '(APIServer pid=11) INFO:     127.0.0.1:51002 - "POST /v1/completions HTTP/1.1" 200 OK',
    f"{_API} [loggers.py:310] Engine 000: Avg prompt throughput: 8517.5 tokens/s, Avg generation throughput: "
    "2278.5 tokens/s, Running: 59 reqs, Waiting: 5 reqs, GPU KV cache usage: 2.6%, Prefix cache hit: 0.0",
    '(APIServer pid=11) INFO:     127.0.0.1:51008 - "GET /health HTTP/1.1" 200 OK',
]
_ERROR = "(EngineCore pid=22) ERROR 06-01 10:01:00 [core.py:1332] "
_FUNCTIONS = ("run_engine_core", "run_busy_loop", "_process_engine_step", "execute_model", "forward")
_TRACEBACK = [
    f"{_ERROR}EngineCore encountered a fatal error.",
    f"{_ERROR}Traceback (most recent call last):",
    *(
        line
        for function in _FUNCTIONS
        for line in (
            f'{_ERROR}  File "/opt/venv/lib/python3.12/site-packages/vllm/v1/core.py", line 7, in {function}',
            f"{_ERROR}    return self.do(what, it, does)",
        )
    ),
    f"{_ERROR}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 896.00 MiB. GPU 0 has a total "
    "capacity of 139.80 GiB of which 557.12 MiB is free.",
]


def _repeated(lines: list[str], size_bytes: int) -> Iterator[str]:
    left = size_bytes
    for line in itertools.cycle(lines):
        if left <= 0:
            return
        left -= len(line) + 1
        yield line


def _logs(rules: Rules, size_bytes: int) -> dict[str, Iterator[str]]:
    literals = [literal for rule in rules.index.rules for literal in rule.contains]
    hostile = [" ".join(literals[i : i + 8]) for i in range(0, len(literals), 8)]
    return {
        "serving": itertools.chain(_START, _repeated(_REQUESTS, size_bytes), _TRACEBACK),
        "failing": itertools.chain(_START, _repeated(_TRACEBACK, size_bytes)),
        "hostile": _repeated(hostile, size_bytes),
    }


def main() -> None:
    """Print one line for each kind of log."""
    megabytes = float(sys.argv[1]) if len(sys.argv) > 1 else 100.0
    rules = read_rules(VLLM_RULES)
    for name, lines in _logs(rules, int(megabytes * 1e6)).items():
        begin_s = time.monotonic()
        finding = scan(lines, rules)
        took_s = time.monotonic() - begin_s
        named = finding.failure.rule if finding.failure else "no failure"
        print(f"{name:8} {megabytes / took_s:6.1f} MB/s  {took_s:5.1f} s  {finding.lines} lines  {named}")


if __name__ == "__main__":
    main()
