"""HTTP and the timing of tokens: what a client of the fake vLLM sees."""

import asyncio
import json
import os
import signal
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime

from vllm_fake import log
from vllm_fake.scenario import Scenario

_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 500: "Internal Server Error"}
_ENGINE_DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."
_BLOCK_TOKENS = 16


class ClientGone(Exception):
    """The client closed the connection."""


class EngineDead(Exception):
    """The engine process is gone."""


class FakeServer:
    """The API server: one loop, one task for each connection."""

    def __init__(self, model: str, flags: Mapping[str, object], scenario: Scenario, engine: int) -> None:
        self.model = model
        self.names = _words(flags.get("served_model_name")) or [model]
        self.scenario = scenario
        self.engine = engine
        self.max_model_len = int(flags["max_model_len"])
        self.prefix_caching = flags["enable_prefix_caching"] is not False
        speculative = flags.get("speculative_config")
        self.drafted = (
            int(speculative.get("num_speculative_tokens", 0)) if isinstance(speculative, dict) else 0
        )
        self.tokens_per_event = 1 + int(scenario.acceptance * self.drafted)
        self.tpot_s = scenario.tpot_s * (scenario.eager_factor if flags["enforce_eager"] is True else 1)
        self.slots = asyncio.Semaphore(int(flags["max_num_seqs"]))
        self.dead = asyncio.Event()
        self.stopping = asyncio.Event()
        self.arrived = self.waiting = self.running = self.active = 0
        self.cached: set[int] = set()
        names = "prompt_tokens generation_tokens prefix_cache_queries prefix_cache_hits num_preemptions"
        drafts = "spec_decode_num_drafts spec_decode_num_draft_tokens spec_decode_num_accepted_tokens"
        self.counters = dict.fromkeys([*names.split(), *(drafts.split() if self.drafted else ())], 0)
        self.finished = {"length": 0, "stop": 0, "abort": 0, "error": 0}

    async def run(self, listener: object) -> None:
        """Serve until SIGTERM or until the engine is gone; ends the process."""
        loop = asyncio.get_running_loop()
        if not self.scenario.ignore_sigterm:
            loop.add_signal_handler(signal.SIGTERM, self.stopping.set)
        server = await asyncio.start_server(self._connection, sock=listener, backlog=2048)
        engine_watch = asyncio.create_task(self._watch_engine())
        ends = [asyncio.create_task(event.wait()) for event in (self.stopping, self.dead)]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if self.stopping.is_set():
            engine_watch.cancel()
            log.say("APIServer", "launcher.py:254", "[shutdown] API server: shutdown triggered")
            with suppress(ProcessLookupError):  # SIGTERM went to the group, and it was faster
                os.kill(self.engine, signal.SIGKILL)
            server.close()
            log.raw("INFO:     Shutting down\n")
            if self.active:
                log.raw("INFO:     Waiting for connections to close. (CTRL+C to force quit)\n")
        else:
            await asyncio.sleep(0.1)  # vLLM answers 503 for a moment before it goes
            server.close()
        while self.active:
            await asyncio.sleep(0.01)
        log.raw(
            f"INFO:     Application shutdown complete.\nINFO:     Finished server process [{os.getpid()}]\n"
        )
        os._exit(0)

    async def _watch_engine(self) -> None:
        while os.waitpid(self.engine, os.WNOHANG) == (0, 0):
            await asyncio.sleep(0.02)
        if not self.stopping.is_set():
            log.engine_died(self.engine)
            self.dead.set()

    # HTTP

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while not self.stopping.is_set():
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:])}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.active += 1
                try:
                    method, target, _ = head[0].split(" ")
                    await self._respond(method, target, body, reader, writer)
                    await writer.drain()
                finally:
                    self.active -= 1
        except (asyncio.IncompleteReadError, ConnectionError, ClientGone):
            pass
        finally:
            writer.close()

    async def _respond(
        self,
        method: str,
        target: str,
        body: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        path = target.partition("?")[0]
        status, answer = 404, b'{"detail":"Not Found"}'
        match method, path:
            case "GET", "/health":
                status, answer = 503 if self.dead.is_set() else self.scenario.health_status, b""
            case "GET", "/version":
                status, answer = 200, _json({"version": log.VERSION})
            case "GET", "/metrics":
                status, answer = 200, self._metrics().encode()
            case "GET", "/v1/models":
                card = {"object": "model", "owned_by": "vllm", "max_model_len": self.max_model_len}
                models = [{"id": name, "root": self.model} | card for name in self.names]
                status, answer = 200, _json({"object": "list", "data": models})
            case "POST", "/tokenize":
                ids = tokenise(_prompt_text(json.loads(body)))
                told = {"count": len(ids), "max_model_len": self.max_model_len, "tokens": ids}
                status, answer = 200, _json(told | {"token_strs": None})
            case "POST", "/v1/completions":
                status, answer = await self._complete(json.loads(body), reader, writer)
        if answer is not None:
            kind = "text/plain" if path == "/metrics" else "application/json"
            reason = _REASONS.get(status, "Error")
            head = (
                f"HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {len(answer)}\r\n\r\n"
            )
            writer.write(head.encode() + answer)
        peer = writer.get_extra_info("peername") or ("127.0.0.1", 0)
        line = f'"{method} {target} HTTP/1.1" {status} {_REASONS.get(status, "Error")}'
        log.raw(f"INFO:     {peer[0]}:{peer[1]} - {line}\n")

    # Completions

    async def _complete(
        self, request: dict[str, object], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[int, bytes | None]:
        """Status and body; the body is None when it was streamed."""
        self.arrived += 1
        await self._maybe_die()
        prompt = request["prompt"]
        ids = tokenise(prompt) if isinstance(prompt, str) else prompt
        refusal = self._refusal(request, ids)
        if refusal:
            return refusal
        events = self._events(request, ids, reader)
        try:
            if request.get("stream"):
                await self._stream(request, events, writer)
                return 200, None
            return 200, _json(await self._whole([event async for event in events]))
        except EngineDead:
            return 500, _error(_ENGINE_DEAD, "InternalServerError", 500)

    def _refusal(self, request: dict[str, object], ids: list[int]) -> tuple[int, bytes] | None:
        if self.dead.is_set():
            return 500, _error(_ENGINE_DEAD, "InternalServerError", 500)
        if self.scenario.http_status != 200:
            status = self.scenario.http_status
            return status, _error("Internal server error", "InternalServerError", status)
        if request.get("model", self.names[0]) not in self.names:
            return 404, _error(f"The model `{request['model']}` does not exist.", "NotFoundError", 404)
        limit, wanted = self.max_model_len, int(request.get("max_tokens") or 16)
        if wanted > limit:
            message = f"max_tokens={wanted} cannot be greater than max_model_len={limit}. "
            return 400, _error(message + "Please request fewer output tokens.", "BadRequestError", 400)
        if len(ids) + wanted > limit:
            message = (
                f"This model's maximum context length is {limit} tokens. However, you requested {wanted} "
                f"output tokens and your prompt contains at least {len(ids)} input tokens, for a total of at "
                f"least {len(ids) + wanted} tokens. Please reduce the length of the input prompt or the "
                "number of requested output tokens."
            )
            return 400, _error(message, "BadRequestError", 400)
        return None

    async def _maybe_die(self) -> None:
        if self.arrived == self.scenario.die_at_request:
            if self.scenario.die_signal:
                os.kill(os.getpid(), self.scenario.die_signal)
            os.kill(self.engine, signal.SIGKILL)
            await self.dead.wait()

    async def _events(
        self, request: dict[str, object], ids: list[int], reader: asyncio.StreamReader
    ) -> AsyncIterator[dict[str, object]]:
        """The chunks of one answer, each when its time has come; the last one has the usage."""
        loop = asyncio.get_running_loop()
        self.waiting += 1
        try:
            await self.slots.acquire()
        finally:
            self.waiting -= 1
        self.running += 1
        reason = "abort"
        try:
            due = loop.time() + self.scenario.ttft_s + self.scenario.prefill_s_per_token * len(ids)
            self._count_prompt(ids, str(request.get("cache_salt", "")))
            wanted = int(request.get("max_tokens") or 16)
            eos = None if request.get("ignore_eos") else self.scenario.eos_after_tokens
            last = min(wanted, eos or wanted)
            done, step_s = 0, 0.0
            frame = self._frame(request)
            while done < last:
                await self._until(due, reader)
                new = min(self.tokens_per_event, last - done)
                text = "".join(
                    self.scenario.texts[i % len(self.scenario.texts)] for i in range(done, done + new)
                )
                done += new
                self._count_tokens(new)
                reason = ("length" if done == wanted else "stop") if done == last else None
                choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
                yield frame | {"choices": [choice | {"stop_reason": None}]}
                await self._trouble(done, reader)
                step_s = self.tpot_s * (1 + self.scenario.batch_penalty * (self.running - 1))
                due += step_s * (1 + 0.05 * self.drafted)
            usage = {"prompt_tokens": len(ids), "total_tokens": len(ids) + done, "completion_tokens": done}
            yield frame | {"choices": [], "usage": usage}
        finally:
            self.running -= 1
            self.slots.release()
            self.finished[reason or "abort"] += 1

    def _frame(self, request: dict[str, object]) -> dict[str, object]:
        name = f"cmpl-{os.getpid():x}{self.arrived:08x}"
        model = request.get("model", self.names[0])
        return {
            "id": name,
            "object": "text_completion",
            "created": int(datetime.now(UTC).timestamp()),
            "model": model,
        }

    async def _until(self, due: float, reader: asyncio.StreamReader) -> None:
        """Sleep, unless the client, the engine or the server goes first."""
        loop = asyncio.get_running_loop()
        while True:
            if reader.at_eof():
                raise ClientGone
            if self.dead.is_set():
                raise EngineDead
            if self.stopping.is_set():  # vLLM 0.32 ends the engine and leaves the streams open
                await reader.read()
                raise ClientGone
            left_s = due - loop.time()
            if left_s <= 0:
                return
            await asyncio.sleep(min(left_s, 0.05))

    async def _trouble(self, done: int, reader: asyncio.StreamReader) -> None:
        if self.scenario.hang_after_tokens is not None and done >= self.scenario.hang_after_tokens:
            await self._until(float("inf"), reader)
        if self.scenario.error_after_tokens is not None and done >= self.scenario.error_after_tokens:
            raise EngineDead
        if self.scenario.truncate_after_tokens is not None and done >= self.scenario.truncate_after_tokens:
            raise ClientGone

    async def _stream(
        self,
        request: dict[str, object],
        events: AsyncIterator[dict[str, object]],
        writer: asyncio.StreamWriter,
    ) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        options = request.get("stream_options")
        wants_usage = (
            isinstance(options, dict) and options.get("include_usage") and not self.scenario.omit_usage
        )
        try:
            async for event in events:
                if "usage" not in event or wants_usage:
                    await self._send(b"data: " + _json(event) + b"\n\n", writer)
        except EngineDead:
            await self._send(b"data: " + _error(_ENGINE_DEAD, "InternalServerError", 500) + b"\n\n", writer)
        finally:
            await events.aclose()
        await self._send(b"data: [DONE]\n\n", writer)
        writer.write(b"0\r\n\r\n")

    async def _send(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        size = self.scenario.chop_bytes or len(data)
        for start in range(0, len(data), size):
            piece = data[start : start + size]
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()

    async def _whole(self, events: list[dict[str, object]]) -> dict[str, object]:
        text = "".join(event["choices"][0]["text"] for event in events[:-1])
        choice = events[-2]["choices"][0] | {"text": text}
        return events[-1] | {"choices": [choice]}

    # Metrics

    def _count_prompt(self, ids: list[int], salt: str) -> None:
        self.counters["prompt_tokens"] += len(ids)
        if not self.prefix_caching:
            return
        self.counters["prefix_cache_queries"] += len(ids)
        digest = zlib.crc32(salt.encode())
        for end in range(_BLOCK_TOKENS, len(ids) + 1, _BLOCK_TOKENS):
            digest = zlib.crc32(repr(ids[end - _BLOCK_TOKENS : end]).encode(), digest)
            if digest in self.cached:
                self.counters["prefix_cache_hits"] += _BLOCK_TOKENS
            self.cached.add(digest)

    def _count_tokens(self, new: int) -> None:
        self.counters["generation_tokens"] += new
        if self.drafted:
            self.counters["spec_decode_num_drafts"] += 1
            self.counters["spec_decode_num_draft_tokens"] += self.drafted
            self.counters["spec_decode_num_accepted_tokens"] += new - 1

    def _metrics(self) -> str:
        label = f'engine="0",model_name="{self.names[0]}"'
        lines = [f"vllm:{name}_total{{{label}}} {float(value)}" for name, value in self.counters.items()]
        lines += [
            f'vllm:request_success_total{{finished_reason="{reason}",{label}}} {float(value)}'
            for reason, value in self.finished.items()
        ]
        lines.append(f"vllm:num_requests_running{{{label}}} {float(self.running)}")
        lines.append(f"vllm:num_requests_waiting{{{label}}} {float(self.waiting)}")
        lines.append(f"vllm:kv_cache_usage_perc{{{label}}} {self.running / 1000}")
        return "\n".join(lines) + "\n"


def tokenise(text: str) -> list[int]:
    """One token for each 4 bytes of UTF-8; the same text always gives the same ids."""
    data = text.encode()
    return [zlib.crc32(data[at : at + 4]) % 32000 for at in range(0, len(data), 4)]


def _prompt_text(request: dict[str, object]) -> str:
    """The text of a request to `/tokenize`, a chat written out by a template."""
    if "messages" not in request:
        return str(request["prompt"])
    turns = [f"<{message['role']}>{message.get('content') or ''}" for message in request["messages"]]
    return "".join(turns) + "<assistant>"


def _words(value: object) -> list[str]:
    return [] if value is None else [str(v) for v in (value if isinstance(value, list) else [value])]


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _error(message: str, kind: str, status: int) -> bytes:
    return _json({"error": {"message": message, "type": kind, "param": None, "code": status}})
