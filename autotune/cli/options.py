"""Options that several commands share, and how their text is read."""

from typing import Annotated

import typer

from autotune.decide.space.default_space import MIN_CONTEXT_TOKENS
from autotune.domain.objective import METRICS
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
ModelName = Annotated[
    str, typer.Argument(metavar="MODEL", help="Model directory, or Hugging Face id as for `vllm serve`.")
]
Budget = Annotated[
    str | None,
    typer.Option(
        help="Wall-clock time for this invocation, all included: 10m, 4h, 1h30m. "
        "Default: the study file's, else 1h."
    ),
]
StudyRef = Annotated[
    str | None, typer.Option(help="Study settings: a TOML file, or the name of one in studies/.")
]
SpaceRef = Annotated[
    str | None,
    typer.Option(
        help="Search space: a TOML file, or the name of one in search_spaces/. "
        "Without it one is derived from the machine and the model."
    ),
]
Streams = Annotated[str | None, typer.Option(help="Concurrent streams to measure, e.g. 1,2,4,8.")]
PromptTokens = Annotated[int | None, typer.Option(help="Prompt tokens of a request.")]
OutputTokens = Annotated[int | None, typer.Option(help="Output tokens of a request.")]
Context = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Tokens of context that every configuration must allow, when the search space is derived. "
        f"Default: {MIN_CONTEXT_TOKENS}, or the model's if that is less.",
    ),
]
Objectives = Annotated[
    list[str] | None,
    typer.Option(
        "--objective",
        help="METRIC@STREAMS to optimise, can be repeated: " + ", ".join(METRICS) + ". "
        "Default: out_tok_s at the most and at the fewest streams.",
    ),
]
Seed = Annotated[int | None, typer.Option(help="Seed of the search.")]
StartupTimeout = Annotated[str | None, typer.Option(help="How long a server may take to start, e.g. 15m.")]
Ports = Annotated[
    str | None, typer.Option(help="Ports for trial servers, e.g. 8100-8199. Default: any free one.")
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
