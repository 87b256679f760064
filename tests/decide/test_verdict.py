"""What is said of a study: a gain from finals alone, the defaults where nothing beats them."""

from dataclasses import replace

import pytest
from builders import failed, measured, objectives, point, record
from nights import OBJECTIVES, Night, broken_at, configuration

from autotune.decide.verdict import Certainty, settings_apart, verdict
from autotune.domain.measurement import Quantiles
from autotune.domain.metric_limit import parse_metric_limits
from autotune.domain.objective import Objective
from autotune.domain.trial import Measured, Origin, TrialRecord


def _night(*gains: float, **more: object) -> Night:
    night = Night(gains, 0.004, seed=11, **more)  # type: ignore[arg-type]
    night.search(controls=2)
    return night


def test_finals_confirm_a_winner_with_its_interval_and_blocks() -> None:
    found = _night(0.2, 0.02).finals()
    assert found.certainty is Certainty.CONFIRMED
    assert found.chosen.configuration == configuration(1)
    assert not found.keeps_baseline
    assert found.other == found.chosen
    difference = found.difference
    assert difference is not None
    assert difference.ratio == pytest.approx(1.22, abs=0.02)
    assert difference.interval.low < difference.ratio < difference.interval.high
    assert (difference.n_first, difference.n_second, difference.confidence) == (3, 3, pytest.approx(0.95))
    (rung,) = found.per_streams
    assert rung.baseline is not None
    assert rung.baseline.launches == 3
    assert rung.differences["out_tok_s"] == difference
    assert rung.differences["ttft_p50"].ratio == pytest.approx(1.0)
    assert found.variation is not None
    assert found.variation.launches == 6


def test_what_finals_cannot_tell_apart_leaves_the_defaults() -> None:
    found = _night(0.0, 0.001).finals()
    assert found.certainty is Certainty.TIED
    assert found.keeps_baseline
    assert found.chosen == found.baseline
    assert found.rival is not None
    assert found.other == found.rival
    assert found.difference is not None
    assert found.difference.interval.low <= 1 <= found.difference.interval.high


def test_a_difference_that_makes_none_is_a_tie_even_when_it_is_sure() -> None:
    night = Night([0.005], 0.0002, seed=2)
    night.search()
    found = night.finals()
    assert found.difference is not None
    assert found.difference.is_distinguishable
    assert (found.certainty, found.keeps_baseline) == (Certainty.TIED, True)


def test_the_defaults_can_be_confirmed_too() -> None:
    night = Night([-0.04], 0.004, seed=4)  # within the noise of a search
    night.search()
    found = night.finals()
    assert (found.certainty, found.keeps_baseline) == (Certainty.CONFIRMED, True)
    assert found.difference is not None
    assert found.difference.interval.high < 1


def test_of_finalists_that_are_as_good_the_one_closest_to_the_defaults_is_chosen() -> None:
    night = _night(0.205, 0.2, 0.1)
    many, few, none = ("--a", "1", "--b", "2"), ("--a", "1"), ()
    night.finals()
    words = {1: many, 2: few, 3: none}
    records = [
        replace(r, argv=(*r.argv, *words.get(int(r.configuration.values.get("a", 0)), ())))
        for r in night.records
    ]
    found = verdict(records, OBJECTIVES)
    assert found is not None
    assert found.chosen.configuration == configuration(2)  # 3 is closer still, but slower beyond doubt
    assert found.difference is not None
    assert found.difference.ratio == pytest.approx(1.22, abs=0.02)


def test_how_far_settings_are_apart_counts_flags_with_their_values_and_variables() -> None:
    base = replace(record(0, None, {}), argv=("vllm", "serve", "m", "--x", "1"), env={"A": "1"})
    assert settings_apart(base, base) == 0
    assert settings_apart(replace(base, argv=(*base.argv, "--y", "a", "b")), base) == 1
    assert settings_apart(replace(base, env={"A": "1", "B": "2"}), base) == 1


def _measured_once(*rates: float) -> list[TrialRecord]:
    return [record(n, measured(s8=rate), {"a": n} if n else {}) for n, rate in enumerate(rates)]


