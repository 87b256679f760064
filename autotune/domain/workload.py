"""The load every trial is measured under: the same requests for each of them, at each stream count."""

import math
from dataclasses import dataclass
from enum import StrEnum

from autotune.domain.slo import Slo


class Spread(StrEnum):
    """How lengths are spread between the lowest and the highest."""

    UNIFORM = "uniform"
    LOGNORMAL = "lognormal"
    """Many short and few long ones, as real chats have; what falls outside the bounds is drawn again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Numbers of tokens, from `low` to `high`, both possible; all the same where the two are equal.

    `median` and `sigma` (of the logarithm) are those of a log-normal spread, None for a uniform one.
    """

    low: int
    high: int
    spread: Spread = Spread.UNIFORM
    median: float | None = None
    sigma: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.low <= self.high:
            raise ValueError(f"1 <= min <= max must hold, but they are {self.low} and {self.high}")
        lognormal = self.spread is Spread.LOGNORMAL
        if lognormal != (self.median is not None) or lognormal != (self.sigma is not None):
            raise ValueError("a log-normal spread, and only that, has a median and a sigma")
        if self.median is not None and not self.low <= self.median <= self.high:
            raise ValueError(f"the median {self.median:g} must lie between {self.low} and {self.high}")
        if self.sigma is not None and not (0 < self.sigma < math.inf):
            raise ValueError(f"sigma must be above 0 and finite, but is {self.sigma}")

    @classmethod
    def fixed(cls, tokens: int) -> "Lengths":
        """All the same length."""
        return cls(low=tokens, high=tokens)

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low} to {self.high}"


PROMPT_TOKENS = Lengths.fixed(512)
OUTPUT_TOKENS = Lengths.fixed(128)
"""The lengths where nothing else is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is sent, by how many clients, and for how long it is looked at.

    In a closed loop (`rate_per_stream` is None) each of `streams` clients sends its next request when its
    last one is finished. In an open loop each of them sends `rate_per_stream` requests a second on average,
    at random moments, whether or not earlier ones are answered.

    `prompts` is how many different prompts (conversations, where `turns` is above 1) there are. They are made
    from the prose that comes with autotune, or from the lines of the JSONL file `source`, of which those
    longer than `prompt_tokens` or `output_tokens` allow are left out; `source_digest` is the SHA-256 of that
    file. The first `shared_prefix_tokens` of each prompt are those of one of `prefix_groups` prefixes.

    `min_window_s` and `max_window_s` bound the measured window of one point. `slos` say which requests are
    served well.
    """

    name: str = "default"
    prompt_tokens: Lengths = PROMPT_TOKENS
    output_tokens: Lengths = OUTPUT_TOKENS
    streams: tuple[int, ...] = (1, 2, 4, 8, 16)
    prompts: int = 64
    seed: int = 0
    min_window_s: float = 8.0
    max_window_s: float = 45.0
    source: str | None = None
    source_digest: str | None = None
    shared_prefix_tokens: int = 0
    prefix_groups: int = 1
    turns: int = 1
    rate_per_stream: float | None = None
    slos: tuple[Slo, ...] = ()

    def __post_init__(self) -> None:
        for name in ("prompts", "prefix_groups", "turns"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1, but is {getattr(self, name)}")
        if not self.streams or min(self.streams) < 1 or sorted(set(self.streams)) != list(self.streams):
            raise ValueError(f"`streams` must be rising counts from 1, but is {list(self.streams)}")
        if not 0 < self.min_window_s <= self.max_window_s:
            raise ValueError(
                f"0 < `min_window_s` <= `max_window_s` must hold, but they are {self.min_window_s} and "
                f"{self.max_window_s}"
            )
        if not 0 <= self.shared_prefix_tokens < self.prompt_tokens.low:
            raise ValueError(
                f"`shared_prefix_tokens` must leave something of the shortest prompt "
                f"({self.prompt_tokens.low} tokens), but is {self.shared_prefix_tokens}"
            )
        if self.rate_per_stream is not None and not 0 < self.rate_per_stream < math.inf:
            raise ValueError(f"`rate_per_stream` must be above 0, but is {self.rate_per_stream}")

    @property
    def shares_prefixes(self) -> bool:
        """Whether its requests have beginnings in common, on purpose: then prefix-cache hits are wanted."""
        return self.shared_prefix_tokens > 0 or self.turns > 1

    @property
    def context_tokens(self) -> int:
        """The context length a server needs to answer the longest request of this workload.

        Each turn of a conversation brings a prompt and an output of its own to those before.
        """
        return (self.prompt_tokens.high + self.output_tokens.high) * self.turns
