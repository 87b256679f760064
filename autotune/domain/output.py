"""What a server answers to fixed prompts when it always takes the likeliest token."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """The greedy answer to one of the fixed prompts, token by token.

    `logprobs` are natural logarithms of the tokens' probabilities, as many as `tokens`.
    """

    prompt: int
    """Which of the fixed prompts, from 0."""
    tokens: tuple[str, ...]
    logprobs: tuple[float, ...]
