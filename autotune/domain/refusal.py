"""Why a configuration was not launched: what could be known of it without."""

from dataclasses import dataclass
from enum import StrEnum


class Grounds(StrEnum):
    """What refused it, in the order in which they are asked."""

    LESSON = "lesson"
    """A failure of this study, or of an earlier one, forbids it."""
    MEMORY = "memory"
    """Weights and KV cache would need more memory than there is."""
    VLLM = "vllm"
    """The installed vLLM itself does not take it."""
    TWIN = "twin"
    """The installed vLLM makes the same of it as of one that was tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """`why` is a sentence that names the lesson, the sizes, vLLM's own words or the other trial."""

    grounds: Grounds
    why: str
