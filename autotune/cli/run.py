"""`autotune run`: begin a study, or go on with it."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

from autotune.cli import options
from autotune.cli.console import INTERRUPTED, err, errors_as_sentences
from autotune.cli.progress import RunView
from autotune.cli.summary import print_summary
from autotune.domain.failure import Blame
from autotune.domain.interrupt import Interrupt
from autotune.domain.metric_limit import parse_metric_limits
from autotune.domain.objective import Objective
from autotune.domain.slo import parse_slos
from autotune.domain.trial import Interruption
from autotune.domain.workload import Lengths
from autotune.errors import EnvironmentFault, HarnessError, UserError
from autotune.report.words import counted
from autotune.tune.study import Ending, StudyEnd
from autotune.units import format_duration
from autotune.wiring.open import open_store
from autotune.wiring.prepare import PreparedStudy, RunRequest, prepare_study
from autotune.wiring.run import make_interrupt, run_study


def run(
    model: options.ModelName,
    budget: options.Budget = None,
    study: options.StudyRef = None,
    space: options.SpaceRef = None,
    db: options.Database = None,
    vllm: options.VllmPath = None,
    workload: options.WorkloadRef = None,
    streams: options.Streams = None,
    prompt_tokens: options.PromptTokens = None,
    output_tokens: options.OutputTokens = None,
    rate: options.Rate = None,
    context: options.Context = None,
    objective: options.Objectives = None,
    limit: options.MetricLimits = None,
    slo: options.Slos = None,
    seed: options.Seed = None,
    no_finals: options.NoFinals = False,
    patience: options.Patience = None,
    startup_timeout: options.StartupTimeout = None,
    ports: options.Ports = None,
) -> None:
    """Search for the fastest configuration of MODEL's server, and keep every trial.

    The same command again goes on with the study. Ctrl-C stops cleanly and keeps everything.

    Example:  autotune run Qwen/Qwen3-8B --budget 4h
    """
    begun_s = time.monotonic()
    with errors_as_sentences():
        request = RunRequest(
            model=model,
            budget_s=options.budget_seconds("--budget", budget) if budget else None,
            begun_s=begun_s,
            study=study,
            space=space,
            database=db,
            vllm=vllm,
            streams=options.parse_streams(streams) if streams else None,
            workload=workload,
            prompt_tokens=_lengths("--prompt-tokens", prompt_tokens),
            output_tokens=_lengths("--output-tokens", output_tokens),
            rate_per_stream=rate,
            context_tokens=context,
            objectives=tuple(Objective.parse(text) for text in objective or ()),
            metric_limits=parse_metric_limits(limit or ()),
            slos=parse_slos(slo or ()),
            seed=seed,
            no_finals=no_finals,
            patience=patience,
            startup_s=options.budget_seconds("--startup-timeout", startup_timeout)
            if startup_timeout
            else None,
            ports=options.parse_ports(ports) if ports else None,
        )
        with err.status("Looking at machine, model and vLLM ..."):
            prepared = prepare_study(request)
        interrupt = make_interrupt(prepared)
        _announce(prepared)
        view = RunView(prepared.spec.objectives, interrupt, prepared.spec.metric_limits)
        with stop_on_signals(interrupt), view:
            end = run_study(prepared, view, interrupt)
        with open_store(prepared.url) as store:
            print_summary(store)
        finish(end)


def _lengths(option: str, text: str | None) -> Lengths | None:
    return None if text is None else options.parse_lengths(option, text)


def _announce(prepared: PreparedStudy) -> None:
    spec, vllm = prepared.spec, prepared.environment.vllm
    err.print(
        f"Study {spec.name}: {spec.model} on vLLM {vllm.version} ({vllm.device}), search space "
        f"{spec.space.name} with {len(spec.space.parameters)} parameters, "
        f"{counted(len(spec.starts), 'start point')}, "
        f"budget {format_duration(prepared.budget_s)}.",
        markup=False, highlight=False,
    )  # fmt: skip
    for name, reason in spec.space.left_out.items():
        err.print(f"  left out: {name}: {reason}", markup=False, highlight=False, style="dim")
    for finding in prepared.findings:
        err.print(f"  {finding}", markup=False, highlight=False, style="dim")


@contextmanager
def stop_on_signals(
    interrupt: Interrupt,
    saying: str = "Stopping: the server is ended first, everything measured is kept ...",
) -> Iterator[None]:
    """While inside, Ctrl-C, SIGTERM and a closed terminal ask for a clean stop instead of breaking off."""

    def ask(_signal: int, _frame: FrameType | None) -> None:
        if interrupt.reason is None:
            err.print(saying)
        interrupt.request(Interruption.USER)

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, ask) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


def finish(end: StudyEnd) -> None:
    """Leave with the exit code that says how it ended."""
    if end.ending is Ending.USER:
        raise typer.Exit(INTERRUPTED)
    if end.ending is Ending.EXHAUSTED:
        err.print("Ended early: lessons and vLLM refuse all that is left. See: autotune lessons")
    if end.ending is Ending.PATIENCE:
        err.print("Ended early, as asked by --patience: the last trials brought no gain of more than 1 %.")
    if end.failure is not None:
        sentence = f"{end.failure.why}. {end.failure.cure}".strip()
        match end.failure.blame:
            case Blame.USER:
                raise UserError(sentence)
            case Blame.HARNESS:
                raise HarnessError(sentence)
            case _:
                raise EnvironmentFault(sentence)
