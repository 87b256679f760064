"""The axis of one parameter: where its values stand, what the ticks say, which parts it has."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from autotune.domain.space import CategoricalDomain, IntDomain, Parameter, Value
from autotune.domain.trial import TrialRecord
from autotune.report.figures.text import folded, shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """The values of `parameter` along a line: categories at 0, 1, 2..., numbers as they are or as log2."""

    parameter: Parameter

    @property
    def categories(self) -> tuple[Value, ...]:
        """Its values where they have no order; empty for a number."""
        domain = self.parameter.domain
        return domain.choices if isinstance(domain, CategoricalDomain) else ()

    def place(self, record: TrialRecord) -> float | None:
        """Where a trial stands; None where it does not set the parameter."""
        value = record.configuration.values.get(self.parameter.name)
        if value is None:
            return None
        if self.categories:
            same = (i for i, c in enumerate(self.categories) if type(c) is type(value) and c == value)
            return next(map(float, same), None)
        return None if isinstance(value, str | bool) else self._scaled(value)

    def ticks(self) -> dict[str, object]:
        """The axis' range and a few short ticks: all categories, or the ends and the middle of a range."""
        if self.categories:
            names = [folded(shown(value), 9) for value in self.categories]
            places = list(range(len(names)))
            return {"tickvals": places, "ticktext": names, "range": [-0.5, len(names) - 0.5]}
        a, b = self._ends()
        middle = (a + b) / 2
        if isinstance(self.parameter.domain, IntDomain):
            middle = self._scaled(round(self._value(round(middle) if self._is_log else middle)))
        places_of = sorted({a, min(max(middle, a), b), b})
        return {
            "tickvals": places_of,
            "ticktext": [f"{self._value(place):.6g}" for place in places_of],
            "range": [a - 0.06 * (b - a), b + 0.06 * (b - a)],
        }

    def parts(self) -> Iterator[tuple[str, float, float]]:
        """Each category, or each third of a range: its name, and from where to where it goes."""
        if self.categories:
            yield from ((shown(value), float(i), float(i)) for i, value in enumerate(self.categories))
            return
        a, b = self._ends()
        for low, high in pairwise([a, a + (b - a) / 3, a + 2 * (b - a) / 3, b]):
            name = f"{self._value(low):.4g} to {self._value(high):.4g}"
            yield name, low, high if high == b else math.nextafter(high, -math.inf)

    @property
    def _is_log(self) -> bool:
        domain = self.parameter.domain
        return not isinstance(domain, CategoricalDomain) and domain.log

    def _ends(self) -> tuple[float, float]:
        domain = self.parameter.domain
        if isinstance(domain, CategoricalDomain):
            return 0.0, len(domain.choices) - 1.0
        return self._scaled(domain.low), self._scaled(domain.high)

    def _scaled(self, value: float) -> float:
        return math.log2(value) if self._is_log else float(value)

    def _value(self, place: float) -> float:
        return 2**place if self._is_log else place
