"""Where a running server is, from a URL as people write it."""

import re
import socket
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import unquote, urlsplit

from autotune.bench.credentials import Credentials
from autotune.errors import UserError

_API_PATH = re.compile(r"(/v1)?(/(chat/)?completions|/models)?/*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A server's base URL, below which are `/v1/...` and, on vLLM, `/tokenize` and `/metrics`."""

    url: str
    """Without credentials and without a slash at the end."""
    host: str
    """The machine it names; this one's own name where it is the loopback."""
    credentials: Credentials | None = None
    """Those in the URL; None where it has none."""


def read_address(text: str) -> Address:
    """Read `http://host:8000`, `host:8000`, `https://host/v1/` and the like.

    Raises UserError with what is wrong; credentials are never in it.
    """
    full = text.strip() if "://" in text else f"http://{text.strip()}"
    shown = re.sub(r"(?<=://).*@", "", full)
    try:
        parts = urlsplit(full)
        host, port = parts.hostname, parts.port
    except ValueError:  # its text can hold a part of the password
        raise UserError(f"{shown}: is no URL; write it like http://127.0.0.1:8000") from None
    if parts.scheme not in ("http", "https"):
        raise UserError(f"{shown}: a server is reached by http:// or https://")
    if not host or re.search(r"\s", shown):
        raise UserError(f"{shown}: write the server's URL, for example http://127.0.0.1:8000")
    if parts.query or parts.fragment:
        raise UserError(f"{shown}: write the server's base URL, with nothing from `?` or `#` on")
    site = f"[{host}]" if ":" in host else host
    site = site if port is None else f"{site}:{port}"
    return Address(
        url=f"{parts.scheme}://{site}{_API_PATH.sub('', parts.path).rstrip('/')}",
        host=socket.gethostname() if _is_loopback(host) else host,
        credentials=None
        if parts.username is None
        else Credentials.of_user(unquote(parts.username), unquote(parts.password or "")),
    )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
