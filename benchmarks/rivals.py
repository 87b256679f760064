"""The load generators that are compared: how each is started, and which versions they are."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
GUIDELLM = "guidellm==0.8.1"
OURS, VLLM, GUIDE = "autotune", "vllm_bench_serve", "guidellm"
_PROMPT_WORDS = 32
_WORDS = 1000
# Nothing is to be fetched, nobody to be told; and one worker process is the cheapest on one core.
_QUIET = {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "GUIDELLM__MAX_WORKER_PROCESSES": "1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a client is asked for: so many requests of so many tokens, that many at a time."""

    url: str
    streams: int
    tokens: int
    requests: int
    tick_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """A load generator. `counts_requests` is whether it sends exactly `Load.requests`, or goes by time."""

    name: str
    program: Path
    counts_requests: bool = True
    environment: Mapping[str, str] = field(default_factory=lambda: {**os.environ, **_QUIET})

    def argv(self, load: Load, folder: Path) -> list[str]:
        """How to start it; `folder` has what `write_inputs` has written."""
        match self.name:
            case "vllm_bench_serve":
                return _vllm(self.program, load, folder)
            case "guidellm":
                return _guidellm(self.program, load, folder)
        e2e_s = load.tokens * load.tick_s
        words = (load.url, load.streams, load.tokens, e2e_s)
        return [str(self.program), str(HERE / "our_load.py"), *map(str, words)]


def _vllm(program: Path, load: Load, folder: Path) -> list[str]:
    options = {
        "backend": "openai",
        "base-url": load.url,
        "endpoint": "/v1/completions",
        "model": "known-timing",
        "tokenizer": folder,
        "dataset-name": "random",
        "random-input-len": _PROMPT_WORDS,
        "random-output-len": load.tokens,
        "num-prompts": load.requests,
        "max-concurrency": load.streams,
    }
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return [str(program), "bench", "serve", *words, "--ignore-eos", "--disable-tqdm"]


def _guidellm(program: Path, load: Load, folder: Path) -> list[str]:
    backend = f"kind=openai_http,target={load.url},model=known-timing"
    options = {
        "backend": f"{backend},request_format=/v1/completions,max_tokens={load.tokens}",
        "profile": f"kind=concurrent,streams={load.streams}",
        "constraint": f"kind=max_requests,count={load.requests}",
        "tokenizer": f"kind=huggingface_auto,model={folder}",
        "data": f"kind=json_file,path={folder / 'prompts.jsonl'}",
        "output": f"kind=json,path={folder / 'guidellm.json'}",
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    return [str(program), "run", *words, "--disable-console"]


def write_inputs(folder: Path, requests: int) -> None:
    """Write a tokenizer that splits at blanks, and as many prompts as the longest run needs."""
    vocabulary = {"[UNK]": 0} | {f"w{number}": number + 1 for number in range(_WORDS)}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"}
    nothing = ("truncation", "padding", "normalizer", "post_processor", "decoder")
    tokenizer: dict[str, object] = {"version": "1.0", "added_tokens": [], **dict.fromkeys(nothing)}
    tokenizer |= {"pre_tokenizer": {"type": "Whitespace"}, "model": model}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    with (folder / "prompts.jsonl").open("w") as file:
        for first in range(requests):
            words = [f"w{(first + number) % _WORDS}" for number in range(_PROMPT_WORDS)]
            file.write(json.dumps({"prompt": " ".join(words)}) + "\n")


def installed_guidellm() -> Path | str:
    """guidellm in a virtual environment of its own, made where it is missing; else why there is none."""
    program = HERE / ".venv" / "bin" / "guidellm"
    if version(program, "guidellm") == GUIDELLM.partition("==")[2]:
        return program
    print(f"installing {GUIDELLM} into {HERE / '.venv'}", file=sys.stderr)
    for argv in (
        [sys.executable, "-m", "venv", "--clear", str(HERE / ".venv")],
        [str(program.with_name("python")), "-m", "pip", "install", "--quiet", GUIDELLM],
    ):
        step = subprocess.run(argv, check=False, capture_output=True, text=True)
        if step.returncode:
            last = (step.stderr or step.stdout).strip().splitlines()[-1:]
            return f"{GUIDELLM} cannot be installed: {''.join(last)}"
    return program


def version(program: Path, package: str) -> str | None:
    """The version of a package in the environment that `program` belongs to; None where it is not."""
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    try:
        step = subprocess.run(
            [str(program.with_name("python")), "-c", code], check=False, capture_output=True, text=True
        )
    except OSError:
        return None
    return step.stdout.strip() or None
