"""A configuration that becomes smaller by a few settings at a time: in which order, and what "off" means."""

from collections.abc import Iterable

from autotune.domain.space import (
    CategoricalDomain,
    Configuration,
    FloatDomain,
    IntDomain,
    Parameter,
    SearchSpace,
    Value,
)
from autotune.domain.trial import TrialRecord


class Reduction:
    """The configuration as it becomes smaller, and the order in which its settings are suspected."""

    def __init__(self, space: SearchSpace, failed: Configuration, records: Iterable[TrialRecord]) -> None:
        self._space = space
        self._worked = [r.configuration.values for r in records if r.works]
        self._asked: set[tuple[str, ...]] = set()
        self.current = failed
        self.needed = [p.name for p in space.parameters if self._is_set(p)]
        self.tested: set[str] = set()
        self._numbers = tuple(name for name in self.needed if _is_number(space.parameter(name)))

    def _is_set(self, parameter: Parameter) -> bool:
        value = self.current.values.get(parameter.name)
        return value is not None and not _among(value, parameter.omit)

    def next_group(self) -> tuple[str, ...] | None:
        """What to switch off next: all numbers at once, since a conflict is seldom one of numbers; then one
        mode after another, those that depend on others last; then the numbers one by one."""
        needed = [self._space.parameter(name) for name in self.needed]
        modes = sorted((p for p in needed if not _is_number(p)), key=lambda p: p.when is not None)
        numbers = [p for p in needed if _is_number(p)]
        groups = [self._numbers, *((p.name,) for p in (*modes, *numbers))]
        return next((group for group in groups if group and group not in self._asked), None)

    def without(self, group: tuple[str, ...]) -> Configuration | None:
        """The current configuration with `group` switched off; None when there is no such configuration."""
        values = dict(self.current.values)
        for name in group:
            parameter = self._space.parameter(name)
            instead = self._instead(parameter, values[name])
            if instead is not None:
                values[name] = instead
            elif parameter.when is None:
                del values[name]
        kept: dict[str, Value] = {}
        for parameter in self._space.parameters:  # what depends on something switched off goes with it
            if parameter.name in values and self._space.is_active(parameter, kept):
                kept[parameter.name] = values[parameter.name]
        candidate = Configuration(values=kept)
        unchanged = candidate == self.current
        return None if unchanged or self._space.violated(candidate) else candidate

    def leave_off(self, group: tuple[str, ...], candidate: Configuration) -> None:
        """`group` has no part in it."""
        self._asked.add(group)
        self.current = candidate
        self.needed = [name for name in self.needed if name not in group and name in candidate.values]

    def put_back(self, group: tuple[str, ...], *, tested: bool) -> None:
        """`group` may have a part in it."""
        self._asked.add(group)
        if tested and len(group) == 1:
            self.tested.update(group)

    def _instead(self, parameter: Parameter, value: Value) -> Value | None:
        """Another value; None to leave the parameter out, so that vLLM's default applies."""
        if parameter.omit:
            return parameter.omit[0]
        match parameter.domain:
            case IntDomain(low=low, high=high) | FloatDomain(low=low, high=high):
                # What depends on another setting is most often required by it, so it is changed instead.
                return None if parameter.when is None else (low if value != low else high)
            case CategoricalDomain(choices=choices):
                if parameter.when is None and _is_number(parameter):
                    return None
                others = [choice for choice in choices if not _among(value, (choice,))]
                proven = [c for c in others if any(_same(w.get(parameter.name), c) for w in self._worked)]
                return next(iter(proven or others), None)


def _is_number(parameter: Parameter) -> bool:
    domain = parameter.domain
    if not isinstance(domain, CategoricalDomain):
        return True
    return all(isinstance(choice, int | float) and not isinstance(choice, bool) for choice in domain.choices)


def _among(value: Value, values: Iterable[Value]) -> bool:
    return any(_same(value, other) for other in values)


def _same(one: Value | None, other: Value) -> bool:
    return type(one) is type(other) and one == other
