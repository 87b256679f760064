"""HTTP/1.1 connections for streamed answers, of which every chunk is handed on while it is read.

aiohttp puts each chunk into a queue and wakes a task for it, which costs half again as much as all that has
to be done with a token: 16 us of processor time a token with it, and 10 us with this, at 64 streams.
"""

import asyncio
import os
import ssl
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Protocol, cast
from urllib.parse import urlsplit

import aiohttp
import httptools

CONNECT_S = 5.0


class NoConnection(OSError):
    """There is no connection; its text says why."""


class NotHttp(OSError):
    """What came back is not HTTP/1.1."""


class Reader(Protocol):
    """Takes in one answer while it arrives."""

    clock: Callable[[], float]
    read_s: float
    """When bytes were read last, set before they are looked at."""
    over: bool
    """Nothing more of it has to be read."""

    def on_status(self, status: int) -> None:
        """The head of the answer is complete."""

    def on_body(self, data: bytes) -> None:
        """A part of its body has come."""


class Connection(asyncio.Protocol):
    """One connection, for one request after the other."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._parser: httptools.HttpResponseParser
        self._reader: Reader | None = None
        self._done: asyncio.Future[bool | OSError]
        self.on_body: Callable[[bytes], None]  # the parser calls it without a detour
        self.is_open = False

    async def post(self, request: bytes, reader: Reader) -> bool:
        """Send `request`, whole, and read its answer to the end; whether another request can follow.

        Raises ConnectionResetError when the connection is lost before that, and NotHttp.
        """
        self._reader, self.on_body = reader, reader.on_body
        self._parser = httptools.HttpResponseParser(self)
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            outcome = await self._done
        finally:
            self._reader = None
        if isinstance(outcome, OSError):
            raise outcome
        return outcome

    def abort(self) -> None:
        """Be closed at once."""
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is not a subclass of it
        self.is_open = True

    def connection_lost(self, exc: Exception | None) -> None:
        """The answer under way will not be whole."""
        self.is_open = False
        self._end(ConnectionResetError())

    def data_received(self, data: bytes) -> None:
        """Hand on what has come."""
        reader = self._reader
        if reader is None:  # nobody has asked for it
            self.abort()
            return
        reader.read_s = reader.clock()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError:  # it is in this program, and not in the answer
            raise
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._end(NotHttp("what came back is not HTTP/1.1"))
        if reader.over:
            self._end(False)

    def on_headers_complete(self) -> None:
        """The parser has read a head: that of the answer, or of an announcement (1xx) before it."""
        if self._reader is not None and (status := self._parser.get_status_code()) >= 200:
            self._reader.on_status(status)

    def on_message_complete(self) -> None:
        """The parser has read an answer, or an announcement."""
        if self._parser.get_status_code() >= 200:
            self._end(self._parser.should_keep_alive())

    def _end(self, outcome: bool | OSError) -> None:
        if self._reader is not None and not self._done.done():
            self._done.set_result(outcome)


class Connector(aiohttp.TCPConnector):
    """aiohttp's connections, as many as there are requests, and beside them those for streamed answers."""

    def __init__(self) -> None:
        super().__init__(limit=0)
        self._idle: dict[tuple[str, str, int], list[Connection]] = defaultdict(list)
        self._tls: ssl.SSLContext | None = None

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, reader: Reader) -> None:
        """Send `body` and let `reader` take in the answer.

        Raises NoConnection, NotHttp, and another OSError when the connection is lost inside the answer.
        """
        parts = urlsplit(url)
        secure, host = parts.scheme == "https", parts.hostname or ""
        origin = (parts.scheme, host, parts.port or (443 if secure else 80))
        fields = {"Host": parts.netloc, **headers, "Content-Length": str(len(body))}
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        request = f"POST {parts.path} HTTP/1.1\r\n{lines}\r\n".encode() + body
        connection = self._take(origin) or await self._open(origin)
        reusable = False
        try:
            reusable = await connection.post(request, reader)
        finally:
            if reusable:
                self._idle[origin].append(connection)
            else:
                connection.abort()

    async def close(self, *, abort_ssl: bool = False) -> None:
        """Close all connections."""
        for connections in self._idle.values():
            for connection in connections:
                connection.abort()
        self._idle.clear()
        await super().close(abort_ssl=abort_ssl)

    def _take(self, origin: tuple[str, str, int]) -> Connection | None:
        idle = self._idle[origin]
        while idle:
            if (connection := idle.pop()).is_open:
                return connection
        return None

    async def _open(self, origin: tuple[str, str, int]) -> Connection:
        scheme, host, port = origin
        if scheme == "https" and self._tls is None:
            self._tls = ssl.create_default_context()
        tls = self._tls if scheme == "https" else None
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_S):
                _, connection = await loop.create_connection(Connection, host, port, ssl=tls)
        except TimeoutError:
            raise NoConnection(f"no connection within {CONNECT_S:g} s") from None
        except ssl.SSLError as error:
            raise NoConnection(f"cannot connect: {error.reason or 'TLS failed'}") from None
        except OSError as error:
            code = error.errno or 0  # negative for a name that cannot be resolved
            why = os.strerror(code) if code > 0 else "unknown address"
            raise NoConnection(f"cannot connect: {why}") from None
        return connection
