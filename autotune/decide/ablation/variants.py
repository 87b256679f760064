"""The winner with one of its settings back at the default: which ones there are, and which need no launch."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from autotune.domain.launch import server_args
from autotune.domain.refusal import Refusal
from autotune.domain.space import Configuration, SearchSpace, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """The winner without the parameter `setting`, and without `along`: what takes part through it alone.

    `left_out` is why it is not to be launched; None where it may be.
    """

    setting: str
    value: Value
    along: tuple[str, ...]
    configuration: Configuration
    left_out: str | None = None


def without(space: SearchSpace, winner: Configuration, names: Collection[str]) -> Configuration:
    """`winner` with these parameters, and those that only take part because of them, back at the default."""
    kept: dict[str, Value] = {}
    for parameter in space.parameters:
        if parameter.name in names or parameter.name not in winner.values:
            continue
        if space.is_active(parameter, kept):
            kept[parameter.name] = winner.values[parameter.name]
    return Configuration(values=kept)


def variants(
    space: SearchSpace,
    winner: Configuration,
    refuses: Callable[[Configuration], Refusal | None] = lambda _: None,
) -> Sequence[Variant]:
    """One for each parameter by which `winner` says something to vLLM, in the order of the space.

    None of them breaks a constraint of the space that `winner` keeps: one on an absent parameter is kept.
    """
    found: list[Variant] = []
    said = {server_args(space, winner).words}
    by_words: dict[object, str] = {}
    for name in (parameter.name for parameter in space.parameters if parameter.name in winner.values):
        configuration = without(space, winner, [name])
        words = server_args(space, configuration).words
        if words in said:
            continue
        gone = winner.values.keys() - configuration.values.keys() - {name}
        variant = Variant(
            setting=name,
            value=winner.values[name],
            along=tuple(other.name for other in space.parameters if other.name in gone),
            configuration=configuration,
        )
        why, refusal = None, refuses(configuration)
        if words in by_words:
            why = f"without it vLLM is started as it is without {by_words[words]}"
        elif refusal is not None:
            why = f"the rest would fail without it: {refusal.why}"
        by_words.setdefault(words, name)
        found.append(replace(variant, left_out=why))
    return found
