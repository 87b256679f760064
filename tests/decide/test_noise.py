"""Student's t, and the noise of repeated launches."""

import math
from dataclasses import replace
from statistics import stdev

import pytest
from builders import failed, measured, record
from hypothesis import given
from hypothesis import strategies as st

from autotune.decide.noise import Noise, neighbour_noise, noise_of, prior_noise, variation
from autotune.decide.student import t_cdf, t_quantile
from autotune.domain.trial import Origin, TrialRecord


@pytest.mark.parametrize(
    ("probability", "df", "value"),
    [  # from printed tables
        (0.975, 1, 12.7062),
        (0.975, 2, 4.3027),
        (0.99, 2, 6.9646),
        (0.9995, 4, 8.6103),
        (0.975, 10, 2.2281),
        (0.975, 1000, 1.9623),
    ],
)
def test_quantiles_are_those_of_the_tables(probability: float, df: int, value: float) -> None:
    assert t_quantile(probability, df) == pytest.approx(value, abs=5e-5)
    assert t_quantile(1 - probability, df) == pytest.approx(-value, abs=5e-5)


@given(st.floats(0.001, 0.999), st.floats(0.5, 200))
def test_the_quantile_is_where_the_distribution_has_that_probability(probability: float, df: float) -> None:
    # Next to the middle the beta function rounds its argument to 1, and half of the digits are lost.
    assert t_cdf(t_quantile(probability, df), df) == pytest.approx(probability, abs=1e-7)


def test_what_is_no_probability_is_refused() -> None:
    for probability in (0.0, 1.0, -0.1):
        with pytest.raises(ValueError, match="between 0 and 1"):
            t_quantile(probability, 3)
    with pytest.raises(ValueError, match="degrees of freedom"):
        t_cdf(1.0, 0)


def _rate(record: TrialRecord) -> float | None:
    return record.points[0].out_tok_s if record.points else None


def _launches(**rates: list[float]) -> list[TrialRecord]:
    """`_launches(a=[10, 11])`: two launches of configuration `a`."""
    return [
        record(i, measured(s8=rate), {"name": name})
        for i, (name, rate) in enumerate((name, rate) for name, series in rates.items() for rate in series)
    ]


def test_noise_is_pooled_within_configurations_whatever_their_speed() -> None:
    a, b = [100.0, 102.0, 98.0], [5.0, 5.2]
    logs = [[math.log(x) for x in series] for series in (a, b)]
    pooled = math.sqrt((2 * stdev(logs[0]) ** 2 + stdev(logs[1]) ** 2) / 3)
    noise = noise_of(_launches(a=a, b=b, c=[7.0]), _rate)
    assert noise == Noise(sd_log=pytest.approx(pooled), df=3)  # type: ignore[arg-type]


def test_without_repeats_there_is_no_noise_to_speak_of() -> None:
    records = [
        *_launches(a=[1.0], b=[2.0]),
        record(8, failed(), {"name": "a"}),
        record(9, None, {"name": "b"}),
    ]
    assert noise_of(records, _rate) is None
    assert noise_of(_launches(a=[1.0, 0.0]), _rate) is None
    assert neighbour_noise(records, _rate) is None
    assert variation(records, _rate) is None


def test_a_slow_drift_is_noise_over_the_night_but_not_between_neighbours() -> None:
    rates = [100 * 0.97**i * (1.001 if i % 2 else 1.0) for i in range(10)]
    whole, near = noise_of(_launches(a=rates), _rate), neighbour_noise(_launches(a=rates), _rate)
    assert whole is not None
    assert near is not None
    assert (whole.df, near.df) == (9, 5)
    assert whole.sd_log > 0.08
    assert near.sd_log == pytest.approx(-math.log(0.97 * 1.001) / math.sqrt(2))


def test_finals_have_noise_of_their_own() -> None:
    launches = _launches(a=[100.0, 101.0, 50.0])
    finals = [*launches[:2], replace(launches[2], origin=Origin.FINAL, block=0)]
    assert neighbour_noise(finals, _rate) == neighbour_noise(launches[:2], _rate)


def test_the_baseline_tells_how_much_it_varied_by_itself() -> None:
    records = [record(i, measured(s8=rate), {}) for i, rate in enumerate((100.0, 104.0, 110.0))]
    found = variation([*records, *_launches(a=[1.0, 9.0])], _rate)
    assert found is not None
    assert found.launches == 3
    assert found.change == pytest.approx(1.1)
    assert found.sd_log == pytest.approx(stdev(map(math.log, (100.0, 104.0, 110.0))))


def test_what_is_usual_is_more_with_few_streams_and_with_speculation() -> None:
    assert [prior_noise(streams, False).sd_log for streams in (1, 4, 5, 64)] == [0.03, 0.03, 0.02, 0.02]
    assert prior_noise(64, True).sd_log == 0.10
