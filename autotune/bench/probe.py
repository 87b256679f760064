"""Finds the dialect of a server, by asking it for one short completion in each until one is answered."""

import secrets
import time
from dataclasses import dataclass, replace

import aiohttp

from autotune.bench.blocking import Stopped, run_blocking
from autotune.bench.client import complete, open_session
from autotune.bench.exchange import Completion, Exchange, Prompt
from autotune.bench.pieces import Pieces
from autotune.bench.prose import passages, prompt_text
from autotune.bench.tokenizer import NoPrompts, ServerTokenizer, Tokenizer
from autotune.domain.bench import VLLM, Dialect, Endpoint
from autotune.domain.interrupt import Interrupt
from autotune.domain.workload import Workload

_OUTPUT_TOKENS = 16
_CHARS_PER_TOKEN = 4.0
"""First guess; English has 3 to 5."""
_NOT_UNDERSTOOD = (400, 404, 405, 415, 422, 501)
"""What servers say to a path or a field they do not have, and to a model that cannot be asked there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Why no dialect was found. `status` is that of HTTP, None where there was no whole answer."""

    why: str
    status: int | None = None


def find_dialect(
    url: str,
    model: str,
    workload: Workload,
    endpoint: Endpoint | None,
    authorization: str | None,
    timeout_s: float,
    interrupt: Interrupt,
) -> Dialect | Refused:
    """The dialect that asks most exactly for `workload`, of those that the server at `url` answers.

    `endpoint` is the only one to try; with None the completions endpoint is tried first.
    """
    probing = _find(url, model, workload, endpoint, authorization)
    match run_blocking(probing, interrupt, timeout_s):
        case Stopped.INTERRUPTED:
            return Refused(why="interrupted before the first completion had come back")
        case Stopped.TIMED_OUT:
            return Refused(why=f"no completion came back within {timeout_s:g} s")
        case found:
            return found


async def _find(
    url: str, model: str, workload: Workload, endpoint: Endpoint | None, authorization: str | None
) -> Dialect | Refused:
    refusals: dict[str, None] = {}
    status: int | None = None
    chars = round(_CHARS_PER_TOKEN * workload.prompt_tokens.at(0.5))
    text = prompt_text(passages(), workload.seed, 0, chars)[:chars]
    async with open_session(idle_s=None, authorization=authorization) as session:
        tokenizer = ServerTokenizer(session=session, url=url, model=model)
        for dialect, prompt in await _candidates(tokenizer, text):
            if endpoint not in (None, dialect.endpoint):
                continue
            exchange = await _ask(session, url, model, dialect, prompt)
            if exchange.error is None:
                return _calibrated(dialect, len(text), exchange)
            status = exchange.status
            refusals[f"{dialect.endpoint.path}: {exchange.error}"] = None
            # A server that passes over the fields it does not know gives a whole answer of another length.
            is_other = status in _NOT_UNDERSTOOD or (exchange.answered and dialect.extensions)
            if not is_other:
                return Refused(why=exchange.error, status=status)
    return Refused(why="; ".join(refusals), status=status)


async def _candidates(tokenizer: ServerTokenizer, text: str) -> list[tuple[Dialect, Prompt]]:
    """All dialects, from the most exact to the least, each with `text` as its prompt."""
    pieces = Pieces(_CHARS_PER_TOKEN)
    as_text = _prompt(pieces, await pieces.text_ids(text))
    plain = Dialect(chars_per_token=_CHARS_PER_TOKEN, extensions=False)
    chat = Dialect(endpoint=Endpoint.CHAT, chars_per_token=_CHARS_PER_TOKEN, extensions=False)
    ids = await tokenizer.text_ids(text)
    if isinstance(ids, NoPrompts):  # only vLLM and its kin have `/tokenize`
        return [(plain, as_text), (chat, as_text)]
    vllm_chat = replace(chat, extensions=True)
    return [(VLLM, _prompt(tokenizer, ids)), (plain, as_text), (vllm_chat, as_text), (chat, as_text)]


def _prompt(tokenizer: Tokenizer, ids: list[int]) -> Prompt:
    return Prompt(ids_json=tokenizer.prompt_json(ids), tokens=len(ids), output_tokens=_OUTPUT_TOKENS)


async def _ask(
    session: aiohttp.ClientSession, url: str, model: str, dialect: Dialect, prompt: Prompt
) -> Exchange:
    completion = Completion(
        model=model,
        prompt=prompt,
        output_tokens=prompt.output_tokens,
        salt=secrets.token_hex(8),
        dialect=dialect,
    )
    exchange = Exchange(completion=completion, sent_s=time.perf_counter())
    await complete(session, url, exchange, completion.body(), time.perf_counter)
    return exchange


def _calibrated(dialect: Dialect, chars: int, exchange: Exchange) -> Dialect:
    """`dialect` with the characters that a token has in this model, counted by the server itself."""
    if dialect.chars_per_token is None or not exchange.prompt_tokens:
        return dialect
    return replace(dialect, chars_per_token=chars / exchange.prompt_tokens)
