"""A completions server of known timing, fast enough that any client is slower: one engine step every tick.

    python benchmarks/timing_server.py [--tick-ms 10] [--tokens-per-event 1] [--core N]

At each tick every running request gets one event of vLLM's shape, about 250 bytes, written before from the
same bytes. It prints its address and lives until its standard input is closed. `GET /stamps` gives what it
has sent since the last such call, and when, in seconds of `time.perf_counter`, which on Linux is one clock
for all processes.
"""

import argparse
import asyncio
import json
import os
import re
import sys
import time
from dataclasses import asdict, dataclass
from typing import cast

import uvloop

MODEL = "known-timing"
_HEAD = b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
_STREAM_HEAD = _HEAD + b"transfer-encoding: chunked\r\n\r\n"
_CONTENT_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_CHARS_PER_ID = 4


def _event(data: bytes) -> bytes:
    """One event as one chunk of a chunked answer, as uvicorn sends it."""
    event = b"data: " + data + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(event), event)


def _output(tokens: int, finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "logprobs": None, "finish_reason": finish_reason, "stop_reason": None}
    body = {
        "id": "cmpl-8f1f6ac1b2c44b1f9f2f3c5d7e9a0b1c",
        "object": "text_completion",
        "created": 1_790_000_000,
        "model": MODEL,
        "choices": [{"text": " word" * tokens, **choice}],
    }
    return _event(json.dumps(body, separators=(",", ":")).encode())


@dataclass(slots=True, kw_only=True)
class Sent:
    """What one request got, and when."""

    salt: str
    received_s: float
    prompt_tokens: int
    wanted_tokens: int
    tokens: int = 0
    events: int = 0
    first_s: float = 0.0
    last_s: float = 0.0


