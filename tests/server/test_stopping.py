"""Stopping: whatever the server and its children do, nothing is left, and nothing else is touched."""

import signal
import socket
import threading
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import httpx
import psutil
import pytest
from real_servers import Start, alive, is_refused, those_who_mention, tree_of, until

from autotune.domain.server import LaunchPlan
from autotune.errors import ProcessStillAlive
from autotune.server import stopping


@pytest.mark.parametrize(
    ("scenario", "members"),
    [
        ("normal", 2),
        ("ignores_sigterm", 2),
        ("grandchild_ignores_sigterm", 3),
        ("grandchild_own_session", 3),
        ("grandchild_scrubbed", 3),
        ("grandchild_hidden", 3),
        ("grandchild_late", 3),
    ],
)
def test_nothing_is_left(start: Start, scenario: str, members: int) -> None:
    server = start(scenario)
    tree = tree_of(server.mark)
    assert len(tree) == members

    server.stop(grace_s=0.3)

    assert alive(tree) == set()
    assert those_who_mention(server.mark.log_path) == set()
    assert is_refused(server.mark.port)
    assert not Path(server.mark.tmp_dir).exists()
    assert server.exit_code is not None


def test_an_idle_server_may_leave_by_itself(start: Start) -> None:
    server = start()
    server.stop(grace_s=20)
    assert server.exit_code == 0
    assert "Application shutdown complete" in server.read_log()


def test_one_that_does_not_listen_is_killed(start: Start) -> None:
    server = start("ignores_sigterm")
    server.stop(grace_s=0.2)
    assert server.exit_code == -signal.SIGKILL


def test_a_request_under_way_cannot_hold_it(start: Start) -> None:
    """vLLM waits for its clients after SIGTERM, as long as they stay connected."""
    server = start("hangs_mid_stream")
    first_token = threading.Event()

    def ask() -> None:
        body = {"model": "model", "prompt": "x", "max_tokens": 50, "stream": True}
        url = f"http://127.0.0.1:{server.mark.port}/v1/completions"
        with suppress(httpx.TransportError), httpx.stream("POST", url, json=body, timeout=60) as answer:
            for _ in answer.iter_lines():
                first_token.set()

    client = threading.Thread(target=ask)
    client.start()
    assert first_token.wait(20)
    tree = tree_of(server.mark)

    server.stop(grace_s=0.3)

    client.join(20)
    assert not client.is_alive()
    assert alive(tree) == set()
    assert server.exit_code == -signal.SIGKILL
    assert "Waiting for connections to close" in server.read_log()


def test_one_that_is_not_ready_yet(start: Start) -> None:
    server = start("never_ready", ready=False)
    until(lambda: len(tree_of(server.mark)) == 2)
    tree = tree_of(server.mark)
    server.stop(grace_s=5)
    assert alive(tree) == set()


def test_shared_memory_is_removed_even_when_all_are_killed(start: Start) -> None:
    server = start({"grandchild": "shared_memory"})
    until(lambda: "shared memory" in server.read_log())
    name = server.read_log().partition("shared memory ")[2].split()[0]
    assert Path("/dev/shm", name).exists()
    server.stop(grace_s=0)
    assert not Path("/dev/shm", name).exists()


def test_what_a_dead_first_process_left(start: Start) -> None:
    server = start()
    tree = tree_of(server.mark)
    psutil.Process(server.mark.pid).kill()
    until(lambda: server.exit_code is not None)
    assert len(alive(tree)) == 1, "the engine outlives its API server"

    server.stop(grace_s=0)

    assert alive(tree) == set()
    assert server.exit_code == -signal.SIGKILL


def test_stopping_twice(start: Start) -> None:
    server = start()
    server.stop(grace_s=5)
    code = server.exit_code
    server.stop(grace_s=5)
    assert server.exit_code == code


def test_another_server_is_left_alone(start: Start) -> None:
    first, second = start(), start()
    others = tree_of(second.mark)
    first.stop(grace_s=0)
    assert alive(others) == others
    assert httpx.get(f"http://127.0.0.1:{second.mark.port}/health", trust_env=False).status_code == 200


def test_a_survivor_is_named(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """No process withstands SIGKILL at will, so here the signals are held back."""
    server = start()
    tree = tree_of(server.mark)
    seconds = iter(range(0, 10_000, 10))
    with monkeypatch.context() as held:
        held.setattr(stopping, "_send", lambda *_: None)
        with pytest.raises(ProcessStillAlive) as caught:
            stopping.end_processes(server.mark, 0, lambda: next(seconds))
    assert set(caught.value.pids) == {process.pid for process in tree}
    assert Path(server.mark.tmp_dir).exists()


def test_a_port_that_stays_taken_is_named() -> None:
    seconds = iter(range(10_000))
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ProcessStillAlive, match=f"port {port} "):
            stopping.prove_port_free(port, lambda: next(seconds))


def test_an_engine_that_dies_ends_the_server_with_code_0(start: Start) -> None:
    server = start("dies_at_first_request")
    body = {"model": "model", "prompt": "x", "max_tokens": 4}
    url = f"http://127.0.0.1:{server.mark.port}/v1/completions"
    assert httpx.post(url, json=body, trust_env=False).status_code == 500
    until(lambda: server.exit_code is not None)
    assert server.exit_code == 0
    assert is_refused(server.mark.port)
    server.stop(grace_s=1)


def test_only_its_own_scratch_directory_is_removed(plan: LaunchPlan, tmp_path: Path) -> None:
    stopping.remove_scratch(replace(plan.mark, tmp_dir=str(tmp_path)))
    assert tmp_path.exists()
    stopping.remove_scratch(plan.mark)
    assert not Path(plan.mark.tmp_dir).exists()
