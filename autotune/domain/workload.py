"""The load every trial is measured under: the same requests for each of them, at each stream count."""

import math
from dataclasses import dataclass, field
from statistics import NormalDist

from autotune.domain.slo import Slo

MAX_TOKENS = 2**24
"""More than any model takes; a mistyped length is not worth the memory of its prompts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Numbers of tokens, from `low` to `high`, both possible; all the same where the two are equal.

    Without a `median` each of them is as likely as the others. With one, and the `sigma` of its logarithm,
    they are log-normal within the bounds: many short and few long ones, as real chats have.
    """

    low: int
    high: int
    median: float | None = None
    sigma: float | None = None

    def __post_init__(self) -> None:
        if self.low < 1:
            raise ValueError(f"must be at least 1, but is {self.low}")
        if self.high < self.low:
            raise ValueError(f"must not end below its beginning, but goes from {self.low} to {self.high}")
        if self.high > MAX_TOKENS:
            raise ValueError(f"must be at most {MAX_TOKENS}, but is {self.high}")
        if (self.median is None) != (self.sigma is None):
            raise ValueError("needs both median and sigma, or neither")
        if self.median is not None and not self.low <= self.median <= self.high:
            raise ValueError(f"needs a median from {self.low} to {self.high}, but it is {self.median:g}")
        if self.sigma is not None and not 0 < self.sigma < math.inf:
            raise ValueError(f"needs a sigma above 0, but it is {self.sigma:g}")

    @classmethod
    def fixed(cls, tokens: int) -> "Lengths":
        """All the same length."""
        return cls(low=tokens, high=tokens)

    def at(self, share: float) -> int:
        """The length that a `share` from 0 up to 1 of all lengths do not reach: 0.5 gives the middle one."""
        if self.median is None or self.sigma is None:
            return min(self.high, self.low + int(share * (self.high - self.low + 1)))
        log_tokens = NormalDist(math.log(self.median), self.sigma)
        ends = math.log(self.low - 0.5), math.log(self.high + 0.5)
        bottom, top = map(log_tokens.cdf, ends)
        within = bottom + share * (top - bottom)
        # Rounding can bring the share to 0 or 1, where a normal distribution has no value.
        exact = log_tokens.inv_cdf(within) if 0 < within < 1 else ends[within >= 1]
        return min(self.high, max(self.low, round(math.exp(min(exact, ends[1])))))

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low} to {self.high}"


PROMPT_TOKENS = Lengths(low=410, high=614)
OUTPUT_TOKENS = Lengths(low=102, high=154)
"""The lengths where nothing else is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is sent, by how many clients, and for how long it is looked at.

    In a closed loop (`rate_per_stream` is None) each of `streams` clients sends its next request when its
    last one is finished. In an open loop each of them sends `rate_per_stream` requests a second on average,
    at random moments, whether or not earlier ones are answered.

    `prompts` is how many different prompts (conversations, where `turns` is above 1) there are. They are made
    from the prose that comes with autotune, or are lines of the JSONL file at the path `source`, of which
    those outside `prompt_tokens` or `output_tokens` are left out; `source_digest` is the SHA-256 of that
    file. Before each prompt, or the first of a conversation, there are `shared_prefix_tokens` more: one of
    `prefix_groups` prefixes. In a conversation `prompt_tokens` and `output_tokens` are what each turn adds.

    `min_window_s` and `max_window_s` bound the measured window of one point. `slos` say which requests are
    served well.

    Two workloads are equal when they send the same: their names and the place of the file do not matter.
    """

    name: str = field(default="default", compare=False)
    prompt_tokens: Lengths = PROMPT_TOKENS
    output_tokens: Lengths = OUTPUT_TOKENS
    streams: tuple[int, ...] = (1, 2, 4, 8, 16)
    prompts: int = 64
    seed: int = 0
    min_window_s: float = 8.0
    max_window_s: float = 45.0
    source: str | None = field(default=None, compare=False)
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
        if self.rate_per_stream is not None and not 0 < self.rate_per_stream < math.inf:
            raise ValueError(f"`rate_per_stream` must be above 0, but is {self.rate_per_stream}")
        self._check_shape()

    def _check_shape(self) -> None:
        if not 0 <= self.shared_prefix_tokens <= MAX_TOKENS:
            raise ValueError(
                f"`shared_prefix_tokens` must be from 0 to {MAX_TOKENS}, but is {self.shared_prefix_tokens}"
            )
        if self.source is not None and self.shares_prefixes:
            raise ValueError("`source` gives whole prompts: drop it, or `shared_prefix_tokens` and `turns`")
        if self.rate_per_stream is not None and self.turns > 1:
            raise ValueError(
                "`rate_per_stream` cannot be kept with `turns`: a turn waits for the last answer"
            )

    @property
    def shares_prefixes(self) -> bool:
        """Whether its requests have beginnings in common on purpose: prefix-cache hits are wanted then."""
        return self.shared_prefix_tokens > 0 or self.turns > 1

    @property
    def context_tokens(self) -> int:
        """The context length a server needs to answer the longest request of this workload.

        Each turn of a conversation brings a prompt and an output of its own to those before.
        """
        turn = self.prompt_tokens.high + self.output_tokens.high
        return self.shared_prefix_tokens + turn * self.turns