class Engine:
    """The running requests, and the stamps of all that was sent since they were last asked for."""

    def __init__(self, tick_s: float, tokens_per_event: int) -> None:
        self._tick_s = tick_s
        self._per_event = tokens_per_event
        self._words = _output(tokens_per_event)
        self._running: dict[asyncio.Transport, Sent] = {}
        self._ticks: list[tuple[float, int]] = []
        self._requests: list[Sent] = []
        self._generated = 0
        self._prompted = 0

    def start(self, transport: asyncio.Transport, body: dict[str, object], received_s: float) -> None:
        """Answer a request from the next tick on."""
        wanted, salt, prompt = body.get("max_tokens"), body.get("cache_salt", ""), body.get("prompt")
        if not isinstance(wanted, int) or not isinstance(prompt, list | str):
            raise ValueError("a request needs `max_tokens` and one `prompt`")
        tokens = len(prompt) if isinstance(prompt, list) else len(prompt) // _CHARS_PER_ID
        sent = Sent(salt=str(salt), received_s=received_s, prompt_tokens=tokens, wanted_tokens=wanted)
        self._prompted += tokens
        self._requests.append(sent)
        self._running[transport] = sent
        transport.write(_STREAM_HEAD)

    def forget(self, transport: asyncio.Transport) -> None:
        """The connection is lost, the request with it."""
        self._running.pop(transport, None)

    async def run(self) -> None:
        """Step for ever, once a tick; late steps are not caught up."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due = max(due + self._tick_s, loop.time())
            await asyncio.sleep(due - loop.time())
            self._step()

    def _step(self) -> None:
        begin_s = time.perf_counter()
        before = self._generated
        for transport, sent in list(self._running.items()):
            now_s = time.perf_counter()
            if not sent.events:
                sent.first_s = now_s
            sent.last_s = now_s
            sent.events += 1
            left = sent.wanted_tokens - sent.tokens
            if left > self._per_event:
                sent.tokens += self._per_event
                self._generated += self._per_event
                transport.write(self._words)
            else:
                sent.tokens += left
                self._generated += left
                del self._running[transport]
                transport.write(self._end(sent, left))
        self._ticks.append((begin_s, self._generated - before))

    def _end(self, sent: Sent, tokens: int) -> bytes:
        """The last words of an answer, its usage, and the end of the stream."""
        usage = {
            "prompt_tokens": sent.prompt_tokens,
            "completion_tokens": sent.tokens,
            "total_tokens": sent.prompt_tokens + sent.tokens,
        }
        last = {"id": "cmpl-8f1f", "object": "text_completion", "model": MODEL, "choices": [], "usage": usage}
        end = _event(json.dumps(last, separators=(",", ":")).encode()) + _event(b"[DONE]")
        return _output(tokens, "length") + end + b"0\r\n\r\n"

    def stamps(self) -> dict[str, object]:
        """All that was sent since the last call; a request still running is in the next answer too."""
        answer = {"ticks": self._ticks, "requests": [asdict(sent) for sent in self._requests]}
        self._ticks, self._requests = [], list(self._running.values())
        return answer

    def metrics(self) -> str:
        """The counters of vLLM that say what was done."""
        values = {
            "generation_tokens_total": self._generated,
            "prompt_tokens_total": self._prompted,
            "num_preemptions_total": 0,
            "num_requests_running": len(self._running),
            "num_requests_waiting": 0,
        }
        return "".join(
            f"# TYPE vllm:{name.removesuffix('_total')} {'counter' if name.endswith('_total') else 'gauge'}\n"
            f'vllm:{name}{{model_name="{MODEL}"}} {value}\n'
            for name, value in values.items()
        )


class Connection(asyncio.Protocol):
    """One keep-alive connection of HTTP/1.1, without pipelining, which no client of these uses."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._buffer = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport to answer on."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is not a subclass of it

    def connection_lost(self, exc: Exception | None) -> None:
        """Give up the request that ran on it."""
        self._engine.forget(self._transport)

    def data_received(self, data: bytes) -> None:
        """Answer as soon as the whole request is there."""
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        length = _CONTENT_LENGTH.search(head)
        if found and len(body) >= (int(length[1]) if length else 0):
            self._buffer = b""
            self._answer(head.split(b" ", 2)[1].split(b"?")[0].decode(), body)

    def _answer(self, path: str, body: bytes) -> None:
        match path:
            case "/v1/completions":
                self._engine.start(self._transport, json.loads(body), time.perf_counter())
            case "/tokenize":
                prompt = json.loads(body)["prompt"]
                ids = [100 + ord(c) for c in prompt[::_CHARS_PER_ID]]
                self._reply(json.dumps({"count": len(ids), "max_model_len": 1_000_000, "tokens": ids}))
            case "/v1/models":
                card = {"id": MODEL, "object": "model", "root": MODEL, "max_model_len": 1_000_000}
                self._reply(json.dumps({"object": "list", "data": [card]}))
            case "/stamps":
                self._reply(json.dumps(self._engine.stamps()))
            case "/metrics":
                self._reply(self._engine.metrics(), "text/plain; version=0.0.4; charset=utf-8")
            case "/health":
                self._reply("")
            case _:
                self._reply('{"detail":"Not Found"}', status="404 Not Found")

    def _reply(self, text: str, kind: str = "application/json", status: str = "200 OK") -> None:
        body = text.encode()
        head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
        self._transport.write(head.encode() + body)


async def _serve(engine: Engine) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), stop.set)
    server = await loop.create_server(lambda: Connection(engine), "127.0.0.1", 0, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    ticking = asyncio.create_task(engine.run())
    await stop.wait()
    ticking.cancel()
    server.close()


def main() -> None:
    """Serve until standard input is closed."""
    parser = argparse.ArgumentParser(description="A completions server of known timing.")
    parser.add_argument("--tick-ms", type=int, default=10, help="time of an engine step")
    parser.add_argument("--tokens-per-event", type=int, default=1)
    parser.add_argument("--core", type=int, help="the processor to run on")
    arguments = parser.parse_args()
    if arguments.core is not None:
        os.sched_setaffinity(0, {arguments.core})
    uvloop.run(_serve(Engine(arguments.tick_ms / 1000, arguments.tokens_per_event)))


if __name__ == "__main__":
    main()