@pytest.mark.parametrize(
    ("rates", "chosen", "asks_for_more"),
    [
        ((100.0, 108.0), 0, True),  # 3 standard deviations of a difference are 8.9 %
        ((100.0, 110.0), 1, True),
        ((100.0, 90.0), 0, False),
        ((100.0,), 0, False),
    ],
)
def test_without_finals_nothing_is_confirmed_and_only_what_is_clearly_better_is_named(
    rates: tuple[float, ...], chosen: int, *, asks_for_more: bool
) -> None:
    found = verdict(_measured_once(*rates), OBJECTIVES)
    assert found is not None
    assert found.certainty is Certainty.UNCONFIRMED
    assert found.difference is None
    assert found.chosen.number == chosen
    assert found.keeps_baseline is (chosen == 0)
    assert (found.more_s == pytest.approx(8.8 * 60.0)) if asks_for_more else found.more_s is None
    assert all(not rung.differences for rung in found.per_streams)
    assert found.looks == (pytest.approx(rates[1] / 100) if len(rates) > 1 else None)


def test_without_a_baseline_there_is_a_best_and_no_gain() -> None:
    records = [record(0, failed(), {}), *_measured_once(0.0, 5.0, 7.0)[1:]]
    found = verdict(records, OBJECTIVES)
    assert found is not None
    assert (found.certainty, found.chosen.number, found.looks) == (Certainty.NO_BASELINE, 2, None)
    assert verdict([record(0, failed(), {})], OBJECTIVES) is None


def test_what_works_only_sometimes_is_never_chosen() -> None:
    records = [*_measured_once(100.0, 500.0, 200.0), record(3, failed(), {"a": 1})]
    found = verdict(records, OBJECTIVES)
    assert found is not None
    assert found.chosen.number == 2
    night = _night(0.3, 0.1, breaks=broken_at(1, 11))  # in its third block
    assert night.finals().chosen.configuration == configuration(2)


def test_what_was_found_after_the_finals_is_named_and_not_chosen() -> None:
    night = _night(0.2)
    night.finals()
    found = verdict([*night.records, record(99, measured(s8=200.0), {"a": 99})], OBJECTIVES)
    assert found is not None
    assert found.chosen.configuration == configuration(1)
    assert found.untried is not None
    assert found.untried.number == 99
    close = verdict([*night.records, record(99, measured(s8=124.0), {"a": 99})], OBJECTIVES)
    assert close is not None
    assert close.untried is None


def test_a_preference_is_judged_by_the_same_finals() -> None:
    """Trial 1 is better at 8 streams, trial 2 at one."""
    truth = {0: (10.0, 100.0), 1: (10.0, 130.0), 2: (13.0, 100.0)}
    records = []
    for block in (None, 0, 1, 2):
        for n, (one, eight) in truth.items():
            off = 1 + 0.001 * ((7 * len(records)) % 5)
            made = record(len(records), measured(s1=one * off, s8=eight * off), {"a": n} if n else {})
            origin = Origin.SAMPLED if block is None else Origin.FINAL
            records.append(replace(made, origin=origin, block=block))
    for stream, chosen in ((1, 2), (8, 1)):
        found = verdict(records, objectives(), Objective.parse(f"out_tok_s@{stream}"))
        assert found is not None
        assert (found.certainty, found.chosen.number) == (Certainty.CONFIRMED, chosen)
        assert found.difference is not None
        assert found.difference.ratio == pytest.approx(1.3, abs=0.01)
    late = record(99, measured(s1=50.0, s8=20.0), {"a": 99})
    other = verdict([*records, late], objectives(), Objective.parse("out_tok_s@1"))
    assert other is not None
    assert (other.certainty, other.chosen.number) == (Certainty.UNCONFIRMED, 99)


LIMITS = parse_metric_limits(["ttft_p50@8<=2s"])


def _timed(*measured_as: tuple[float, float], block: int | None = None) -> list[TrialRecord]:
    """One launch of the baseline and of each other, each as (output tokens per second, TTFT in s)."""
    return [
        replace(
            record(n + 10 * (0 if block is None else block + 1), Measured(points=(point(8, rate, ttft_s=t),)),
                   {"a": n} if n else {}),
            origin=Origin.SAMPLED if block is None else Origin.FINAL,
            block=block,
        )
        for n, (rate, t) in enumerate(measured_as)
    ]  # fmt: skip


