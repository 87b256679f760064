"""`autotune bench`: the ladder against any running server."""

import os
import time
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from autotune.cli import options
from autotune.cli.bench_view import BenchView
from autotune.cli.console import INTERRUPTED, err, errors_as_sentences, out, print_json
from autotune.cli.run import stop_on_signals
from autotune.domain.bench import BenchResult, Endpoint
from autotune.domain.interrupt import Interrupt
from autotune.domain.slo import parse_slos
from autotune.domain.trial import Interruption
from autotune.domain.workload import Workload
from autotune.errors import EnvironmentFault, UserError
from autotune.files.bench_result import bench_document, save_bench_result
from autotune.files.prompt_lines import source_texts
from autotune.files.workloads import load_workload
from autotune.report.bench import ladder
from autotune.wiring.bench import BenchEnd, BenchRequest, prepare_bench, run_bench
from autotune.wiring.prepare import adjusted

_DEFAULT_KEY = "OPENAI_API_KEY"


Url = Annotated[str, typer.Argument(metavar="URL", help="Of the server: http://host:8000, host:8000, ...")]
Model = Annotated[str | None, typer.Option(help="Model to ask for. Default: the one the server has.")]
Repeats = Annotated[
    int, typer.Option(min=1, help="How often to measure the whole ladder; from 2 on with intervals.")
]
PromptSeed = Annotated[int | None, typer.Option(help="Seed of the prompts and their order.")]
EndpointName = Annotated[
    str, typer.Option(help="auto (vLLM's completions, else what the server has), completions or chat.")
]
ApiKeyEnv = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"Environment variable with the server's API key. Default: {_DEFAULT_KEY}, if that is set.",
    ),
]
Timeout = Annotated[
    str | None, typer.Option(help="Longest time for all of it, e.g. 10m; what was measured is kept.")
]
Save = Annotated[
    Path | None, typer.Option(metavar="FILE.json", help="Keep the result; `autotune compare` reads it.")
]


def bench(
    url: Url,
    model: Model = None,
    workload: options.WorkloadRef = None,
    streams: options.Streams = None,
    prompt_tokens: options.PromptTokens = None,
    output_tokens: options.OutputTokens = None,
    rate: options.Rate = None,
    slo: options.Slos = None,
    repeats: Repeats = 1,
    seed: PromptSeed = None,
    endpoint: EndpointName = "auto",
    api_key_env: ApiKeyEnv = None,
    timeout: Timeout = None,
    save: Save = None,
    as_json: options.AsJson = False,
) -> None:
    """Measure a running OpenAI-compatible server at rising numbers of concurrent streams.

    Example:  autotune bench http://localhost:8000      autotune bench gpu1:8000 --streams 1,8 --save a.json
    """
    with errors_as_sentences():
        chosen = adjusted(
            load_workload(workload, Path.cwd()) if workload else Workload(),
            streams=options.parse_streams(streams) if streams else None,
            prompt_tokens=options.parse_lengths("--prompt-tokens", prompt_tokens) if prompt_tokens else None,
            output_tokens=options.parse_lengths("--output-tokens", output_tokens) if output_tokens else None,
            rate_per_stream=rate,
            slos=parse_slos(slo or ()),
        )
        chosen = chosen if seed is None else replace(chosen, seed=seed)
        request = BenchRequest(
            url=url,
            workload=chosen,
            texts=source_texts(chosen),
            model=model,
            endpoint=_endpoint(endpoint),
            repeats=repeats,
            api_key=_api_key(api_key_env),
            is_default_key=api_key_env is None,
        )
        _check_place(save)
        limit_s = options.budget_seconds("--timeout", timeout) if timeout else inf
        interrupt = Interrupt(time.monotonic, time.monotonic() + limit_s)
        with stop_on_signals(interrupt, "Stopping: what was measured is kept ..."):
            end = _measure(request, interrupt)
        _print(end.result, save, as_json=as_json)
        _finish(end, timeout)


def _measure(request: BenchRequest, interrupt: Interrupt) -> BenchEnd:
    with BenchView(request, interrupt) as view:
        return run_bench(prepare_bench(request, view, interrupt), view, interrupt)


def _endpoint(text: str) -> Endpoint | None:
    """None for `auto`. Raises UserError."""
    if text == "auto":
        return None
    if text not in set(Endpoint):
        raise UserError(f"--endpoint {text!r}: choose auto, {' or '.join(Endpoint)}")
    return Endpoint(text)


def _api_key(name: str | None) -> str | None:
    """The key in the variable `name`. Raises UserError where one was asked for and there is none."""
    key = os.environ.get(name or _DEFAULT_KEY, "").strip()
    if name is not None and not key:
        raise UserError(f"--api-key-env {name}: there is no such environment variable, or it is empty")
    if not key.isascii() or not key.isprintable():
        raise UserError(f"the API key in {name or _DEFAULT_KEY} has characters that no HTTP header can have")
    return key or None


def _check_place(save: Path | None) -> None:
    """Raise UserError where a result could not be kept, before it is measured."""
    if save is None:
        return
    if save.suffix != ".json":
        raise UserError(f"--save {save}: a bench result ends in .json")
    if not save.parent.is_dir():
        raise UserError(f"--save {save}: there is no folder {save.parent}")


def _print(result: BenchResult, save: Path | None, *, as_json: bool) -> None:
    if save is not None and result.ladders:
        save_bench_result(result, save)
        err.print(Text(f"Saved as {save}"), soft_wrap=True)
    if as_json:
        print_json(msgspec.json.encode(bench_document(result)).decode())
    elif result.ladders:
        out.print(ladder(result))


def _finish(end: BenchEnd, timeout: str | None) -> None:
    """Leave with the exit code that says how it ended."""
    if end.failure is not None:
        raise EnvironmentFault(f"{end.result.url}: {end.failure}")
    if end.stopped is Interruption.USER:
        raise typer.Exit(INTERRUPTED)
    if end.stopped is not None:
        measured = sum(len(points) for points in end.result.ladders)
        raise EnvironmentFault(f"--timeout {timeout}: the time was over after {measured} points")
