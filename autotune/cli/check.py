"""`autotune check`: a search space against the installed vLLM, without launching anything."""

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from autotune.cli.console import err, errors_as_sentences, out
from autotune.cli.options import VllmPath
from autotune.decide.space.check import Severity, check_space
from autotune.domain.launch import shell_words
from autotune.files.spaces import load_space
from autotune.host.vllm import find_vllm
from autotune.wiring.check import Draws, draw_and_ask

FOUND_ERRORS = 2


def check(
    space: Annotated[str, typer.Argument(help="A TOML file, or the name of one in search_spaces/.")],
    model: Annotated[
        str | None, typer.Option(help="Also put drawn configurations for this model to vLLM itself.")
    ] = None,
    draws: Annotated[int, typer.Option(min=1, help="How many.")] = 50,
    vllm: VllmPath = None,
) -> None:
    """Check a search space: its file, and its flags against the installed vLLM.

    Example:  autotune check search_spaces/mine.toml --model Qwen/Qwen3-8B
    """
    with errors_as_sentences():
        read = load_space(space, Path.cwd())
        with err.status("Asking vLLM for its flags ..."):
            install = find_vllm(vllm)
        findings = check_space(read, install)
        errors = sum(finding.severity is Severity.ERROR for finding in findings)
        said = None
        if model is not None and not errors:
            with err.status(f"Asking vLLM about {draws} configurations ..."):
                said = draw_and_ask(read, install, model, draws)
    for finding in findings:
        _print(str(finding))
    if said is not None:
        _print_draws(said)
    verdict = f"{errors} errors" if errors else "no errors"
    _print(f"{read.name}: {len(read.parameters)} parameters, {verdict} for vLLM {install.version}")
    if errors:
        raise typer.Exit(FOUND_ERRORS)


def _print_draws(said: Draws) -> None:
    """Each of vLLM's reasons, how often it came, and one configuration that had it."""
    refused = sum(map(len, said.refused.values()))
    _print(f"vLLM refuses {refused} of {said.asked} random configurations" + (":" if refused else ""))
    for message, configurations in said.refused.items():
        _print(f"  {len(configurations)} x {message}")
        _print(f"      as with: {shell_words(configurations[0].flags, configurations[0].env)}")
    for why, count in said.not_known.items():
        _print(f"  {count} x not known: {why}")


def _print(line: str) -> None:
    out.print(Text(line), soft_wrap=True)
