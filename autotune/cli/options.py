"""Options that several commands share, and how their text is read."""

from typing import Annotated

import typer

from autotune.errors import UserError
from autotune.server.ports import PortRange
from autotune.units import parse_duration

Database = Annotated[
    str | None,
    typer.Option(
        "--db", help="Study file, or SQLAlchemy URL. Default: studies/NAME.db, or to read, the latest there."
    ),
]
VllmPath = Annotated[
    str | None,
    typer.Option("--vllm", help="The vLLM to run: its executable, a Python or a virtual environment."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]


def budget_seconds(option: str, text: str) -> float:
    """A duration above 0. Raises UserError naming the option."""
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise UserError(f"{option}: {error}") from None
    if seconds <= 0:
        raise UserError(f"{option} {text!r}: must be longer than 0")
    return seconds


def parse_streams(text: str) -> tuple[int, ...]:
    """`1,2,4`, rising. Raises UserError."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise UserError(f"--streams {text!r}: write rising counts from 1, for example 1,2,4,8")
    return tuple(int(word) for word in words)


def parse_ports(text: str) -> PortRange:
    """`8100-8199`. Raises UserError."""
    low, dash, high = text.partition("-")
    if not (dash and low.isdecimal() and high.isdecimal() and 0 < int(low) <= int(high) < 65536):
        raise UserError(f"--ports {text!r}: write LOW-HIGH with 1 <= LOW <= HIGH <= 65535, e.g. 8100-8199")
    return PortRange(low=int(low), high=int(high))
