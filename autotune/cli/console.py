"""The two consoles, and how an error ends the command."""

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer
from rich.console import Console

from autotune.errors import AutotuneError, HarnessError

out = Console()
"""What was asked for."""

err = Console(stderr=True)
"""Everything said about it: progress, notes, errors."""

INTERRUPTED = 130


@contextmanager
def errors_as_sentences() -> Iterator[None]:
    """Turn an error into one sentence on stderr and its exit code; a bug of ours keeps its traceback."""
    try:
        yield
    except AutotuneError as error:
        if isinstance(error, HarnessError):
            traceback.print_exc(file=sys.stderr)
        _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        _fail("stopped", INTERRUPTED)
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except Exception as error:  # noqa: BLE001 - the last frame: what comes here is a bug of ours
        traceback.print_exc(file=sys.stderr)
        _fail(f"internal error: {error}; please report it with the lines above", HarnessError.exit_code)


def _fail(sentence: str, exit_code: int) -> NoReturn:
    err.print(f"autotune: {sentence}", style="red", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(exit_code)


def print_json(document: str) -> None:
    """Plain JSON on standard output, whatever the terminal."""
    sys.stdout.write(document + "\n")
