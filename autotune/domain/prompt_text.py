"""A prompt as a user's file has it, before a tokenizer has seen it."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptText:
    """One line of a user's file: a `text` to go on with, or the `messages` of a chat, never both.

    Its answer is to have `output_tokens`, or else the length of `answer`, which somebody gave before; where
    both are None the workload decides. What a user wrote is never shown: it is not in the `repr`.
    """

    line: int
    """Its number in the file, from 1."""
    text: str | None = field(default=None, repr=False)
    messages: tuple[Mapping[str, object], ...] = field(default=(), repr=False)
    """As in a request to `/v1/chat/completions`."""
    tools: tuple[Mapping[str, object], ...] = field(default=(), repr=False)
    """What the model may call; the chat template writes it into the prompt."""
    output_tokens: int | None = None
    answer: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if (self.text is None) == (not self.messages):
            raise ValueError("needs either a text or messages")
