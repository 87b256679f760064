"""URLs as people write them, and secrets that stay where they are."""

import pytest

from autotune.bench.address import Address, read_address
from autotune.bench.credentials import Credentials
from autotune.errors import UserError


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://host:8000", "http://host:8000"),
        ("http://host:8000/", "http://host:8000"),
        ("http://host:8000/v1", "http://host:8000"),
        ("http://host:8000/v1/", "http://host:8000"),
        ("http://host:8000/v1/completions", "http://host:8000"),
        ("https://host/v1/chat/completions", "https://host"),
        ("http://host/v1/models", "http://host"),
        ("https://host/openai/v1", "https://host/openai"),
        ("host:8000", "http://host:8000"),
        (" host/v1 ", "http://host"),
        ("HTTP://Host:80", "http://host:80"),
        ("http://[::1]:8000/v1", "http://[::1]:8000"),
        ("me:secret@host:8000", "http://host:8000"),
    ],
)
def test_base_urls(text: str, url: str) -> None:
    assert read_address(text).url == url


@pytest.mark.parametrize(
    "text",
    [
        "",
        "http://",
        "ftp://host",
        "file:///etc/passwd",
        "http://host:99999",
        "http://host:x",
        "http://[::1",
        "http://host/?model=m",
        "http://host/#a",
        "a b:80",
        "http://[zz]:1",
    ],
)
def test_what_is_no_url_of_a_server(text: str) -> None:
    with pytest.raises(UserError):
        read_address(text)


@pytest.mark.parametrize(
    "text",
    [
        "http://me:s3cret@host:x",
        "http://me:s3/cret@host",
        "http://me:s3?cret@host",
        "ftp://me:s3cret@host",
        "http://me:s3cret@",
        "http://me:s3cret@host/?a",
        "me:s3cret@[::1",
    ],
)
def test_a_password_is_in_no_error(text: str) -> None:
    with pytest.raises(UserError) as caught:
        read_address(text)
    assert "s3" not in str(caught.value)
    assert "cret" not in str(caught.value)


def test_a_user_name_in_the_url_becomes_a_header() -> None:
    address = read_address("https://me:p%40ss@host/v1")
    assert address.credentials == Credentials.of_user("me", "p@ss")
    assert address.credentials.headers == {"Authorization": "Basic bWU6cEBzcw=="}
    assert read_address("https://host").credentials is None
    assert "p@ss" not in repr(address)
    assert "bWU6" not in repr(address)


def test_the_loopback_is_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "here")
    hosts = ("localhost:1", "127.0.0.1:1", "127.1.2.3", "[::1]", "gpu.example:1")
    assert [read_address(host).host for host in hosts] == [*["here"] * 4, "gpu.example"]
    assert read_address("h:1") == Address(url="http://h:1", host="h")


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("wrong key: sk-0123456789, try another", "wrong key: [hidden], try another"),
        ("sk-0123456789sk-0123456789", "[hidden][hidden]"),
        ("a long story that ends with sk-012345...", "a long story that ends with [hidden]"),
        ("and one that ends with sk-012345678", "and one that ends with [hidden]"),
        ("nothing of it, sk-0", "nothing of it, sk-0"),
        ("", ""),
    ],
)
def test_a_key_is_hidden_in_what_a_server_says(said: str, shown: str) -> None:
    assert Credentials.of_key("sk-0123456789").hidden(said) == shown


def test_a_password_is_hidden_in_both_its_forms() -> None:
    found = Credentials.of_user("me", "hunter22")
    assert found.hidden(f"{found.authorization} is hunter22") == "Basic [hidden] is [hidden]"
    assert Credentials.of_user("me", "").hidden("Basic bWU6") == "Basic [hidden]"
