"""Token ids from the server itself: its `/tokenize` knows the model's vocabulary and chat template.

A server without that gets its prompts as text, which `autotune.bench.pieces` cuts in its stead.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import aiohttp

from autotune.bench.fault import describe, http_error


@dataclass(frozen=True, slots=True)
class NoPrompts:
    """Why there are none, and the HTTP status where that is the reason."""

    why: str
    status: int | None = None


class Tokenizer(Protocol):
    """Cuts texts into ids, and makes prompts of them."""

    async def text_ids(self, text: str, *, begins: bool = True) -> list[int] | NoPrompts:
        """The ids of `text`, with the special tokens that begin a prompt where it `begins` one."""

    async def private_ids(self, request: Mapping[str, object]) -> list[int] | NoPrompts:
        """The ids of a text or a chat, as `/tokenize` takes it; a fault shows nothing of what is in it."""

    def prompt_json(self, ids: Sequence[int]) -> str:
        """The prompt that `ids` are, as the JSON that is sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTokenizer:
    """That of `model`, which the server at `url` serves."""

    session: aiohttp.ClientSession
    url: str
    model: str

    async def text_ids(self, text: str, *, begins: bool = True) -> list[int] | NoPrompts:
        """The ids of `text`, with the special tokens that begin a prompt where it `begins` one."""
        return await self._ids({"prompt": text, "add_special_tokens": begins}, private=False)

    async def private_ids(self, request: Mapping[str, object]) -> list[int] | NoPrompts:
        """The ids of a text or a chat, as `/tokenize` takes it; a fault shows nothing of what is in it."""
        return await self._ids(request, private=True)

    def prompt_json(self, ids: Sequence[int]) -> str:
        """A list of token ids, which the completions endpoint of vLLM takes."""
        return json.dumps(ids, separators=(",", ":"))

    async def _ids(self, request: Mapping[str, object], *, private: bool) -> list[int] | NoPrompts:
        body = json.dumps({"model": self.model, **request})
        try:
            async with self.session.post(
                f"{self.url}/tokenize", data=body, allow_redirects=False
            ) as response:
                if response.status != 200:
                    # vLLM's own words on a request that it refuses can quote it.
                    told = f"HTTP {response.status}" if private else await http_error(response)
                    return NoPrompts(f"the prompts need POST /tokenize, which gave {told}", response.status)
                answer: object = json.loads(await response.read())
        except (aiohttp.ClientError, OSError) as error:
            return NoPrompts(f"POST /tokenize: {describe(error, self.session)}")
        except ValueError:
            return NoPrompts("POST /tokenize gave an answer that is not JSON")
        ids = answer.get("tokens") if isinstance(answer, dict) else None
        if not isinstance(ids, list) or not all(type(i) is int for i in ids):
            return NoPrompts("POST /tokenize gave an answer without a list of token ids in `tokens`")
        return ids
