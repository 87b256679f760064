"""Service-level objectives as they are written and read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain.slo import PERCENTILES, Latency, Slo, parse_slos
from autotune.errors import UserError


@pytest.mark.parametrize(
    ("text", "limit_s", "shown"),
    [
        ("ttft_p95=2s", 2.0, "ttft_p95=2s"),
        ("ttft_p95=500ms", 0.5, "ttft_p95=500ms"),
        (" tpot_p99 <= 12.5 ms ", 0.0125, "tpot_p99=12.5ms"),
        ("e2e_p50=1m30s", 90.0, "e2e_p50=90s"),
        ("e2e_p90=0.25s", 0.25, "e2e_p90=250ms"),
    ],
)
def test_known_texts(text: str, limit_s: float, shown: str) -> None:
    slo = Slo.parse(text)
    assert slo.limit_s == limit_s
    assert str(slo) == shown


@given(
    st.builds(
        Slo,
        latency=st.sampled_from(Latency),
        percentile=st.sampled_from(PERCENTILES),
        limit_s=st.floats(min_value=1e-9, max_value=1e9),
    )
)
def test_what_is_written_is_read_again_to_the_last_digit(slo: Slo) -> None:
    assert Slo.parse(str(slo)) == slo


WRONG = ["", "ttft", "ttft_p95", "ttft_p95=", "ttft_p95=2", "ttft_p95=0s", "ttft_p95=0ms", "ttft_p95=-1s"]
WRONG += ["ttft_p80=2s", "itl_p95=2s", "ttft=2s", "ttft_p95=2 parsecs", "ttft_p95=२s", "ttft_p95=ms"]
WRONG += ["ttft_p" + "9" * 5000 + "=2s", "ttft_p95=" + "9" * 400 + "s", "ttft_p95=" + "9" * 400 + "ms"]


@pytest.mark.parametrize("text", WRONG)
def test_refused_with_an_example(text: str) -> None:
    with pytest.raises(UserError, match="SLO"):
        Slo.parse(text)


def test_two_limits_for_the_same_are_refused() -> None:
    assert [str(slo) for slo in parse_slos(["ttft_p95=2s", "ttft_p99=4s"])] == ["ttft_p95=2s", "ttft_p99=4s"]
    with pytest.raises(UserError, match="second limit for ttft_p95"):
        parse_slos(["ttft_p95=2s", "ttft_p95=3s"])


@pytest.mark.parametrize(("percentile", "limit_s"), [(80, 1.0), (95, 0.0), (95, float("nan"))])
def test_no_objective_without_sense(percentile: int, limit_s: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        Slo(latency=Latency.TTFT, percentile=percentile, limit_s=limit_s)
