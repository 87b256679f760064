"""Proof that a server serves the context it allows: to come up with a length is not to fill it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """`streams` requests at once, each of about the whole context.

    `error` says what went wrong, None when all were answered in full.
    """

    streams: int
    context_tokens: int
    """Prompt and output tokens of the shortest of them, by the server's own count."""
    total_s: float
    """Until the last was answered."""
    error: str | None = None
