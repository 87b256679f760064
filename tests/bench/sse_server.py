"""A completions server in a thread, of known timing, that answers each request as a script says."""

import asyncio
import json
import threading
import time
import zlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
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
    drips: bool = False
    """Send comments instead of being silent."""
    abort_after: int | None = None
    """Chunks before the connection is reset."""
    piece_bytes: int | None = None
    """Write the stream in pieces of this size."""
    stops_after: int | None = None
    """Tokens after which the model ends by itself, unless it is to ignore that."""
    field: str = "content"
    """Of a chat's delta: what the text is."""


class SseServer:
    """`answer` chooses the script by the number of the completion request, counted from 0."""

    def __init__(self) -> None:
        self.answer: Callable[[int], Script] = lambda number: Script()
        self.tokenize_status = 200
        self.words_per_token = 1
        self.no_chat_template = False
        self.models: tuple[str, ...] = ("m",)
        self.cards: list[dict[str, object]] | None = None
        """All of what `/v1/models` lists; None for `models`."""
        self.version: str | None = None
        self.key: str | None = None
        """The API key that /v1 asks for."""
        self.endpoints = {"completions", "chat"}
        self.takes_extensions = True
        """Else a request with vLLM's own fields is refused."""
        self.slowness: Callable[[], float] = lambda: 1.0
        """By what the time between chunks is multiplied now."""
        self.max_running: int | None = None
        """Requests answered at once; the others wait."""
        self.counters: Callable[[], dict[str, float]] | None = None
        """What `/metrics` tells beside what the server counts by itself; None for no `/metrics`."""
        self.counts_twice = False
        """Whether each token is counted twice in `/metrics`."""
        self.at_work = self.queued = self.generated = 0
        self.paths: list[str] = []
        """Of the completion requests."""
        self.requests: list[dict[str, object]] = []
        self.tokenized: list[str] = []
        self.sent: list[list[float]] = []
        """`time.perf_counter` just before each chunk of each request was written."""
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._runner: web.AppRunner | None = None
        self._transports: set[asyncio.Transport] = set()
        self._paused_until_s = 0.0

    def pause(self, seconds: float) -> None:
        """Keep all streams silent from now on, for so long."""
        self._paused_until_s = time.perf_counter() + seconds

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
        self.paths.append(request.path)
        if request.transport is not None:
            self._transports.add(request.transport)
        if script.status != 200:
            return web.Response(status=script.status, text=script.body)
        refusal = self._refusal(request, body)
        if refusal is not None:
            return refusal
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        self.queued += 1
        try:
            while self.max_running is not None and self.at_work >= self.max_running:
                await asyncio.sleep(0.001)
        finally:
            self.queued -= 1
        self.at_work += 1
        try:
            await self._stream(request, response, body, script)
        finally:
            self.at_work -= 1
        return response

    async def _stream(
        self, request: web.Request, response: web.StreamResponse, body: dict[str, int], script: Script
    ) -> None:
        sent: list[float] = []
        self.sent.append(sent)
        wanted = _wanted(body, script)
        await self._chat_frame(response, body, script, {"role": "assistant", "content": ""}, None)
        for number, first in enumerate(range(0, wanted, script.tokens_per_chunk)):
            step_s = script.tpot_s * script.tokens_per_chunk * self.slowness()
            await asyncio.sleep(step_s if number else script.ttft_s)
            while (left_s := self._paused_until_s - time.perf_counter()) > 0:
                await asyncio.sleep(left_s)
            if number == script.error_after:
                await response.write(b'data: {"error": {"message": "EngineCore died", "code": 500}}\n\n')
                break
            while number == script.hang_after:
                await asyncio.sleep(0.05)
                if script.drips:
                    await response.write(b": still here\n\n")
            if number == script.abort_after:
                assert request.transport is not None
                request.transport.abort()
                return
            count = min(script.tokens_per_chunk, wanted - first)
            choice = {"index": 0, **_said(body, script, count), "finish_reason": None}
            sent.append(time.perf_counter())
            self.generated += 2 * count if self.counts_twice else count
            await self._event(response, {"id": "x", "choices": [choice]}, script)
        await self._chat_frame(response, body, script, {}, "stop")
        if script.usage:
            usage = {"prompt_tokens": _prompt_tokens(body), "completion_tokens": wanted + script.tokens_off}
            await self._event(response, {"id": "x", "choices": [], "usage": usage}, script)
        if script.done:
            await response.write(b"data: [DONE]\n\n")

    async def _chat_frame(
        self,
        response: web.StreamResponse,
        body: Mapping[str, object],
        script: Script,
        delta: dict[str, str],
        reason: str | None,
    ) -> None:
        """What begins and ends the answer of a chat; nothing for a completion."""
        if "messages" in body:
            choice = {"index": 0, "delta": delta, "finish_reason": reason}
            await self._event(response, {"id": "x", "choices": [choice], "usage": None}, script)

    async def _event(self, response: web.StreamResponse, event: object, script: Script) -> None:
        data = f"data: {json.dumps(event, ensure_ascii=False)}\n\n".encode()
        size = script.piece_bytes or len(data)
        for start in range(0, len(data), size):
            await response.write(data[start : start + size])
            await asyncio.sleep(0)

    def _refusal(self, request: web.Request, body: dict[str, object]) -> web.Response | None:
        endpoint = "chat" if "chat" in request.path else "completions"
        if endpoint not in self.endpoints:
            return web.json_response({"detail": "Not Found"}, status=404)
        if not self.takes_extensions and body.keys() & {"cache_salt", "ignore_eos", "min_tokens"}:
            told = f"Unrecognized request argument supplied with {body.get('prompt', body.get('messages'))}"
            return web.json_response({"error": {"message": told}}, status=400)
        return None

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        given = request.headers.get("Authorization")
        if self.key is not None and request.path.startswith("/v1/") and given != f"Bearer {self.key}":
            return web.json_response({"error": {"message": f"wrong key: {given}"}}, status=401)
        return await handler(request)

    async def _models(self, request: web.Request) -> web.Response:
        cards = self.cards or [{"id": name, "object": "model"} for name in self.models]
        return web.json_response({"object": "list", "data": cards})

    async def _version(self, request: web.Request) -> web.Response:
        if self.version is None:
            return web.json_response({"detail": "Not Found"}, status=404)
        return web.json_response({"version": self.version})

    async def _tokenize(self, request: web.Request) -> web.Response:
        if self.tokenize_status != 200:
            return web.json_response({"detail": "Not Found"}, status=self.tokenize_status)
        body = await request.json()
        if "messages" in body and self.no_chat_template:
            told = "As of transformers v4.44, default chat template is no longer allowed: " + str(body)
            return web.json_response({"error": {"message": told}}, status=400)
        # A template that writes each message as its role and its words, and then the assistant's role.
        turns = [f"<{m['role']}> {m['content']}" for m in body.get("messages", ())]
        prompt = " ".join([*turns, "<assistant>"]) if turns else body["prompt"]
        self.tokenized.append(prompt)
        words = prompt.split()[:: self.words_per_token]
        begin = [1] if body.get("add_special_tokens", not turns) else []
        tokens = [*begin, *(zlib.crc32(word.encode()) % 30_000 + 10 for word in words)]
        return web.json_response({"count": len(tokens), "tokens": tokens})

    async def _metrics(self, request: web.Request) -> web.Response:
        if self.counters is None:
            return web.Response(status=404)
        counted = {
            "generation_tokens_total": self.generated,
            "num_requests_running": self.at_work,
            "num_requests_waiting": self.queued,
        }
        told = counted | self.counters()
        return web.Response(text="".join(f"vllm:{name} {value}\n" for name, value in told.items()))

    async def _start(self) -> None:
        app = web.Application(client_max_size=2**26, middlewares=[self._guard])
        app.router.add_post("/v1/completions", self._completions)
        app.router.add_post("/v1/chat/completions", self._completions)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/version", self._version)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_post("/tokenize", self._tokenize)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.05)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _stop(self) -> None:
        assert self._runner is not None
        await self._runner.cleanup()
        for transport in self._transports:
            transport.abort()
        await asyncio.sleep(0)  # they close in the next round of the loop
        await asyncio.sleep(0)

    @contextmanager
    def running(self) -> Iterator["SseServer"]:
        """Serve from a thread until the block is left."""
        thread = threading.Thread(target=self._loop.run_forever)
        thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(10)
            self._loop.close()


def _wanted(body: Mapping[str, int], script: Script) -> int:
    """Tokens of the answer."""
    ends = script.stops_after is not None and not body.get("ignore_eos")
    return min(body["max_tokens"], script.stops_after or 0) if ends else body["max_tokens"]


def _said(body: Mapping[str, object], script: Script, count: int) -> dict[str, object]:
    text = script.text * count
    return {"delta": {script.field: text}} if "messages" in body else {"text": text}


def _prompt_tokens(body: dict[str, object]) -> int:
    """As many as ids, or words: of a chat, those of its messages and a few of its template."""
    prompt = body.get("prompt")
    if isinstance(prompt, list):
        return len(prompt)
    if isinstance(prompt, str):
        return len(prompt.split())
    messages = body["messages"]
    assert isinstance(messages, list)
    return 4 + sum(len(message["content"].split()) for message in messages)
