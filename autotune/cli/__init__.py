"""The command `autotune`: reads the words, calls, prints. It decides nothing."""

from typing import Annotated

import typer

from autotune import __version__
from autotune.cli.ablate import ablate
from autotune.cli.bench import bench
from autotune.cli.best import best
from autotune.cli.check import check
from autotune.cli.compare import compare
from autotune.cli.dashboard import dashboard
from autotune.cli.doctor import doctor
from autotune.cli.explain import explain
from autotune.cli.lessons import lessons
from autotune.cli.recheck import recheck
from autotune.cli.report import report
from autotune.cli.run import run
from autotune.cli.show import show

app = typer.Typer(
    name="autotune",
    help="Find the fastest vLLM server configuration that really works, within a wall-clock budget.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    epilog="Example:  autotune run Qwen/Qwen3-8B --budget 4h   then   autotune best --export launch.sh",
)
for command in (
    run,
    best,
    ablate,
    show,
    report,
    dashboard,
    compare,
    bench,
    lessons,
    explain,
    recheck,
    check,
    doctor,
):
    app.command()(command)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"autotune {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _version_wanted: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Entry point of the console script."""
    app()
