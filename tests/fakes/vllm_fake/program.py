"""The life of the fake's processes: command line, start, children, signals and end."""

import asyncio
import os
import signal
import socket
import sys
import time

from vllm_fake import log
from vllm_fake.scenario import Scenario, choose, parse_flags
from vllm_fake.serving import FakeServer


def main(words: list[str]) -> None:
    """Run the command; never returns."""
    if words == ["--version"]:
        log.raw(f"{log.VERSION}\n")
        raise SystemExit(0)
    if words[:1] == ["child"]:
        _live_as_child(words[1])
    if len(words) < 2 or words[0] != "serve":
        sys.stderr.write("usage: vllm serve MODEL [flags] | vllm --version\n")
        raise SystemExit(2)
    model, flags = words[1], parse_flags(words[2:])
    try:
        scenario = choose(flags, os.environ)
    except (ValueError, TypeError, KeyError) as error:
        sys.stderr.write(f"fake vllm: {error}\n")
        raise SystemExit(64) from None
    unknown = [flag for flag in scenario.unknown_flags if flag in flags]
    if unknown:
        names = " ".join("--" + flag.replace("_", "-") for flag in unknown)
        sys.stderr.write(f"usage: vllm [-h] [-v]\nvllm: error: unrecognized arguments: {names}\n")
        raise SystemExit(2)
    _serve(model, flags, scenario)


def _serve(model: str, flags: dict[str, object], scenario: Scenario) -> None:
    signal.alarm(scenario.lifetime_s)
    if scenario.ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if scenario.log_bytes:
        line = "WARNING flood " + "x" * 85 + "\n"
        log.raw(line * (scenario.log_bytes // len(line)))
    log.banner(model, flags)
    _title("VLLM::APIServer")
    if scenario.grandchild == "foreign":
        _spawn_foreign(str(flags["port"]), scenario)
        time.sleep(scenario.lifetime_s)
    listener = _bind(flags)
    engine = _spawn_engine(listener, scenario.lifetime_s)
    if scenario.grandchild:
        _spawn_grandchild(scenario.grandchild, listener)
    time.sleep(scenario.start_s)
    _fail_start(flags, scenario, engine)
    log.engine_up(engine, int(flags["max_model_len"]), scenario.kv_cache_tokens or 524288)
    log.listening(f"http://{flags['host']}:{flags['port']}")
    asyncio.run(FakeServer(model, flags, scenario, engine).run(listener))


def _bind(flags: dict[str, object]) -> socket.socket:
    """The port, bound and not yet listening."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((str(flags["host"]), int(flags["port"])))
    except OSError as error:
        log.api_server_failed(f"OSError: [Errno {error.errno}] {os.strerror(error.errno)}")
        raise SystemExit(1) from None
    return listener


def _fail_start(flags: dict[str, object], scenario: Scenario, engine: int) -> None:
    """End the process here when the scenario is a failed start."""
    wanted = int(flags["max_model_len"])
    room = scenario.kv_cache_tokens
    if scenario.recorded_log:
        with open(scenario.recorded_log, encoding="utf-8") as recorded:  # noqa: PTH123
            log.raw(recorded.read())
    elif scenario.start_error == "kv_too_small" or (room is not None and wanted > room):
        log.engine_start_failed(log.kv_too_small(wanted, min(room or wanted, wanted // 2)), engine)
    elif scenario.start_error == "gpu_oom":
        log.engine_start_failed(log.GPU_OOM, engine)
    elif scenario.start_error == "bad_value":
        log.api_server_failed(log.BAD_VALUE)
    else:
        return
    os.kill(engine, signal.SIGKILL)
    raise SystemExit(scenario.exit_code)


def _spawn_engine(listener: socket.socket, lifetime_s: int) -> int:
    """A child in the server's group that outlives a killed server, as vLLM's EngineCore does."""
    pid = os.fork()
    if not pid:
        signal.alarm(lifetime_s)  # a fork does not inherit its parent's
        listener.close()
        _title("VLLM::EngineCore")
        while True:
            signal.pause()
    return pid


def _spawn_grandchild(kind: str, listener: socket.socket) -> None:
    """Another process, grandchild of whoever started the server; `Scenario.grandchild` says which."""
    if kind == "late":
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    if os.fork():
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        return
    listener.close()
    if kind in {"group", "shared_memory"}:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif kind == "late":
        signal.sigwait([signal.SIGTERM])
        if os.fork():
            os._exit(0)
    if kind in {"session", "scrubbed", "hidden", "late"}:
        os.setsid()
    if kind == "hidden":
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 1)
        os.dup2(null, 2)
    if kind in {"scrubbed", "hidden"}:
        os.execve(sys.executable, ["VLLM::Worker", *_child_words("sleep")], {})  # noqa: S606
    _live_as_child(kind)


def _spawn_foreign(port: str, scenario: Scenario) -> None:
    """A process that nothing connects to this one: re-parented, own session, no variables, no log."""
    server = os.getpid()
    if child := os.fork():
        os.waitpid(child, 0)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)
    os.execve(sys.executable, ["other-server", *_child_words(f"foreign:{port}:{server}")], {})  # noqa: S606


def _child_words(job: str) -> list[str]:
    return ["-S", "-I", os.path.abspath(sys.argv[0]), "child", job]  # noqa: PTH100


def _live_as_child(job: str) -> None:
    """The whole life of an extra process."""
    signal.alarm(300)
    _title("VLLM::Worker")
    if job == "shared_memory":
        from multiprocessing.shared_memory import SharedMemory

        segment = SharedMemory(create=True, size=4096)
        log.say("Worker", "shm_broadcast.py:1", f"shared memory {segment.name}")
    if job.startswith("foreign:"):
        _, port, server = job.split(":")
        asyncio.run(_answer_as_stranger(int(port), int(server)))
    while True:
        signal.pause()


async def _answer_as_stranger(port: int, server: int) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", port):
        while os.path.exists(f"/proc/{server}"):  # noqa: PTH110
            await asyncio.sleep(0.1)
        await asyncio.sleep(1)
    os._exit(0)


def _title(name: str) -> None:
    """The name that `ps` and psutil show, as vLLM sets it."""
    with open("/proc/self/comm", "w") as comm:  # noqa: PTH123
        comm.write(name)
