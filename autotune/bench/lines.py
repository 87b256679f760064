"""The prompts that a user's lines are: taken or left out, never clipped, and never shown."""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath

from autotune.bench.exchange import Prompt
from autotune.bench.tokenizer import NoPrompts, Tokenizer
from autotune.domain.prompt_text import PromptText
from autotune.domain.workload import Lengths, Workload

_LOOKS = 20
"""Lines looked at for each one wanted; where so few fit, all that fit would take too long to find."""
_REFUSED = (400, 422)
"""What vLLM says to a chat that its template cannot write, and where the model has no template."""


async def line_prompts(
    tokenizer: Tokenizer, workload: Workload, texts: Sequence[PromptText], note: Callable[[str], None]
) -> tuple[Prompt, ...] | NoPrompts:
    """As many of `texts` as the workload has prompts, in their own order, chosen by its seed.

    A text whose prompt or answer does not have the workload's lengths is left out, and so is one that the
    server refuses; `note` is told how many. NoPrompts where none is left.
    """
    order = random.Random(f"lines-{workload.seed}").sample(range(len(texts)), len(texts))  # noqa: S311 - the same in every trial
    taken: dict[int, Prompt] = {}
    left_out: Counter[str] = Counter()
    for index in order[: _LOOKS * workload.prompts]:
        match await _line_prompt(tokenizer, workload, texts[index]):
            case NoPrompts() as fault:
                return fault
            case Prompt() as prompt:
                taken[index] = prompt
            case reason:
                left_out[reason] += 1
        if len(taken) == workload.prompts:
            break
    told = _told(workload, left_out, len(taken) + left_out.total())
    if not taken:
        return NoPrompts(f"there is nothing to send: {told}")
    if left_out:
        note(told)
    return tuple(taken[index] for index in sorted(taken))


async def _line_prompt(
    tokenizer: Tokenizer, workload: Workload, text: PromptText
) -> Prompt | NoPrompts | str:
    """The prompt of one line, or why it is left out."""
    output_tokens = await _output_tokens(tokenizer, workload, text)
    if isinstance(output_tokens, NoPrompts):
        return output_tokens
    if not _fits(output_tokens, workload.output_tokens):
        return f"an answer that is not {workload.output_tokens} tokens long"
    ids = await tokenizer.private_ids(_request(text))
    if isinstance(ids, NoPrompts):
        return "a prompt that the server refuses" if ids.status in _REFUSED else ids
    if not _fits(len(ids), workload.prompt_tokens):
        return f"a prompt that is not {workload.prompt_tokens} tokens long"
    return Prompt(ids_json=tokenizer.prompt_json(ids), tokens=len(ids), output_tokens=output_tokens)


async def _output_tokens(tokenizer: Tokenizer, workload: Workload, text: PromptText) -> int | NoPrompts:
    """What the line asks for, else the length of the answer in it, else one of the workload's lengths."""
    if text.output_tokens is not None:
        return text.output_tokens
    if text.answer is not None:
        ids = await tokenizer.private_ids({"prompt": text.answer, "add_special_tokens": False})
        return ids if isinstance(ids, NoPrompts) else len(ids)
    rng = random.Random(f"output-{workload.seed}-{text.line}")  # noqa: S311 - the same in every trial
    return workload.output_tokens.at(rng.random())


def _request(text: PromptText) -> Mapping[str, object]:
    if text.text is not None:
        return {"prompt": text.text}
    tools = {"tools": text.tools} if text.tools else {}
    return {"messages": text.messages, "add_generation_prompt": True, **tools}


def _fits(tokens: int, lengths: Lengths) -> bool:
    return lengths.low <= tokens <= lengths.high


def _told(workload: Workload, left_out: Counter[str], looked_at: int) -> str:
    name = PurePath(workload.source or "prompts").name
    reasons = ", ".join(f"{count} for {reason}" for reason, count in left_out.most_common())
    return f"{left_out.total()} of {looked_at} lines of {name} are left out: {reasons}"
