"""What people type and read for durations, sizes and rates."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.units import format_bytes, format_duration, format_rate, parse_bytes, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("10m", 600),
        ("4h", 14400),
        ("1.5h", 5400),
        ("1h30m", 5400),
        ("1h 30m 5s", 5405),
        (" 2d ", 172800),
        ("0.5s", 0.5),
    ],
)
def test_a_duration_is_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("45", "45 has no unit; write it like 90s, 10m, 1.5h or 1h30m"),
        ("4 hours please", "'4 hours please' is not a duration; write it like 90s, 10m, 1.5h or 1h30m"),
        ("", "'' is not a duration"),
        ("10m5", "is not a duration"),
        ("30m1h", "is not a duration"),
        ("1h2h", "is not a duration"),
        ("-1h", "is not a duration"),
        ("nan", "is not a duration"),
        ("٣m", "is not a duration"),
        ("0s", "must be above 0"),
        ("9" * 400 + "h", "must be above 0 and finite"),
    ],
)
def test_what_is_no_duration_is_refused_with_a_sentence(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=r".+") as caught:
        parse_duration(text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.0012, "1.2 ms"),
        (0.25, "250 ms"),
        (0.9996, "1.0 s"),
        (8.2, "8.2 s"),
        (9.96, "10 s"),
        (42.4, "42 s"),
        (59.7, "1 min 00 s"),
        (250, "4 min 10 s"),
        (3599.6, "1 h 00 min"),
        (3900, "1 h 05 min"),
        (90000, "25 h 00 min"),
    ],
)
def test_a_duration_is_shown(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_what_is_no_duration_is_not_shown_as_one(seconds: float) -> None:
    with pytest.raises(ValueError, match="at least 0 and finite"):
        format_duration(seconds)


@given(st.floats(min_value=1, max_value=10**7))
def test_a_shown_duration_reads_back_to_within_its_rounding(seconds: float) -> None:
    shown = format_duration(seconds)
    read = parse_duration(shown.replace("min", "m"))
    rounding = 0.05 if seconds < 10 else 0.5 if seconds < 3600 else 30
    assert abs(read - seconds) <= rounding + 1e-6


@given(st.floats(min_value=0, max_value=10**7), st.floats(min_value=0, max_value=10**7))
def test_a_longer_duration_never_shows_as_a_shorter_one(a: float, b: float) -> None:
    def shown_s(seconds: float) -> float:
        text = format_duration(seconds)
        if text.endswith("ms"):
            return float(text.removesuffix(" ms")) / 1000
        return parse_duration(text.replace("min", "m")) if seconds else 0.0

    low, high = sorted((a, b))
    assert shown_s(low) <= shown_s(high)


@pytest.mark.parametrize(
    ("text", "size"),
    [("24GiB", 24 * 1024**3), ("1.5 MiB", 1572864), ("80GB", 80_000_000_000), ("4096B", 4096)],
)
def test_a_size_is_read(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["24", "24G", "GiB", "-1GiB", "1 GiB extra", "9" * 400 + "TiB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="size"):
        parse_bytes(text)


@given(st.integers(min_value=0, max_value=2**50))
def test_a_shown_size_reads_back_to_within_its_rounding(size: int) -> None:
    unit = parse_bytes("1" + format_bytes(size).split()[1])
    assert abs(parse_bytes(format_bytes(size)) - size) <= 0.05 * unit + 1


def test_sizes_and_rates_are_shown() -> None:
    assert format_bytes(0) == "0 B"
    assert format_bytes(24 * 1024**3) == "24.0 GiB"
    assert format_rate(1134.4) == "1134 tok/s"
    assert format_rate(89.31) == "89.3 tok/s"
    assert format_rate(99.97) == "100 tok/s"
    assert format_rate(0.42, "req") == "0.42 req/s"
