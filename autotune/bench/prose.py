"""The text that comes with autotune: speculation and prefix caching do something else on noise."""

import random
from collections.abc import Iterator
from importlib import resources


def passages() -> tuple[str, ...]:
    """The passages of the prose that comes with autotune."""
    text = resources.files("autotune").joinpath("prompts", "prose.txt").read_text(encoding="utf-8")
    return tuple(text.strip().split("\n\n"))


def prompt_text(prose: tuple[str, ...], seed: int, index: int, min_chars: int) -> str:
    """Text number `index`, at least `min_chars` long; a longer one begins with the shorter one.

    Texts begin with different passages for as long as there are enough of them, and a text repeats none
    before it has had them all.
    """
    chosen: list[str] = []
    length = 0
    for passage in _shuffled(prose, seed, index):
        chosen.append(passage)
        length += len(passage) + 2
        if length - 2 >= min_chars:
            break
    return "\n\n".join(chosen)


def _shuffled(prose: tuple[str, ...], seed: int, index: int) -> Iterator[str]:
    """All passages in an order that `seed` and `index` decide, again and again."""
    first = random.Random(f"{seed}").sample(prose, len(prose))[index % len(prose)]  # noqa: S311 - the same in every trial
    yield first
    rng = random.Random(f"{seed}-{index}")  # noqa: S311 - the same in every trial
    yield from rng.sample(rest := [p for p in prose if p != first], len(rest))
    while True:
        yield from rng.sample(prose, len(prose))
