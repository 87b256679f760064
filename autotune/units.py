"""Durations, sizes and rates as people write and read them; inside autotune they are seconds, bytes and
units per second. Text that cannot be read is a ValueError whose message is a sentence for the user.
"""

import math
import re
from decimal import Decimal

_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_BYTES = {
    "B": 1,
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
    "TiB": 1024**4,
    "kB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
}
_DURATION = re.compile(
    r"\s*".join(rf"(?:(?P<{unit}>\d+(?:\.\d+)?)\s*{unit})?" for unit in _SECONDS), re.ASCII
)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)", re.ASCII)


def parse_duration(text: str) -> float:
    """Seconds in `text`: `90s`, `10m`, `1.5h`, `1h30m`, `2d`; more than 0 and finite.

    A unit is required, because 45 could be seconds or minutes. Raises ValueError.
    """
    match = _DURATION.fullmatch(text.strip())
    parts = {unit: float(n) for unit, n in match.groupdict().items() if n} if match else {}
    seconds = sum(n * _SECONDS[unit] for unit, n in parts.items())
    if not parts:
        bare = re.fullmatch(r"\d+(?:\.\d+)?", text.strip(), re.ASCII)
        need = f"{text.strip()} has no unit" if bare else f"{text!r} is not a duration"
        raise ValueError(f"{need}; write it like 90s, 10m, 1.5h or 1h30m")
    if not 0 < seconds < math.inf:
        raise ValueError(f"a duration must be above 0 and finite, but {text!r} is not")
    return seconds


def parse_time(text: str) -> float:
    """Seconds in `text`: `500ms`, and all that `parse_duration` reads. Raises ValueError.

    `format_exact_time` gives the same text again.
    """
    text = text.strip()
    if not text.endswith("ms"):
        return parse_duration(text)
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?\s*ms", text):
        raise ValueError(f"{text!r} is not a duration; write it like 500ms or 2s")
    # In decimal: 1.1 / 1000 is not the number that 0.0011 is.
    return float(Decimal(text.removesuffix("ms").strip()) / 1000)


def format_exact_time(seconds: float) -> str:
    """`2s`, `500ms`: as `parse_time` reads it, to the last digit."""
    exact = Decimal(repr(seconds))
    number, unit = (exact, "s") if seconds >= 1 else (exact * 1000, "ms")
    digits = f"{number:f}"
    return (digits.rstrip("0").rstrip(".") if "." in digits else digits) + unit


def format_duration(seconds: float) -> str:
    """`1 h 05 min`, `4 min 10 s`, `42 s`, `8.2 s`, `250 ms`: two units at most, rounded.

    Raises ValueError for what is no duration: below 0, or not finite.
    """
    if not 0 <= seconds < math.inf:
        raise ValueError(f"a duration must be at least 0 and finite, but is {seconds}")
    if seconds == 0:
        return "0 s"
    # Each bound is where rounding reaches the next form, so that 59.7 s is not shown as `60 s`.
    if seconds < 0.9995:
        return f"{seconds * 1000:.1f} ms" if seconds < 0.00995 else f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    if seconds < 3599.5:
        return "{} min {:02} s".format(*divmod(round(seconds), 60))
    return "{} h {:02} min".format(*divmod(round(seconds / 60), 60))


def parse_bytes(text: str) -> int:
    """Bytes in `text`: `24GiB`, `512 MiB`, `80GB` (powers of 1000), `4096B`. Raises ValueError."""
    match = _SIZE.fullmatch(text.strip())
    if not match or match[2] not in _BYTES:
        raise ValueError(f"{text!r} is not a size; write it like 24GiB, 512MiB or 80GB")
    size = float(match[1]) * _BYTES[match[2]]
    if not size < math.inf:
        raise ValueError(f"a size must be finite, but {text!r} is not")
    return round(size)


def format_bytes(size_bytes: float) -> str:
    """`23.6 GiB`, `512.0 MiB`, `0 B`: the largest binary unit that leaves at least 1, one decimal."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if abs(size_bytes) >= _BYTES[unit]:
            return f"{size_bytes / _BYTES[unit]:.1f} {unit}"
    return f"{size_bytes:.0f} B"


def format_rate(per_s: float, what: str = "tok") -> str:
    """`1134 tok/s`, `89.3 tok/s`, `0.42 req/s`: about three figures, never with an exponent."""
    decimals = 0 if abs(per_s) >= 99.95 else 1 if abs(per_s) >= 9.995 else 2
    return f"{per_s:.{decimals}f} {what}/s"
