"""`autotune run`: begin a study, or go on with it."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated

import typer

from autotune.cli.console import INTERRUPTED, err, errors_as_sentences
from autotune.cli.options import Database, VllmPath, budget_seconds, parse_ports, parse_streams
from autotune.cli.progress import RunView
from autotune.cli.summary import print_summary
from autotune.decide.space.default_space import MIN_CONTEXT_TOKENS
from autotune.domain.failure import Blame
from autotune.domain.interrupt import Interrupt
from autotune.domain.objective import METRICS, Objective
from autotune.domain.trial import Interruption
from autotune.errors import EnvironmentFault, HarnessError, UserError
from autotune.tune.study import Ending, StudyEnd
from autotune.units import format_duration
from autotune.wiring.open import open_store
from autotune.wiring.prepare import PreparedStudy, RunRequest, prepare_study
from autotune.wiring.run import make_interrupt, run_study


def run(
    model: Annotated[str, typer.Argument(help="Model directory, or Hugging Face id as for `vllm serve`.")],
    budget: Annotated[
        str | None,
        typer.Option(
            help="Wall-clock time for this invocation, all included: 10m, 4h, 1h30m. "
            "Default: the study file's, else 1h."
        ),
    ] = None,
    study: Annotated[
        str | None, typer.Option(help="Study settings: a TOML file, or the name of one in studies/.")
    ] = None,
    space: Annotated[
        str | None,
        typer.Option(
            help="Search space: a TOML file, or the name of one in search_spaces/. "
            "Without it one is derived from the machine and the model."
        ),
    ] = None,
    db: Database = None,
    vllm: VllmPath = None,
    streams: Annotated[str | None, typer.Option(help="Concurrent streams to measure, e.g. 1,2,4,8.")] = None,
    prompt_tokens: Annotated[int | None, typer.Option(help="Prompt tokens of a request.")] = None,
    output_tokens: Annotated[int | None, typer.Option(help="Output tokens of a request.")] = None,
    context: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Tokens of context that every configuration must allow, when the search space is derived. "
            f"Default: {MIN_CONTEXT_TOKENS}, or the model's if that is less.",
        ),
    ] = None,
    objective: Annotated[
        list[str] | None,
        typer.Option(
            help="METRIC@STREAMS to optimise, can be repeated: " + ", ".join(METRICS) + ". "
            "Default: out_tok_s at the most and at the fewest streams."
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the search.")] = None,
    startup_timeout: Annotated[
        str | None, typer.Option(help="How long a server may take to start, e.g. 15m.")
    ] = None,
    ports: Annotated[
        str | None, typer.Option(help="Ports for trial servers, e.g. 8100-8199. Default: any free one.")
    ] = None,
) -> None:
    """Search for the fastest configuration of MODEL's server, and keep every trial.

    The same command again goes on with the study. Ctrl-C stops cleanly and keeps everything.

    Example:  autotune run Qwen/Qwen3-8B --budget 4h
    """
    begun_s = time.monotonic()
    with errors_as_sentences():
        request = RunRequest(
            model=model,
            budget_s=budget_seconds("--budget", budget) if budget else None,
            begun_s=begun_s,
            study=study,
            space=space,
            database=db,
            vllm=vllm,
            streams=parse_streams(streams) if streams else None,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            context_tokens=context,
            objectives=tuple(Objective.parse(text) for text in objective or ()),
            seed=seed,
            startup_s=budget_seconds("--startup-timeout", startup_timeout) if startup_timeout else None,
            ports=parse_ports(ports) if ports else None,
        )
        with err.status("Looking at machine, model and vLLM ..."):
            prepared = prepare_study(request)
        interrupt = make_interrupt(prepared)
        _announce(prepared)
        with stop_on_signals(interrupt), RunView(prepared.spec.objectives, interrupt) as view:
            end = run_study(prepared, view, interrupt)
        with open_store(prepared.url) as store:
            print_summary(store, prepared.url)
        _finish(end)


def _announce(prepared: PreparedStudy) -> None:
    spec, vllm = prepared.spec, prepared.environment.vllm
    err.print(
        f"Study {spec.name}: {spec.model} on vLLM {vllm.version} ({vllm.device}), search space "
        f"{spec.space.name} with {len(spec.space.parameters)} parameters, "
        f"budget {format_duration(prepared.budget_s)}.",
        markup=False, highlight=False,
    )  # fmt: skip
    for name, reason in spec.space.left_out.items():
        err.print(f"  left out: {name}: {reason}", markup=False, highlight=False, style="dim")
    for finding in prepared.findings:
        err.print(f"  {finding}", markup=False, highlight=False, style="dim")


@contextmanager
def stop_on_signals(interrupt: Interrupt) -> Iterator[None]:
    """While inside, Ctrl-C, SIGTERM and a closed terminal ask for a clean stop instead of breaking off."""

    def ask(_signal: int, _frame: FrameType | None) -> None:
        if interrupt.reason is None:
            err.print("Stopping: the server is ended first, everything measured is kept ...")
        interrupt.request(Interruption.USER)

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, ask) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


def _finish(end: StudyEnd) -> None:
    """Leave with the exit code that says how it ended."""
    if end.ending is Ending.USER:
        raise typer.Exit(INTERRUPTED)
    if end.ending is Ending.EXHAUSTED:
        err.print("Ended early: lessons forbid all that is left of the search space. See: autotune lessons")
    if end.failure is not None:
        sentence = f"{end.failure.why}. {end.failure.cure}".strip()
        match end.failure.blame:
            case Blame.USER:
                raise UserError(sentence)
            case Blame.HARNESS:
                raise HarnessError(sentence)
            case _:
                raise EnvironmentFault(sentence)
