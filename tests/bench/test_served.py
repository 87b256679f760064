"""What a running server says of itself, and one clear sentence where that is not enough."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sse_server import SseServer

from autotune.bench.served import Served, find_served
from autotune.errors import EnvironmentFault, UserError


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """The URL of something that gives this one answer to whatever comes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)

        def serve() -> None:
            for _ in range(2):
                try:
                    connection = listener.accept()[0]
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(20)


def http(status: str, body: str, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers, "", body]
    return "\r\n".join(lines).encode()


def test_the_only_model_is_found(sse_server: SseServer) -> None:
    assert find_served(sse_server.url, None, {}) == Served(model="m")


def test_version_and_context_are_kept_where_the_server_tells_them(sse_server: SseServer) -> None:
    sse_server.version = "0.32.0"
    sse_server.cards = [{"id": "a", "root": "org/a", "max_model_len": 4096}]
    assert find_served(sse_server.url, "a", {}) == Served(model="a", context_tokens=4096, version="0.32.0")


def test_several_names_of_one_model_are_one_model(sse_server: SseServer) -> None:
    sse_server.cards = [{"id": "a", "root": "org/a"}, {"id": "b", "root": "org/a"}]
    assert find_served(sse_server.url, None, {}).model == "a"
    assert find_served(sse_server.url, "b", {}).model == "b"


def test_of_several_models_one_has_to_be_chosen(sse_server: SseServer) -> None:
    sse_server.models = ("a", "b")
    with pytest.raises(UserError, match=r"several models; choose one with --model: a, b$"):
        find_served(sse_server.url, None, {})
    with pytest.raises(UserError, match=r"no model 'c'; the server has a, b$"):
        find_served(sse_server.url, "c", {})
    sse_server.models = tuple(f"m{n}" for n in range(50))
    with pytest.raises(UserError, match=r"m19 and 30 more$"):
        find_served(sse_server.url, None, {})
    assert find_served(sse_server.url, "m40", {}).model == "m40"


def test_a_key_is_asked_for_and_never_repeated(sse_server: SseServer) -> None:
    sse_server.key = "sk-right"
    with pytest.raises(UserError, match=r"wants an API key \(HTTP 401\).*--api-key-env"):
        find_served(sse_server.url, None, {})
    with pytest.raises(UserError, match="refuses the API key") as caught:
        find_served(sse_server.url, None, {"Authorization": "Bearer sk-wrong"})
    assert "sk-wrong" not in str(caught.value)
    assert find_served(sse_server.url, None, {"Authorization": "Bearer sk-right"}).model == "m"


def test_nobody_listens(sse_server: SseServer) -> None:
    sse_server.die()
    with pytest.raises(EnvironmentFault, match=r"cannot connect \(.*refused.*\); is the server running"):
        find_served(sse_server.url, None, {})


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", UserError, "no HTTP server answers there"),
        (http("200 OK", "<html>"), UserError, "is not an OpenAI-compatible server"),
        (http("200 OK", '{"models": []}'), UserError, "is not an OpenAI-compatible server"),
        (http("200 OK", '{"data": [{"name": "x"}]}'), UserError, "is not an OpenAI-compatible server"),
        (http("200 OK", '{"data": []}'), UserError, "has no model"),
        (http("404 Not Found", "no"), UserError, "HTTP 404.*needs --model"),
        (http("302 Found", "", "Location: http://x/"), UserError, "leads elsewhere"),
        (http("503 Unavailable", ""), EnvironmentFault, "out of order.*HTTP 503"),
    ],
)
def test_what_is_no_openai_server(answer: bytes, kind: type[Exception], said: str) -> None:
    with answering(answer) as url, pytest.raises(kind, match=said):
        find_served(url, None, {})


def test_a_server_without_a_list_is_believed_to_have_the_model() -> None:
    with answering(http("404 Not Found", "no")) as url:
        assert find_served(url, "x", {}) == Served(model="x")
