"""Reads an object of vLLM's configuration as scalars under the names of their paths."""

from __future__ import annotations

import enum
import hashlib
import json
import math
import pathlib
import re
import types
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Scalar = bool | int | float | str
    Names = tuple[str, ...]

_SECRET = re.compile(r"(^|_)(key|token|secret|password)$", re.IGNORECASE)
# A configuration has some 400 entries, 1500 with a draft model's; a runaway structure has any number.
_MAX_ENTRIES = 20_000
_MAX_TEXT = 300
# An attribute that is None is as good as none; in a container it counts.
_NONE = "<None>"


class Reading:
    """What was read so far; `opaque` has the names of what is neither a scalar nor made of any."""

    def __init__(self) -> None:
        self.values: dict[Names, Scalar] = {}
        self.opaque: list[Names] = []
        self._met: dict[int, tuple[object, Names]] = {}

    def read(self, parts: Mapping[str, object], below: Names = ()) -> Reading:
        """Take in `parts` and all that is below them. An attribute that is None adds nothing.

        Anything that is not a scalar adds its type too; what is met again, where it was met first.
        """
        for name, value in parts.items():
            self._take(value, (*below, name))
        return self

    def _take(self, value: object, names: Names) -> None:
        leaf = _leaf(value)
        if leaf is not None:
            secret = any(map(_SECRET.search, names))
            self.values[names] = _digest(str(leaf)) if secret else leaf
        elif value is not None:
            parts = _parts(value)
            if parts is None or len(self.values) > _MAX_ENTRIES:
                self.opaque.append(names)
            elif id(value) in self._met:
                self.values[names] = "@" + ".".join(self._met[id(value)][1])
            else:
                self._met[id(value)] = value, names  # kept, or its id could become another one's
                self.values[names] = type(value).__name__
                self.read(parts, names)


def folded(values: Iterable[tuple[Names, Scalar]]) -> dict[str, Scalar]:
    """The same with names of two parts, and below those one text for all; a long one as its digest."""
    flat: dict[str, Scalar] = {}
    below: dict[str, dict[str, Scalar]] = {}
    for names, value in values:
        if len(names) <= 2:
            flat[".".join(names)] = value
        else:
            below.setdefault(".".join(names[:2]), {})[".".join(names[2:])] = value
    for name, inner in below.items():
        text = f"{flat.get(name)} {json.dumps(inner, sort_keys=True)}"
        flat[name] = text if len(text) <= _MAX_TEXT else _digest(text)
    return flat


def _digest(text: str) -> str:
    """A text that is equal for equal texts, and says nothing else of them."""
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()[:24]


def _leaf(value: object) -> Scalar | None:
    """`value` as a scalar, where it is one or is fully told by a text."""
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else str(value)
    if isinstance(value, type) or (isinstance(value, types.FunctionType) and value.__closure__ is None):
        return f"{value.__module__}.{value.__qualname__}"
    torch = type(value).__module__ == "torch" and type(value).__name__ in ("device", "dtype")
    return str(value) if torch or isinstance(value, pathlib.PurePath) else None


def _parts(value: object) -> Mapping[str, object] | None:
    """What `value` is made of; None where that cannot be listed."""
    if isinstance(value, dict):
        return {str(name): _NONE if part is None else part for name, part in value.items()}
    if isinstance(value, (set, frozenset)):
        value = sorted(value, key=repr)
    if isinstance(value, (list, tuple)):
        return {str(place): _NONE if part is None else part for place, part in enumerate(value)}
    if isinstance(value, (types.ModuleType, types.FunctionType)):
        return None
    parts: Mapping[str, object] | None = getattr(value, "__dict__", None)
    return parts
