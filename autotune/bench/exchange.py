"""One streamed completion request: what is sent, what is noted of the answer, and when it counts as failed.

Only the first event, a usage event and an error event are parsed as JSON: at 256 streams parsing each one
costs about as much as receiving it.
"""

import json
import re
from dataclasses import dataclass, field

from autotune.bench.dialect import output_pattern, request_body, without_echo
from autotune.bench.fault import message
from autotune.domain.bench import VLLM, Dialect
from autotune.domain.measurement import RequestRecord, RequestState


def has_more_than_output(event: bytes) -> bool:
    """Whether an event may bring usage or an error.

    What the model writes never looks like that: inside a JSON string the quotes are escaped.
    """
    return b'"error"' in event or (b'"usage"' in event and b'"usage":null' not in event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A prompt as token ids, kept as the text of a JSON array: encoding 8,000 ids takes 0.6 ms each time."""

    ids_json: str
    tokens: int
    output_tokens: int
    """What a request with it asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One request to be sent. `salt` keeps its prompt apart from equal ones in the server's prefix cache."""

    model: str
    prompt: Prompt
    output_tokens: int
    salt: str
    stream: int = 0
    sequence: int = 0
    prompt_index: int = 0
    shortened: bool = False
    dialect: Dialect = VLLM

    def body(self) -> bytes:
        """The JSON to send, for `output_tokens` greedy tokens: exactly so many where that can be asked."""
        return request_body(self.dialect, self.model, self.prompt.ids_json, self.output_tokens, self.salt)


@dataclass(slots=True, kw_only=True)
class Exchange:
    """A request while it runs. It is `CUT` until the answer is complete or has failed.

    `output` finds in an event whether it carries output.
    """

    completion: Completion
    sent_s: float
    output: re.Pattern[bytes] = field(init=False)
    chunk_s: list[float] = field(default_factory=list)
    ended_s: float | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    answered: bool = False
    """`[DONE]` has come."""
    error: str | None = None
    stalled: bool = False
    """It failed because the server was silent."""
    status: int | None = None
    """Of the HTTP response."""

    def __post_init__(self) -> None:
        self.output = output_pattern(self.completion.dialect)

    def take(self, data: bytes, at_s: float) -> None:
        """Note one event that was read at `at_s`."""
        if data == b"[DONE]":
            self.answered = True
        elif not self.chunk_s or has_more_than_output(data):
            self._parse(data, at_s)
        elif self.output.search(data):
            self.chunk_s.append(at_s)

    def _parse(self, data: bytes, at_s: float) -> None:
        try:
            event: object = json.loads(data)
        except ValueError:
            self.fail("an event of the stream is not JSON")
            return
        if not isinstance(event, dict):
            self.fail("an event of the stream is not a JSON object")
        elif event.get("error") is not None or event.get("object") == "error":
            self.refuse(f"error in the stream: {message(event)}")
        else:
            if self.output.search(data):
                self.chunk_s.append(at_s)
            if isinstance(usage := event.get("usage"), dict):
                self.prompt_tokens = _count(usage.get("prompt_tokens"))
                self.output_tokens = _count(usage.get("completion_tokens"))

    def fail(self, error: str) -> None:
        """Note what went wrong; the first reason stays."""
        self.error = self.error or error

    def refuse(self, words: str) -> None:
        """Note what went wrong in the server's own words, less what they quote of the prompt."""
        is_text = self.completion.dialect.chars_per_token is not None
        self.fail(without_echo(words, self.completion.prompt.ids_json) if is_text else words)

    def check(self) -> None:
        """Fail it unless it is the whole answer that was asked for; called at the end of the stream."""
        wanted, exact = self.completion.output_tokens, self.completion.dialect.extensions
        if not self.answered:
            self.fail("the stream ended before [DONE]")
        elif self.output_tokens is None:
            self.fail("the stream carried no usage")
        elif self.output_tokens > wanted or (exact and self.output_tokens < wanted):
            self.fail(f"{self.output_tokens} output tokens came back, {wanted} were asked for")
        elif not self.chunk_s:
            self.fail("the stream carried no output")

    def record(self, now_s: float) -> RequestRecord:
        """It as it stands. The prompt's length is the one sent where the server has not said its own."""
        state = RequestState.CUT if self.ended_s is None else RequestState.DONE
        return RequestRecord(
            stream=self.completion.stream,
            sequence=self.completion.sequence,
            prompt_index=self.completion.prompt_index,
            sent_s=self.sent_s,
            chunk_s=tuple(self.chunk_s),
            ended_s=now_s if self.ended_s is None else self.ended_s,
            wanted_output_tokens=self.completion.output_tokens,
            prompt_tokens=self.completion.prompt.tokens if self.prompt_tokens is None else self.prompt_tokens,
            output_tokens=self.output_tokens,
            state=RequestState.FAILED if self.error else state,
            error=self.error,
            shortened=self.completion.shortened,
        )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
