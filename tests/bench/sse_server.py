"""A completions server in a thread, of known timing, that answers each request as a script says."""

import asyncio
import json
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from aiohttp import web


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """How one request is answered; the defaults are a good answer."""

    status: int = 200
    body: str = '{"error": {"message": "made to fail", "type": "InternalServerError", "code": 500}}'
    ttft_s: float = 0.0
    tpot_s: float = 0.0
    tokens_per_chunk: int = 1
    text: str = " word"
    usage: bool = True
    done: bool = True
    """Send `[DONE]`."""
    tokens_off: int = 0
    """Added to the number of tokens that `usage` claims."""
    error_after: int | None = None
    """Chunks before an error event."""
    hang_after: int | None = None
    """Chunks before silence."""
    abort_after: int | None = None
    """Chunks before the connection is reset."""
    piece_bytes: int | None = None
    """Write the stream in pieces of this size."""


class SseServer:
    """`answer` chooses the script by the number of the completion request, counted from 0."""

    def __init__(self) -> None:
        self.answer: Callable[[int], Script] = lambda number: Script()
        self.tokenize_status = 200
        self.words_per_token = 1
        self.requests: list[dict[str, object]] = []
        self.tokenized: list[str] = []
        self.sent: list[list[float]] = []
        """`time.perf_counter` just before each chunk of each request was written."""
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._runner: web.AppRunner | None = None
        self._transports: set[asyncio.Transport] = set()

    def die(self) -> None:
        """Reset all connections and refuse new ones, as a killed process does."""
        asyncio.run_coroutine_threadsafe(self._die(), self._loop).result(10)

    async def _die(self) -> None:
        assert self._runner is not None
        for site in list(self._runner.sites):
            await site.stop()
        for transport in self._transports:
            transport.abort()

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        script = self.answer(len(self.requests))
        self.requests.append(body)
        if request.transport is not None:
            self._transports.add(request.transport)
        if script.status != 200:
            return web.Response(status=script.status, text=script.body)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await self._stream(request, response, body, script)
        return response

    async def _stream(
        self, request: web.Request, response: web.StreamResponse, body: dict[str, int], script: Script
    ) -> None:
        sent: list[float] = []
        self.sent.append(sent)
        wanted = body["max_tokens"]
        for number, first in enumerate(range(0, wanted, script.tokens_per_chunk)):
            await asyncio.sleep(script.tpot_s * script.tokens_per_chunk if number else script.ttft_s)
            if number == script.error_after:
                await response.write(b'data: {"error": {"message": "EngineCore died", "code": 500}}\n\n')
                break
            if number == script.hang_after:
                await asyncio.Event().wait()
            if number == script.abort_after:
                assert request.transport is not None
                request.transport.abort()
                return
            count = min(script.tokens_per_chunk, wanted - first)
            choice = {"index": 0, "text": script.text * count, "finish_reason": None}
            sent.append(time.perf_counter())
            await self._event(response, {"id": "x", "choices": [choice]}, script)
        if script.usage:
            usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": wanted + script.tokens_off}
            await self._event(response, {"id": "x", "choices": [], "usage": usage}, script)
        if script.done:
            await response.write(b"data: [DONE]\n\n")

    async def _event(self, response: web.StreamResponse, event: object, script: Script) -> None:
        data = f"data: {json.dumps(event, ensure_ascii=False)}\n\n".encode()
        size = script.piece_bytes or len(data)
        for start in range(0, len(data), size):
            await response.write(data[start : start + size])
            await asyncio.sleep(0)

    async def _tokenize(self, request: web.Request) -> web.Response:
        if self.tokenize_status != 200:
            return web.json_response({"detail": "Not Found"}, status=self.tokenize_status)
        prompt = (await request.json())["prompt"]
        self.tokenized.append(prompt)
        words = prompt.split()[:: self.words_per_token]
        tokens = [1, *(zlib.crc32(word.encode()) % 30_000 + 10 for word in words)]
        return web.json_response({"count": len(tokens), "tokens": tokens})

    async def _start(self) -> None:
        app = web.Application(client_max_size=2**26)
        app.router.add_post("/v1/completions", self._completions)
        app.router.add_post("/tokenize", self._tokenize)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.05)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    @contextmanager
    def running(self) -> Iterator["SseServer"]:
        """Serve from a thread until the block is left."""
        thread = threading.Thread(target=self._loop.run_forever)
        thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
            yield self
        finally:
            assert self._runner is not None
            asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(10)
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(10)
            self._loop.close()
