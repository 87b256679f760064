"""Limits as they are written and read, and what it is to keep one."""

from dataclasses import replace

import pytest
from builders import point
from hypothesis import assume, given
from hypothesis import strategies as st

from autotune.domain.measurement import Quantiles
from autotune.domain.metric import METRICS
from autotune.domain.metric_limit import MetricLimit, instead, parse_metric_limits
from autotune.domain.objective import Objective
from autotune.errors import UserError


@pytest.mark.parametrize(
    ("text", "bound", "shown"),
    [
        ("ttft_p95@4<=2s", 2.0, "ttft_p95@4<=2s"),
        (" tpot_p50@16 <= 12.5 ms ", 0.0125, "tpot_p50@16<=12.5ms"),
        ("e2e_p99@1<=1m 30s", 90.0, "e2e_p99@1<=90s"),
        ("out_tok_s@1>=50", 50.0, "out_tok_s@1>=50"),
        ("req_s@8 >= 0.25", 0.25, "req_s@8>=0.25"),
        ("slo_attainment@8>=0.95", 0.95, "slo_attainment@8>=0.95"),
        ("out_tok_s@1>=1e3", 1000.0, "out_tok_s@1>=1000"),
    ],
)
def test_known_texts(text: str, bound: float, shown: str) -> None:
    limit = MetricLimit.parse(text)
    assert limit.bound == bound
    assert str(limit) == shown


BOUNDS = st.floats(min_value=0, exclude_min=True, allow_infinity=False)


@given(st.sampled_from(list(METRICS)), st.integers(min_value=1, max_value=999_999), BOUNDS)
def test_what_is_written_is_read_again_to_the_last_digit(metric: str, streams: int, bound: float) -> None:
    assume(bound <= 1 or METRICS[metric].unit != "share")
    limit = MetricLimit(measured=Objective(metric=metric, streams=streams), bound=bound)
    assert MetricLimit.parse(str(limit)) == limit


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "write METRIC@STREAMS<=VALUE"),
        ("ttft_p95@4", "with the quotes, since a shell takes < and > for itself"),
        ("ttft_p95@4=2s", "write METRIC@STREAMS<=VALUE"),
        ("ttft_p95@4<2s", "write METRIC@STREAMS<=VALUE"),
        ("ttft_p95@4<=", "write METRIC@STREAMS<=VALUE"),
        ("1s<=ttft_p95@4<=2s", "write METRIC@STREAMS<=VALUE"),
        ("ttft@4<=2s", "'ttft' is no metric; choose from"),
        ("ttft_p95<=2s", "write METRIC@STREAMS, for example ttft_p95@8"),
        ("ttft_p95@0<=2s", "write METRIC@STREAMS, for example ttft_p95@8"),
        ("ttft_p95@4>=2s", "ttft_p95 is better lower, so write <="),
        ("out_tok_s@4<=50", "out_tok_s is better higher, so write >="),
        ("ttft_p95@4<=2", "2 has no unit"),
        ("ttft_p95@4<=0ms", "must be above 0"),
        ("ttft_p95@4<=-1s", "'-1s' is not a duration"),
        ("out_tok_s@4>=fast", r"'fast' is no number; write it without its unit \(tok/s\)"),
        ("out_tok_s@4>=50 tok/s", "'50 tok/s' is no number"),
        ("out_tok_s@4>=nan", "'nan' is no number"),
        ("out_tok_s@4>=५", "is no number"),
        ("out_tok_s@4>=1_000", "is no number"),
        ("out_tok_s@4>=0", "must be above 0 and finite, but is 0.0"),
        ("out_tok_s@4>=1e999", "must be above 0 and finite, but is inf"),
        ("slo_attainment@4>=95", "slo_attainment is a share, at most 1, but the limit is 95.0"),
    ],
)
def test_refused_in_one_sentence_that_names_it(text: str, says: str) -> None:
    with pytest.raises(UserError, match=says) as raised:
        MetricLimit.parse(text)
    assert str(raised.value).startswith(f"limit {text!r}: ")
    assert "\n" not in str(raised.value)


def test_two_limits_for_the_same_are_refused() -> None:
    texts = ["ttft_p95@4<=2s", "ttft_p95@8<=4s", "ttft_p99@4<=4s"]
    assert [str(limit) for limit in parse_metric_limits(texts)] == texts
    with pytest.raises(UserError, match=r"second limit for ttft_p95@4"):
        parse_metric_limits([*texts, "ttft_p95@4<=3s"])


def test_what_is_asked_for_goes_before_what_is_kept() -> None:
    kept = parse_metric_limits(["ttft_p95@4<=2s", "out_tok_s@1>=50"])
    asked = parse_metric_limits(["ttft_p95@4<=3s"])
    assert list(map(str, instead(kept, asked))) == ["ttft_p95@4<=3s", "out_tok_s@1>=50"]
    assert instead(kept, ()) == kept


def test_the_limit_itself_is_kept_and_more_is_a_share_of_it() -> None:
    latency, rate = parse_metric_limits(["ttft_p50@8<=2s", "out_tok_s@8>=50"])
    assert (latency.excess(2.0), latency.excess(2.6)) == (0.0, pytest.approx(0.3))
    assert (rate.excess(50.0), rate.excess(40.0), rate.excess(0.0)) == (0.0, pytest.approx(0.2), 1.0)
    assert latency.keeps(2.0)
    assert not latency.keeps(2.1)
    assert rate.keeps(51.0)
    assert not rate.keeps(49.0)


def test_a_violation_needs_a_value() -> None:
    limit = MetricLimit.parse("ttft_p95@8<=2s")
    few, many = (replace(point(8, 50.0), ttft_s=Quantiles(n=n, p50=1.0, p95=3.0)) for n in (129, 130))
    assert limit.violation((few,)) is None
    assert limit.violation((replace(many, streams=4),)) is None
    assert limit.violation((many,)) == pytest.approx(0.5)
