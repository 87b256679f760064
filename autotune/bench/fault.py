"""What a refusal and a broken connection mean, as a short sentence that is the same for every request."""

import json
import os
import re

import aiohttp

from autotune.bench.connection import CONNECT_S

BODY_BYTES = 4096
"""How much of an error response is read."""
_ERROR_CHARS = 200
_TOKEN_IDS = re.compile(r"\[\s*\d+(\s*,\s*\d+){2,}[^\]]*\]?")


async def http_error(response: aiohttp.ClientResponse) -> str:
    """The status of a response that is not 200 and the message in it, short, without lists of token ids."""
    return refusal(response.status, await response.content.read(BODY_BYTES))


def refusal(status: int | None, data: bytes) -> str:
    """The same, from the first bytes of its body."""
    text = data[:BODY_BYTES].decode(errors="replace")
    try:
        body: object = json.loads(text)
    except ValueError:
        body = text
    return f"HTTP {status}: {message(body)}"


def message(body: object) -> str:
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
