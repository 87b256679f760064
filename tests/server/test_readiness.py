"""Ready means: our process answers 200 on its port."""

import http.server
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import count

import pytest
from real_servers import Start, patient, until

from autotune.domain.interrupt import Interrupt
from autotune.domain.server import LaunchPlan, Readiness
from autotune.domain.trial import Interruption
from autotune.server import readiness, stopping
from autotune.server.ports import listeners


class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def seconds(step_s: float) -> Callable[[], float]:
    """A clock that moves on at every look."""
    ticks = count()
    return lambda: next(ticks) * step_s


def test_ready_after_a_while(start: Start) -> None:
    server = start({"start_s": 0.4}, ready=False)
    assert server.wait_ready(30, patient()) is Readiness.READY
    assert server.exit_code is None
    assert server.mark.pid in listeners(server.mark.port)


def test_proxies_of_the_environment_are_not_asked(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert start().exit_code is None


@pytest.mark.parametrize(
    ("scenario", "code", "words"),
    [
        ("kv_too_small", 1, "estimated maximum model length is 4096"),
        ("gpu_oom", 1, "torch.OutOfMemoryError: CUDA out of memory"),
        ("bad_value", 1, "1 validation error for ModelConfig"),
    ],
)
def test_exited(start: Start, scenario: str, code: int, words: str) -> None:
    server = start(scenario, ready=False)
    assert server.wait_ready(30, patient()) is Readiness.EXITED
    assert server.exit_code == code
    assert words in server.read_log()


def test_an_unknown_flag(start: Start) -> None:
    server = start("normal", "--nope", ready=False)
    assert server.wait_ready(30, patient()) is Readiness.EXITED
    assert server.exit_code == 2
    assert "error: unrecognized arguments: --nope" in server.read_log()


@pytest.mark.parametrize("scenario", ["never_ready", "unhealthy"])
def test_timed_out(start: Start, scenario: str) -> None:
    server = start(scenario, ready=False)
    if scenario == "unhealthy":
        until(lambda: listeners(server.mark.port))
    assert server.wait_ready(50, Interrupt(seconds(10), float("inf"))) is Readiness.TIMED_OUT


def test_interrupted_by_the_budget(start: Start) -> None:
    server = start("never_ready", ready=False)
    assert server.wait_ready(1000, Interrupt(seconds(10), 50)) is Readiness.INTERRUPTED


def test_interrupted_by_the_user(start: Start) -> None:
    server = start("never_ready", ready=False)
    interrupt = patient()
    timer = threading.Timer(0.3, interrupt.request, [Interruption.USER])
    timer.start()
    assert server.wait_ready(60, interrupt) is Readiness.INTERRUPTED
    timer.join()


def test_an_escaped_process_on_the_port_is_not_ours(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "_PORT_S", 0)
    server = start("port_taken", ready=False)
    assert server.wait_ready(30, patient()) is Readiness.NOT_OURS
    server.stop(grace_s=0)  # the port is still taken, and that is not this server's doing


@pytest.fixture
def held_port() -> Iterator[int]:
    """A port on which this test process answers every request with 200."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Healthy) as stranger:
        thread = threading.Thread(target=stranger.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield stranger.server_address[1]
        stranger.shutdown()
        thread.join()


def test_somebody_elses_healthy_server(plan: LaunchPlan, held_port: int) -> None:
    mark = replace(plan.mark, port=held_port)
    assert readiness.wait_ready(mark, lambda: False, 30, patient()) is Readiness.NOT_OURS


def test_a_stranger_that_says_nothing(plan: LaunchPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "_ANSWER_TIMEOUT_S", 0.1)
    with closing(socket.create_server(("127.0.0.1", 0))) as stranger:
        mark = replace(plan.mark, port=stranger.getsockname()[1])
        assert readiness.wait_ready(mark, lambda: False, 30, patient()) is Readiness.NOT_OURS
