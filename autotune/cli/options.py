"""Options that several commands share, and how their text is read."""

from typing import Annotated

import typer

from autotune.decide.space.default_space import MIN_CONTEXT_TOKENS
from autotune.domain.metric import METRICS, metric_names
from autotune.domain.metric_limit import FORM as LIMIT_FORM
from autotune.domain.slo import FORM
from autotune.domain.workload import Lengths
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
WorkloadRef = Annotated[
    str | None,
    typer.Option(
        "--workload",
        help="What is sent: a name (chat, rag, ...; docs/workloads.md), a TOML file, or your own prompts as "
        "JSON lines (.jsonl).",
    ),
]
Streams = Annotated[str | None, typer.Option(help="Concurrent streams to measure, e.g. 1,2,4,8.")]
PromptTokens = Annotated[str | None, typer.Option(help="Prompt tokens of a request: 512, or 256-1024.")]
OutputTokens = Annotated[str | None, typer.Option(help="Output tokens of a request: 128, or 64-256.")]
Rate = Annotated[
    float | None,
    typer.Option(
        help="Requests that each stream sends a second, on average and whether or not earlier ones are "
        "answered. Default: each stream sends its next one when the last is answered."
    ),
]
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
        help=f"METRIC@STREAMS to optimise, can be repeated: {metric_names()}. "
        "Default: out_tok_s at the most and at the fewest streams.",
    ),
]
MetricLimits = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        help=f"What a configuration must keep to be chosen, can be repeated: {LIMIT_FORM}. The metrics are "
        "those of --objective.",
    ),
]
Slos = Annotated[
    list[str] | None,
    typer.Option(
        "--slo",
        help=f"What a request that is served well keeps to, can be repeated: {FORM}. "
        f"Counted by {', '.join(name for name, metric in METRICS.items() if metric.needs_slo)}.",
    ),
]
Seed = Annotated[int | None, typer.Option(help="Seed of the search.")]
NoFinals = Annotated[
    bool,
    typer.Option(
        "--no-finals",
        help="Search for the whole budget, instead of keeping a third of it to measure the best again beside "
        "the defaults: nothing found is confirmed then.",
    ),
]
Patience = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="End the search before its time when so many configurations in a row that worked brought no "
        "gain of more than 1 %; finals are held all the same. In simulated studies 15 took 51 to 61 % of the "
        "time and kept 96 to 97 % of the quality, 20 took 67 to 75 % and kept 97.5 %, 30 took 89 to 96 % and "
        "kept 99 %. Default: the study file's, else 0: never.",
    ),
]
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


def parse_lengths(option: str, text: str) -> Lengths:
    """`512` or `256-1024`. Raises UserError naming the option."""
    low, dash, high = text.partition("-")
    if not low.isdecimal() or (dash and not high.isdecimal()):
        raise UserError(f"{option} {text!r}: write a number of tokens like 512, or a range like 256-1024")
    try:
        return Lengths(low=int(low), high=int(high if dash else low))
    except ValueError as error:
        raise UserError(f"{option} {text!r}: {error}") from None


def parse_ports(text: str) -> PortRange:
    """`8100-8199`. Raises UserError."""
    low, dash, high = text.partition("-")
    if not (dash and low.isdecimal() and high.isdecimal() and 0 < int(low) <= int(high) < 65536):
        raise UserError(f"--ports {text!r}: write LOW-HIGH with 1 <= LOW <= HIGH <= 65535, e.g. 8100-8199")
    return PortRange(low=int(low), high=int(high))
