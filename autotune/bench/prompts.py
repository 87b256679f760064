"""The prompts of a workload: real English, the same token ids in every trial.

Text, because speculative decoding and prefix caching do something else on noise; token ids, because the
length has to be exact. The server's own `/tokenize` makes them, so no tokenizer is needed here.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources

import aiohttp

from autotune.bench.client import Prompt, describe, http_error
from autotune.domain.workload import Workload

_CHARS_PER_TOKEN = 6
"""First guess of the text needed; English takes 3 to 5 characters a token, and too little is doubled."""


@dataclass(frozen=True, slots=True)
class NoPrompts:
    """Why there are none."""

    why: str


def passages() -> tuple[str, ...]:
    """The passages of the prose that comes with autotune."""
    text = resources.files("autotune").joinpath("prompts", "prose.txt").read_text(encoding="utf-8")
    return tuple(text.strip().split("\n\n"))


def prompt_text(prose: tuple[str, ...], seed: int, index: int, min_chars: int) -> str:
    """Text of prompt `index`, at least `min_chars` long; a longer one begins with the shorter one.

    Prompts begin with different passages for as long as there are enough of them, and a prompt repeats none
    before it has had them all.
    """
    chosen: list[str] = []
    length = 0
    for passage in _shuffled(prose, seed, index):
        chosen.append(passage)
        length += len(passage) + 2
        if length - 2 >= min_chars:
            break
    return "\n\n".join(chosen)


def _shuffled(prose: tuple[str, ...], seed: int, index: int) -> Iterator[str]:
    """All passages in an order that `seed` and `index` decide, again and again."""
    first = random.Random(f"{seed}").sample(prose, len(prose))[index % len(prose)]  # noqa: S311 - the same prompts in every trial
    yield first
    rng = random.Random(f"{seed}-{index}")  # noqa: S311 - the same prompts in every trial
    yield from rng.sample(rest := [p for p in prose if p != first], len(rest))
    while True:
        yield from rng.sample(prose, len(prose))


async def tokenize_prompts(
    session: aiohttp.ClientSession, url: str, model: str, workload: Workload
) -> tuple[Prompt, ...] | NoPrompts:
    """The workload's prompts, each of exactly `prompt_tokens` ids of the model that `url` serves."""
    prose = passages()
    prompts: list[Prompt] = []
    for index in range(workload.prompts):
        ids: list[int] = []
        wanted = workload.prompt_tokens.high
        min_chars = wanted * _CHARS_PER_TOKEN
        while len(ids) < wanted:
            answer = await _tokenize(session, url, model, prompt_text(prose, workload.seed, index, min_chars))
            if isinstance(answer, NoPrompts):
                return answer
            if len(answer) <= len(ids):
                return NoPrompts("POST /tokenize gave no more tokens for twice the text")
            ids = answer
            min_chars *= 2
        ids_json = json.dumps(ids[:wanted], separators=(",", ":"))
        prompts.append(Prompt(ids_json=ids_json, tokens=wanted, output_tokens=workload.output_tokens.high))
    return tuple(prompts)


async def _tokenize(session: aiohttp.ClientSession, url: str, model: str, text: str) -> list[int] | NoPrompts:
    body = json.dumps({"model": model, "prompt": text})
    try:
        async with session.post(f"{url}/tokenize", data=body, allow_redirects=False) as response:
            if response.status != 200:
                return NoPrompts(f"the prompts need POST /tokenize, which gave {await http_error(response)}")
            answer: object = json.loads(await response.read())
    except (aiohttp.ClientError, OSError) as error:
        return NoPrompts(f"POST /tokenize: {describe(error, session)}")
    except ValueError:
        return NoPrompts("POST /tokenize gave an answer that is not JSON")
    ids = answer.get("tokens") if isinstance(answer, dict) else None
    if not isinstance(ids, list) or not all(type(i) is int for i in ids):
        return NoPrompts("POST /tokenize gave an answer without a list of token ids in `tokens`")
    return ids
