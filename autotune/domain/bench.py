"""What `autotune bench` is about: how a server is spoken to, and the result of the ladder against it."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from autotune.domain.measurement import Point
from autotune.domain.workload import Workload


class Endpoint(StrEnum):
    """Where requests are sent."""

    COMPLETIONS = "completions"
    CHAT = "chat"

    @property
    def path(self) -> str:
        """Below the server's base URL."""
        return "/v1/completions" if self is Endpoint.COMPLETIONS else "/v1/chat/completions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How a server is asked for a workload: as exactly as it lets itself be asked."""

    endpoint: Endpoint = Endpoint.COMPLETIONS
    chars_per_token: float | None = None
    """Prompts are text, cut to length by this; None where they are token ids."""
    extensions: bool = True
    """Whether the server knows vLLM's `min_tokens`, `ignore_eos` and `cache_salt`: then every answer has the
    length that was asked for, and no prompt is found in the prefix cache."""

    def __post_init__(self) -> None:
        if self.endpoint is Endpoint.CHAT and self.chars_per_token is None:
            raise ValueError("the chat endpoint takes no token ids")

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the numbers has to know, as sentences; none where all lengths are exact."""
        notes: list[str] = []
        if self.chars_per_token is not None:
            notes.append("Prompts are sent as text, so their lengths in tokens are approximate.")
        if not self.extensions:
            notes.append("The server does not take vLLM's request fields: the model may end an answer early.")
            notes.append("A line of its own begins each prompt, so that no prefix cache can serve it again.")
        return tuple(notes)


VLLM = Dialect()
"""Prompts as token ids, lengths exact, every prompt kept apart in the prefix cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchResult:
    """The ladder against a server that was already running; nothing in it is secret.

    `ladders` holds the points of each repeat, in rising stream counts. One that was broken off is shorter.
    """

    url: str
    """The base URL, without credentials."""
    host: str
    """The machine the server runs on, as far as its URL tells."""
    model: str
    workload: Workload
    dialect: Dialect
    began_at: datetime
    autotune_version: str
    server_version: str | None = None
    """What the server calls its version; None where it does not say."""
    ladders: tuple[tuple[Point, ...], ...] = ()

    def points(self, streams: int) -> tuple[Point, ...]:
        """Its points at `streams`, one for each repeat that came to it."""
        return tuple(point for ladder in self.ladders for point in ladder if point.streams == streams)
