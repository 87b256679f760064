"""The texts of a rule with values in place: `{name}` is a value, and `[...]` goes unless its names have one.

max_model_len at most {estimated_len}[; gpu_memory_utilization was {gpu_memory_utilization}]
"""

import re
from collections.abc import Mapping

Value = float | str

_NAME = re.compile(r"\{(\w+)\}")
_OPTIONAL = re.compile(r"\[([^\[\]]*)\]")


def fill(template: str, values: Mapping[str, Value]) -> str:
    """`template` with its values; a name outside brackets that has none stays as it is written."""

    def put(name: re.Match[str]) -> str:
        return show(values[name[1]]) if name[1] in values else name[0]

    def part(optional: re.Match[str]) -> str:
        return optional[1] if all(name in values for name in _NAME.findall(optional[1])) else ""

    return _NAME.sub(put, _OPTIONAL.sub(part, template))


def names(template: str) -> tuple[frozenset[str], frozenset[str]]:
    """The names that `template` always needs, and those inside brackets."""
    outside = frozenset(_NAME.findall(_OPTIONAL.sub("", template)))
    inside = frozenset(name for part in _OPTIONAL.findall(template) for name in _NAME.findall(part))
    return outside, inside


def show(value: Value) -> str:
    """A number without a needless fraction, a text as it is."""
    if isinstance(value, str):
        return value
    return str(int(value)) if value == int(value) else f"{value:.3f}".rstrip("0").rstrip(".")


_BINARY_UNITS = {"KiB": 1 / 1024**2, "MiB": 1 / 1024, "GiB": 1.0, "TiB": 1024.0}


def read_value(name: str, text: str) -> Value:
    """The number that `text` is, else `text`; for a name that ends in `_gib` in GiB, whatever its unit."""
    number, _, unit = text.strip().replace(",", "").partition(" ")
    factor = _BINARY_UNITS.get(unit) if name.endswith("_gib") and unit else 1.0
    try:
        return float(number) * factor if factor is not None and (not unit or name.endswith("_gib")) else text
    except ValueError:
        return text.strip()
