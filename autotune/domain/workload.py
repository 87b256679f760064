"""The load every trial is measured under: the same requests for each of them, at each stream count."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A closed loop: each of `streams` clients sends its next request when its last one is finished.

    `prompt_tokens` and `output_tokens` are per request; `prompts` is how many different prompts there are.
    `min_window_s` and `max_window_s` bound the measured window of one point.
    """

    prompt_tokens: int = 512
    output_tokens: int = 128
    streams: tuple[int, ...] = (1, 2, 4, 8, 16)
    prompts: int = 64
    seed: int = 0
    min_window_s: float = 8.0
    max_window_s: float = 45.0

    def __post_init__(self) -> None:
        for name in ("prompt_tokens", "output_tokens", "prompts"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1, but is {getattr(self, name)}")
        if not self.streams or min(self.streams) < 1 or sorted(set(self.streams)) != list(self.streams):
            raise ValueError(f"`streams` must be rising counts from 1, but is {list(self.streams)}")
        if not 0 < self.min_window_s <= self.max_window_s:
            raise ValueError(
                f"0 < `min_window_s` <= `max_window_s` must hold, but they are {self.min_window_s} and "
                f"{self.max_window_s}"
            )

    @property
    def context_tokens(self) -> int:
        """The context length a server needs to answer one request of this workload."""
        return self.prompt_tokens + self.output_tokens
