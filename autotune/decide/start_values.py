"""From what a start point says of a few settings to the values of all parameters of a space."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from autotune.decide.space.site import Site
from autotune.decide.space.snap import close, ends, snapped
from autotune.decide.start_book import StartBook, Usual, Wish, facts, holds, wished
from autotune.domain.launch import setting_name, settings
from autotune.domain.space import Configuration, Parameter, SearchSpace, TargetKind, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class StartValues:
    """`defaults` are vLLM's own by parameter, whether in its range or not; unknown ones are absent."""

    space: SearchSpace
    book: StartBook
    facts: Mapping[str, Value]
    defaults: Mapping[str, Value]

    @classmethod
    def of(cls, space: SearchSpace, site: Site, book: StartBook) -> "StartValues":
        """Those of `space` on `site`: a fixed value, else what the installed vLLM says, else `book`."""
        fixed, known = settings(space, Configuration()), facts(site)
        defaults = {p.name: _default(p, fixed, site, book, known) for p in space.parameters}
        return cls(
            space=space,
            book=book,
            facts=known,
            defaults={name: value for name, value in defaults.items() if value is not None},
        )

    def full(self, wishes: Mapping[str, Wish]) -> tuple[Configuration, frozenset[str]]:
        """A configuration with what is wished for, by setting or parameter, as far as the space comes close
        to it; and which of the wishes that were. All other parameters are as usual.
        """
        values: dict[str, Value] = {}
        granted: set[str] = set()
        for parameter in self.space.parameters:
            if not self.space.is_active(parameter, values):
                continue
            value = self._usual(parameter)
            for name in {setting_name(parameter.target), parameter.name} & wishes.keys():
                wish = wished(wishes[name], self._names(parameter, value))
                had = None if wish is None else close(parameter.domain, wish)
                if had is not None:
                    value = had
                    granted.add(name)
            if value is not None:
                values[parameter.name] = value
        return Configuration(values=values), frozenset(granted)

    def is_baseline(self, configuration: Configuration) -> bool:
        """Whether it says nothing but what vLLM does by itself."""
        return all(
            name in self.defaults and self.defaults[name] == value
            for name, value in configuration.values.items()
        )

    def _usual(self, parameter: Parameter) -> Value | None:
        """What it is where nothing is said of it, the nearest in its range; None where that is not known."""
        usual = _first(self.book.base, setting_name(parameter.target), self._names(parameter, None))
        if usual is None:
            usual = self.defaults.get(parameter.name)
        return None if usual is None else snapped(parameter.domain, usual)

    def _names(self, parameter: Parameter, usual: Value | None) -> dict[str, Value]:
        """What the value of `parameter` can be made of."""
        names = dict(self.facts)
        if bounds := ends(parameter.domain):
            names["low"], names["high"] = bounds
        if usual is not None:
            names["default"] = usual
        return names


def _default(
    parameter: Parameter,
    fixed: Mapping[str, Value],
    site: Site,
    book: StartBook,
    known: Mapping[str, Value],
) -> Value | None:
    """What a server has that is not told of `parameter`."""
    target, setting = parameter.target, setting_name(parameter.target)
    if setting in fixed:
        return fixed[setting]
    if parameter.omit:
        return parameter.omit[0]
    fact = (site.vllm.flags or {}).get(target.name) if target.kind is TargetKind.FLAG else None
    if fact is not None and fact.default is not None:
        return _read(parameter, fact.default)
    return _first(book.defaults, setting, known)


def _read(parameter: Parameter, text: str) -> Value | None:
    """A default as vLLM's parser tells it; None when it is not of the parameter's kind."""
    if ends(parameter.domain) is None:
        return snapped(parameter.domain, text)
    try:
        number = float(text)
    except ValueError:
        return None
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() else number


def _first(entries: tuple[Usual, ...], setting: str, known: Mapping[str, Value]) -> Value | None:
    """The value of the first entry for `setting` that counts here."""
    for entry in entries:
        if entry.setting == setting and holds(entry.when, known):
            return wished(entry.value, known)
    return None
