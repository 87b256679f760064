"""What a running server says of itself: its models and its version."""

from collections.abc import Mapping
from dataclasses import dataclass

import httpx
import msgspec

from autotune.errors import EnvironmentFault, UserError

_TIMEOUT_S = 10.0
"""For answers that cost a server nothing."""
_SHOWN = 20
"""How many models a sentence names."""


class _Card(msgspec.Struct):
    id: str
    root: str | None = None
    max_model_len: int | None = None


class _Models(msgspec.Struct):
    data: list[_Card]


class _Version(msgspec.Struct):
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The model that requests are for, and what is known of the server."""

    model: str
    context_tokens: int | None = None
    """Longest prompt and answer together; None where the server does not say."""
    version: str | None = None


def find_served(url: str, model: str | None, headers: Mapping[str, str]) -> Served:
    """The model called `model`, or the one model there is, of the OpenAI-compatible server at `url`.

    A server without a list of models is believed to have `model`. Raises UserError when it has no such
    model, or several and `model` is None, when it is no OpenAI-compatible server or refuses the key in
    `headers`; EnvironmentFault when it cannot be reached or is out of order.
    """
    with httpx.Client(headers=headers, timeout=_TIMEOUT_S, trust_env=False) as client:
        answer = _get(client, url, "/v1/models")
        version = _version(client, url)
    if answer.status_code == httpx.codes.NOT_FOUND and model is not None:
        return Served(model=model, version=version)
    card = _chosen(url, _cards(url, answer, "Authorization" in headers), model)
    return Served(model=card.id, context_tokens=card.max_model_len, version=version)


def _get(client: httpx.Client, url: str, path: str) -> httpx.Response:
    try:
        return client.get(url + path)
    except httpx.ConnectError as error:
        raise EnvironmentFault(f"{url}: cannot connect ({error}); is the server running?") from None
    except httpx.TimeoutException:
        raise EnvironmentFault(f"{url}: no answer to GET {path} within {_TIMEOUT_S:g} s") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise UserError(f"{url}: no HTTP server answers there ({type(error).__name__}: {error})") from None


def _version(client: httpx.Client, url: str) -> str | None:
    """What `GET /version` says, as vLLM has it; a server without it is none the worse."""
    try:
        answer = client.get(f"{url}/version")
        return msgspec.json.decode(answer.content, type=_Version).version if answer.is_success else None
    except (httpx.HTTPError, msgspec.DecodeError):
        return None


def _cards(url: str, answer: httpx.Response, has_key: bool) -> list[_Card]:
    """The models in an answer to `GET /v1/models`."""
    status = answer.status_code
    if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        wrong = "refuses the API key" if has_key else "wants an API key"
        raise UserError(
            f"{url}: the server {wrong} (HTTP {status}); "
            "put the right one in an environment variable and name that with --api-key-env"
        )
    if answer.is_server_error:
        raise EnvironmentFault(f"{url}: the server is out of order: GET /v1/models gave HTTP {status}")
    if answer.is_redirect:
        raise UserError(f"{url}: leads elsewhere (HTTP {status}); write the URL of the server itself")
    try:
        if answer.is_success:
            return msgspec.json.decode(answer.content, type=_Models).data
    except msgspec.DecodeError:
        raise UserError(
            f"{url}: is not an OpenAI-compatible server: GET /v1/models gave no list of models"
        ) from None
    raise UserError(
        f"{url}: GET /v1/models gave HTTP {status}, so this is not an OpenAI-compatible server, or not its "
        "base URL; one without that list needs --model"
    )


def _chosen(url: str, cards: list[_Card], model: str | None) -> _Card:
    if not cards:
        raise UserError(f"{url}: the server has no model")
    names = ", ".join(card.id for card in cards[:_SHOWN])
    names += f" and {len(cards) - _SHOWN} more" if len(cards) > _SHOWN else ""
    if model is not None:
        named = [card for card in cards if card.id == model]
        if not named:
            raise UserError(f"{url}: there is no model {model!r}; the server has {names}")
        return named[0]
    # Several names of one model, as `--served-model-name A B` gives them, share their root.
    if len({card.root or card.id for card in cards}) > 1:
        raise UserError(f"{url}: the server has several models; choose one with --model: {names}")
    return cards[0]
