"""One streamed completion request: what is sent, what is timed, and when it counts as failed.

Times are taken when the bytes are read and before any of them is parsed. Only the first event, a usage event
and an error event are parsed as JSON: at 256 streams parsing each one costs about as much as receiving it.
"""

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field

import aiohttp

from autotune.bench.sse import SseParser
from autotune.domain.measurement import RequestRecord, RequestState

CONNECT_S = 5.0
_BODY_BYTES = 4096
"""How much of an error response is read."""
_ERROR_CHARS = 200
_TOKEN_IDS = re.compile(r"\[\s*\d+(\s*,\s*\d+){2,}[^\]]*\]?")
# What the model writes can never match this, nor `"usage"` and `"error"` below: inside a JSON string the
# quotes are escaped.
_HAS_OUTPUT = re.compile(rb'"choices"\s*:\s*\[\s*\{')


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

    def body(self) -> bytes:
        """The JSON to send: exactly `output_tokens` greedy tokens, whatever the model would end with."""
        rest = json.dumps(
            {
                "model": self.model,
                "max_tokens": self.output_tokens,
                "min_tokens": self.output_tokens,
                "ignore_eos": True,
                "temperature": 0,
                "stream": True,
                "stream_options": {"include_usage": True},
                "cache_salt": self.salt,
            }
        )
        return f'{{"prompt":{self.prompt.ids_json},{rest[1:]}'.encode()


@dataclass(slots=True, kw_only=True)
class Exchange:
    """A request while it runs. It is `CUT` until the answer is complete or has failed."""

    completion: Completion
    sent_s: float
    chunk_s: list[float] = field(default_factory=list)
    ended_s: float | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    answered: bool = False
    """`[DONE]` has come."""
    error: str | None = None
    stalled: bool = False
    """It failed because the server was silent."""

    def take(self, data: bytes, at_s: float) -> None:
        """Note one event that was read at `at_s`."""
        if data == b"[DONE]":
            self.answered = True
        elif self.chunk_s and b'"usage"' not in data and b'"error"' not in data:
            if _HAS_OUTPUT.search(data):
                self.chunk_s.append(at_s)
        else:
            self._parse(data, at_s)

    def _parse(self, data: bytes, at_s: float) -> None:
        try:
            event: object = json.loads(data)
        except ValueError:
            self.fail("an event of the stream is not JSON")
            return
        if not isinstance(event, dict):
            self.fail("an event of the stream is not a JSON object")
        elif event.get("error") is not None or event.get("object") == "error":
            self.fail(f"error in the stream: {_message(event)}")
        else:
            if event.get("choices"):
                self.chunk_s.append(at_s)
            if isinstance(usage := event.get("usage"), dict):
                self.prompt_tokens = _count(usage.get("prompt_tokens"))
                self.output_tokens = _count(usage.get("completion_tokens"))

    def fail(self, error: str) -> None:
        """Note what went wrong; the first reason stays."""
        self.error = self.error or error

    def check(self) -> None:
        """Fail it unless it is the whole answer that was asked for; called at the end of the stream."""
        wanted = self.completion.output_tokens
        if not self.answered:
            self.fail("the stream ended before [DONE]")
        elif self.output_tokens is None:
            self.fail("the stream carried no usage")
        elif self.output_tokens != wanted:
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


def open_session(idle_s: float | None) -> aiohttp.ClientSession:
    """A session with as many connections as there are requests; each may be silent for `idle_s` seconds.

    Proxies of the environment are not used: the server is on this machine.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=idle_s),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"Content-Type": "application/json", "Accept-Encoding": "identity"},
        trust_env=False,
        # 64 KiB, the default, makes aiohttp pause and resume reading while a burst of tokens arrives.
        read_bufsize=2**20,
    )


async def complete(
    session: aiohttp.ClientSession, url: str, exchange: Exchange, body: bytes, clock: Callable[[], float]
) -> None:
    """Send `body` and follow the answer to its end; `exchange` then says what came of it.

    Raises nothing but CancelledError: whatever the server or the network does is noted in `exchange`.
    """
    try:
        async with session.post(f"{url}/v1/completions", data=body, allow_redirects=False) as response:
            if response.status == 200:
                await _follow(response.content, exchange, clock)
            else:
                exchange.fail(await http_error(response))
    except (aiohttp.ClientError, OSError) as error:  # a TimeoutError is an OSError
        exchange.stalled = isinstance(error, aiohttp.SocketTimeoutError)
        exchange.fail(describe(error, session))
    exchange.ended_s = clock()


async def _follow(content: aiohttp.StreamReader, exchange: Exchange, clock: Callable[[], float]) -> None:
    parser = SseParser()
    async for chunk in content.iter_any():
        at_s = clock()
        for data in parser.feed(chunk):
            exchange.take(data, at_s)
        if exchange.error:
            return
    exchange.check()


async def http_error(response: aiohttp.ClientResponse) -> str:
    """The status of a response that is not 200 and the message in it, short, without lists of token ids."""
    text = (await response.content.read(_BODY_BYTES)).decode(errors="replace")
    try:
        body: object = json.loads(text)
    except ValueError:
        body = text
    return f"HTTP {response.status}: {_message(body)}"


def _message(body: object) -> str:
    """The text in `{"error": {"message": ...}}`, `{"message": ...}` or `{"detail": ...}`, else all of it."""
    while isinstance(body, dict):
        inner = next((body[key] for key in ("error", "message", "detail") if body.get(key)), None)
        if inner is None:
            break
        body = inner
    text = " ".join(_TOKEN_IDS.sub("[...]", str(body)).split())
    return text if len(text) <= _ERROR_CHARS else text[: _ERROR_CHARS - 3] + "..."


def describe(error: Exception, session: aiohttp.ClientSession) -> str:
    """What a network error of `session` means, in words that are the same for every port and request."""
    match error:
        case aiohttp.ConnectionTimeoutError():
            return f"no connection within {CONNECT_S:g} s"
        case aiohttp.SocketTimeoutError():
            return f"the server sent nothing for {session.timeout.sock_read or 0:g} s"
        case aiohttp.ClientConnectorError():
            return f"cannot connect: {os.strerror(error.errno) if error.errno else 'unknown address'}"
        case aiohttp.ClientPayloadError():
            return "the connection broke inside the answer"
        case aiohttp.ServerDisconnectedError() | OSError():
            return "the server closed the connection"
    return f"HTTP client error {type(error).__name__}"


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