def test_the_fastest_that_breaks_a_limit_is_passed_over() -> None:
    records = _timed((100.0, 1.0), (300.0, 2.6), (200.0, 1.5))
    found = verdict(records, OBJECTIVES, limits=LIMITS)
    assert found is not None
    assert found.chosen.number == 2
    assert [held.value for held in found.held] == [1.5]
    assert found.baseline_held is not None
    assert all(held.keeps for held in found.baseline_held)
    assert found.looks == pytest.approx(2.0)
    free = verdict(records, OBJECTIVES)
    assert free is not None
    assert (free.chosen.number, free.held) == (1, ())


def test_a_preference_chooses_among_what_keeps_the_limits() -> None:
    records = _timed((100.0, 1.0), (300.0, 2.6), (200.0, 1.5))
    found = verdict(records, objectives("ttft_p50@8"), Objective.parse("out_tok_s@8"), LIMITS)
    assert found is not None
    assert found.chosen.number == 2


def test_where_the_defaults_break_a_limit_the_best_that_keeps_it_is_chosen_however_slow() -> None:
    found = verdict(_timed((100.0, 2.6), (80.0, 1.5), (70.0, 1.0)), OBJECTIVES, limits=LIMITS)
    assert found is not None
    assert (found.chosen.number, found.certainty, found.rival) == (1, Certainty.UNCONFIRMED, None)
    assert found.baseline is not None
    assert not found.keeps_baseline
    assert found.looks == pytest.approx(0.8)
    assert found.more_s is not None
    assert [held.keeps for held in found.baseline_held or ()] == [False]


def test_the_defaults_are_no_choice_where_too_little_is_known_of_them() -> None:
    few = replace(point(8, 100.0), ttft_s=Quantiles(n=3, p50=0.1))
    records = [record(0, Measured(points=(few,)), {}), *_timed((0.0, 0.0), (80.0, 1.5))[1:]]
    found = verdict(records, OBJECTIVES, limits=LIMITS)
    assert found is not None
    assert (found.chosen.number, found.baseline_held) == (1, None)
    assert found.baseline == records[0]


def test_nothing_is_chosen_where_nothing_keeps_the_limits() -> None:
    assert verdict(_timed((100.0, 2.6), (80.0, 2.1)), OBJECTIVES, limits=LIMITS) is None


def _in_finals(*per_block: list[tuple[float, float]]) -> list[TrialRecord]:
    """A search whose launches are those of the first block, then finals of these blocks."""
    found = _timed(*per_block[0])
    for block, launches in enumerate(per_block):
        found += _timed(*launches, block=block)
    return found


def test_a_finalist_has_to_keep_the_limits_in_the_mean_of_its_finals() -> None:
    """Trial 1 is faster, kept the limit in the search, and breaks it in two blocks of three."""
    blocks = [
        [(100.0, 1.0), (130.0 + n, ttft_s), (120.0 + n, 1.5)] for n, ttft_s in enumerate((1.0, 3.0, 3.5))
    ]
    found = verdict(_in_finals(*blocks), OBJECTIVES, limits=LIMITS)
    assert found is not None
    assert (found.certainty, found.chosen.configuration) == (Certainty.CONFIRMED, configuration(2))
    assert [(held.launches, held.of_finals) for held in found.held] == [(3, True)]


@pytest.mark.parametrize(
    ("speed", "certainty"),
    [(90.0, Certainty.CONFIRMED), (100.0, Certainty.TIED), (120.0, Certainty.CONFIRMED)],
)
def test_finals_choose_what_keeps_the_limits_whether_it_is_faster_than_the_defaults_or_not(
    speed: float, certainty: Certainty
) -> None:
    noise = (0.0, 0.3, -0.2)
    blocks = [[(100.0 - off, 2.6), (speed + off, 1.5)] for off in noise]
    found = verdict(_in_finals(*blocks), OBJECTIVES, limits=LIMITS)
    assert found is not None
    assert (found.certainty, found.chosen.configuration) == (certainty, configuration(1))
    assert found.difference is not None
    assert found.difference.ratio == pytest.approx(speed / 100, abs=0.01)
