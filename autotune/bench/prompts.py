"""The prompts of a workload as token ids, the same in every trial: lengths have to be exact.

Those made from autotune's prose are cut from longer texts: a conversation is one text, and each turn of it
ends where its own tokens do, so that every prompt begins with the whole of the one before.
"""

import random
from collections.abc import Callable, Sequence

import aiohttp

from autotune.bench.exchange import Prompt
from autotune.bench.lines import line_prompts
from autotune.bench.pieces import Pieces
from autotune.bench.prose import passages, prompt_text
from autotune.bench.tokenizer import NoPrompts, ServerTokenizer, Tokenizer
from autotune.domain.bench import VLLM, Dialect
from autotune.domain.prompt_text import PromptText
from autotune.domain.workload import Lengths, Workload
from autotune.errors import HarnessError

_CHARS_PER_TOKEN = 6
"""First guess of the text needed; English takes 3 to 5 characters a token, and too little is doubled."""


async def tokenize_prompts(
    session: aiohttp.ClientSession,
    url: str,
    model: str,
    workload: Workload,
    texts: Sequence[PromptText] = (),
    note: Callable[[str], None] = lambda _text: None,
    dialect: Dialect = VLLM,
) -> tuple[Prompt, ...] | NoPrompts:
    """The workload's prompts: those of `texts`, or where there are none, made ones of exact lengths.

    The `turns` prompts of each conversation follow each other. `note` is told how many texts are left out.
    """
    if workload.source is not None and not texts:
        raise HarnessError(f"the prompts in {workload.source} were not read")
    tokenizer: Tokenizer = ServerTokenizer(session=session, url=url, model=model)
    if dialect.chars_per_token is not None:
        tokenizer = Pieces(dialect.chars_per_token)
    if texts:
        return await line_prompts(tokenizer, workload, texts, note)
    return await _made_prompts(tokenizer, workload)


def drawn(lengths: Lengths, count: int, key: str) -> list[int]:
    """`count` lengths in random order, one from each of as many equal shares of the spread.

    So a few dozen already are spread as asked for, whatever the seed in `key` is.
    """
    rng = random.Random(key)  # noqa: S311 - the same in every trial
    tokens = [lengths.at((share + rng.random()) / count) for share in range(count)]
    rng.shuffle(tokens)
    return tokens


async def _made_prompts(tokenizer: Tokenizer, workload: Workload) -> tuple[Prompt, ...] | NoPrompts:
    count = workload.prompts * workload.turns
    new = drawn(workload.prompt_tokens, count, f"prompts-{workload.seed}")
    output = drawn(workload.output_tokens, count, f"outputs-{workload.seed}")
    prefixes = await _prefixes(tokenizer, workload)
    if isinstance(prefixes, NoPrompts):
        return prefixes
    prose = passages()
    prompts: list[Prompt] = []
    for index in range(workload.prompts):
        turns = range(index * workload.turns, (index + 1) * workload.turns)
        prefix = prefixes[index % len(prefixes)]
        needed = sum(new[turn] for turn in turns) + sum(output[turn] for turn in turns[:-1])
        own = await _cut(tokenizer, prose, workload.seed, index, needed, begins=not prefix)
        if isinstance(own, NoPrompts):
            return own
        ids, end = prefix + own, len(prefix)
        for turn in turns:
            end += new[turn]
            prompts.append(_prompt(tokenizer, ids[:end], output[turn]))
            end += output[turn]
    return tuple(prompts)


async def _prefixes(tokenizer: Tokenizer, workload: Workload) -> list[list[int]] | NoPrompts:
    """The beginnings that prompts share; a single empty one where they share none."""
    if not workload.shared_prefix_tokens:
        return [[]]
    prose, length = passages(), workload.shared_prefix_tokens
    prefixes: list[list[int]] = []
    for group in range(min(workload.prefix_groups, workload.prompts)):
        # Counted from the end, so that no prompt goes on with the passage that its prefix began with.
        ids = await _cut(tokenizer, prose, workload.seed, -1 - group, length, begins=True)
        if isinstance(ids, NoPrompts):
            return ids
        prefixes.append(ids)
    return prefixes


async def _cut(
    tokenizer: Tokenizer, prose: tuple[str, ...], seed: int, index: int, length: int, *, begins: bool
) -> list[int] | NoPrompts:
    """The first `length` ids of text number `index`."""
    ids: list[int] = []
    min_chars = length * _CHARS_PER_TOKEN
    while len(ids) < length:
        more = await tokenizer.text_ids(prompt_text(prose, seed, index, min_chars), begins=begins)
        if isinstance(more, NoPrompts):
            return more
        if len(more) <= len(ids):
            return NoPrompts("POST /tokenize gave no more tokens for twice the text")
        ids = more
        min_chars *= 2
    return ids[:length]


def _prompt(tokenizer: Tokenizer, ids: list[int], output_tokens: int) -> Prompt:
    return Prompt(ids_json=tokenizer.prompt_json(ids), tokens=len(ids), output_tokens=output_tokens)
