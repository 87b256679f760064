"""The command `autotune`: reads the words, calls, prints. It decides nothing."""

from importlib import import_module
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup
from typer.main import get_command

from autotune import __version__

if TYPE_CHECKING:  # Typer has its own copy of Click and no public name for these
    from typer._click.core import Command, Context

COMMANDS = (
    "run",
    "best",
    "ablate",
    "show",
    "report",
    "dashboard",
    "compare",
    "bench",
    "lessons",
    "explain",
    "recheck",
    "check",
    "doctor",
)
"""Each is the function of its name in the module of its name."""


class _LazyGroup(TyperGroup):
    """Imports a command when it is asked for: `best` need not wait for what only `run` works with."""

    def list_commands(self, ctx: "Context") -> list[str]:
        """All names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: "Context", cmd_name: str) -> "Command | None":
        """The command called `cmd_name`; None without one."""
        if cmd_name not in COMMANDS:
            return None
        alone = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
        alone.command(cmd_name)(getattr(import_module(f"autotune.cli.{cmd_name}"), cmd_name))
        return get_command(alone)


app = typer.Typer(
    name="autotune",
    cls=_LazyGroup,
    help="Find the fastest vLLM server configuration that really works, within a wall-clock budget.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    epilog="Example:  autotune run Qwen/Qwen3-8B --budget 4h   then   autotune best --export launch.sh",
)


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
