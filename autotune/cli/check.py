"""`autotune check`: a search space against the installed vLLM, without launching anything."""

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from autotune.cli.console import err, errors_as_sentences, out
from autotune.cli.options import VllmPath
from autotune.decide.space.check import Severity, check_space
from autotune.files.spaces import load_space
from autotune.host.vllm import find_vllm

FOUND_ERRORS = 2


def check(
    space: Annotated[str, typer.Argument(help="A TOML file, or the name of one in search_spaces/.")],
    vllm: VllmPath = None,
) -> None:
    """Check a search space: its file, and its flags against the installed vLLM.

    Example:  autotune check search_spaces/mine.toml
    """
    with errors_as_sentences():
        read = load_space(space, Path.cwd())
        with err.status("Asking vLLM for its flags ..."):
            install = find_vllm(vllm)
        findings = check_space(read, install)
    for finding in findings:
        out.print(Text(str(finding)), soft_wrap=True)
    errors = sum(finding.severity is Severity.ERROR for finding in findings)
    verdict = f"{errors} errors" if errors else "no errors"
    out.print(
        Text(f"{read.name}: {len(read.parameters)} parameters, {verdict} for vLLM {install.version}"),
        soft_wrap=True,
    )
    if errors:
        raise typer.Exit(FOUND_ERRORS)
