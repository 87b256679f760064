"""Where a search begins: the author's own start points, experts' configurations, and flips of one setting.

A start point is given in full wherever that is possible: a setting it does not speak of has the value that
vLLM gives it by itself, said aloud. That is the same server, and a better lesson: the sampler learns of a
group of parameters only from trials that set all of it. Only where vLLM's own value is not known is a
parameter left out, by every start point that does not speak of it.

In two ways a start point is not as vLLM would have it. Its context is as long as needed and no longer
(`[[base]]` in the data): all that the model was made for, which is the default, often does not fit, and a
flip of what cannot run is worth nothing. And a default outside the range is the nearest inside: with 16
streams it makes no difference whether 256 sequences may run or 1024. What then comes to the baseline itself
is left out, since that is trial 0.
"""

from collections.abc import Iterator

from autotune.decide.space.site import Site
from autotune.decide.start_book import Flip, StartBook, holds
from autotune.decide.start_values import StartValues
from autotune.domain.launch import server_args, setting_name
from autotune.domain.space import Configuration, SearchSpace, Value
from autotune.domain.start import StartPoint
from autotune.domain.trial import Origin

MOST = 13
"""Start points beside the author's own. 3 experts and 10 flips brought simulated studies of an hour to 93 %
of the best, the default alone to 71 %; each further one takes a launch from the search."""


def start_points(space: SearchSpace, site: Site, book: StartBook) -> tuple[StartPoint, ...]:
    """The author's own, then experts and flips in the order of `book`, at most `MOST` of these.

    Each is a configuration of `space` that keeps its constraints. No two start the same server, and none the
    baseline's. Raises ExpressionError when a `when` or a constraint of `space` cannot be evaluated.
    """
    values = StartValues.of(space, site, book)
    seen: set[object] = {server_args(space, Configuration()).words}
    own = tuple(_new(_own(values), values, seen))
    return (*own, *tuple(_new(_shipped(values), values, seen))[:MOST])


def _new(points: Iterator[StartPoint], values: StartValues, seen: set[object]) -> Iterator[StartPoint]:
    """Those of `points` that are neither the baseline nor `seen` before."""
    for point in points:
        words = server_args(values.space, point.configuration).words
        if words not in seen and not values.is_baseline(point.configuration):
            seen.add(words)
            yield point


def _own(values: StartValues) -> Iterator[StartPoint]:
    """Those of the space's author in full; as they stand where the rest would break a constraint."""
    for start in values.space.starts:
        given = start.configuration
        full, _ = values.full(given.values)
        as_given = values.space.violated(full) is not None or not given.values.items() <= full.values.items()
        yield StartPoint(
            configuration=given if as_given else full,
            origin=Origin.EXPERT,
            why=f"{start.name}: {start.why}" if start.why else start.name,
        )


def _shipped(values: StartValues) -> Iterator[StartPoint]:
    for expert in values.book.experts:
        if holds(expert.when, values.facts):
            configuration, granted = values.full(expert.settings)
            if granted and expert.needs <= granted and values.space.violated(configuration) is None:
                why = f"{expert.name}: {expert.why}"
                yield StartPoint(configuration=configuration, origin=Origin.EXPERT, why=why)
    base, _ = values.full({})
    for flip in values.book.flips:
        if holds(flip.when, values.facts):
            yield from _flips(values, flip, base)


def _flips(values: StartValues, flip: Flip, base: Configuration) -> Iterator[StartPoint]:
    """One for each value that the space has and that the base has not."""
    for wish in flip.values:
        configuration, granted = values.full({**flip.also, flip.setting: wish})
        changed = _changed(values.space, flip.setting, configuration, base)
        if flip.setting in granted and changed and values.space.violated(configuration) is None:
            yield StartPoint(
                configuration=configuration, origin=Origin.FLIP, why=f"{', '.join(changed)}: {flip.why}"
            )


def _changed(
    space: SearchSpace, setting: str, configuration: Configuration, base: Configuration
) -> list[str]:
    """The parameters for `setting` that are not as in `base`, each with its value."""
    return [
        f"{parameter.name} = {_shown(configuration.values[parameter.name])}"
        for parameter in space.parameters
        if setting in (parameter.name, setting_name(parameter.target))
        and parameter.name in configuration.values
        and configuration.values[parameter.name] != base.values.get(parameter.name)
    ]


def _shown(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
