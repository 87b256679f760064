"""Finals on machines whose truth is known: no false winner, honest intervals, and no launch too many."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from random import Random

import pytest
from builders import failed, measured, record
from hypothesis import given
from hypothesis import strategies as st
from nights import OBJECTIVES, TRIAL_S, Night, broken_at, configuration, steady

from autotune.decide.blocks import BASELINE, LOOKS, alpha_of, block_model
from autotune.decide.finals import Finals
from autotune.decide.ranking import score
from autotune.decide.verdict import Certainty, Verdict
from autotune.domain.failure import Blame
from autotune.domain.study import Limits
from autotune.domain.trial import Origin

NIGHTS = 100


def _many(
    gains: Sequence[float],
    sd: float | Sequence[float],
    drift: Callable[[int], Callable[[int], float]] = lambda _seed: steady,
) -> list[tuple[Night, Verdict]]:
    """Finals of many studies of the same configurations, each with two controls, its own luck and drift."""
    held = []
    for seed in range(NIGHTS):
        night = Night(gains, sd, seed=seed, drift=drift(seed))
        night.search(controls=2)
        held.append((night, night.finals()))
    return held


def _is_winner(verdict: Verdict) -> bool:
    return verdict.certainty is Certainty.CONFIRMED and not verdict.keeps_baseline


def _false_claims(held: Sequence[tuple[Night, Verdict]]) -> float:
    return sum(_is_winner(verdict) for _, verdict in held) / len(held)


def _slower(_seed: int) -> Callable[[int], float]:
    return lambda launch: -0.03 * launch


def _faster(_seed: int) -> Callable[[int], float]:
    return lambda launch: 0.03 * launch


def _wandering(seed: int) -> Callable[[int], float]:
    """Up or down by 2 % with each launch."""
    steps = Random(seed + 1000)  # noqa: S311 - reproducible on purpose
    places = list(accumulate(steps.gauss(0.0, 0.02) for _ in range(100)))
    return lambda launch: places[launch]


def _jumping(seed: int) -> Callable[[int], float]:
    """Faster by 20 %, as if another program had ended, from some moment on."""
    at = 4 + seed % 12
    return lambda launch: 0.2 if launch >= at else 0.0


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("sd", [0.01, 0.05])
def test_the_same_configuration_against_itself_hardly_ever_wins(count: int, sd: float) -> None:
    held = _many([0.0] * count, sd)
    assert _false_claims(held) <= 0.05
    differences = [verdict.difference for _, verdict in held if verdict.difference]
    assert len(differences) > 0.9 * NIGHTS
    assert sum(difference.is_distinguishable for difference in differences) <= 0.05 * NIGHTS


def test_a_finalist_that_varies_more_than_the_rest_is_not_flattered_by_their_calm() -> None:
    held = _many([0.0, 0.0, 0.0, 0.0], [0.01, 0.10, 0.01, 0.01, 0.01])
    assert _false_claims(held) <= 0.05
    assert _false_claims(_many([0.0], [0.01, 0.10])) <= 0.05


@pytest.mark.parametrize("drift", [_slower, _faster, _wandering, _jumping])
def test_a_machine_that_changes_through_the_night_makes_no_winner(
    drift: Callable[[int], Callable[[int], float]],
) -> None:
    """By much more than the noise."""
    assert _false_claims(_many([0.0, 0.0], 0.01, drift)) <= 0.05
    assert _false_claims(_many([0.0], 0.01, drift)) <= 0.05


@pytest.mark.parametrize("gain", [1.0, 1.02, 1.1])
@pytest.mark.parametrize("count", [1, 4])
def test_the_interval_holds_the_true_gain(gain: float, count: int) -> None:
    held = _many([math.log(gain)] * count, 0.02)
    intervals = [verdict.difference.interval for _, verdict in held if verdict.difference]
    assert len(intervals) > 0.9 * NIGHTS
    assert sum(i.low <= gain <= i.high for i in intervals) >= 0.95 * len(intervals)


def test_a_clear_gain_is_confirmed_in_three_blocks() -> None:
    held = _many([math.log(1.1), 0.0, 0.0, 0.0], 0.01)
    winners = [verdict.chosen.configuration for _, verdict in held if _is_winner(verdict)]
    assert winners.count(configuration(1)) >= 0.99 * NIGHTS
    assert sum(len(night.blocks) == LOOKS[0] for night, _ in held) >= 0.95 * NIGHTS


def test_the_slow_are_dropped_at_a_look_and_blocks_are_added_only_for_those_still_in_question() -> None:
    night = Night([0.101, 0.100, -0.001, 0.02], 0.0025, seed=1)
    night.search()
    night.finals()
    racing = [[c.values["a"] for c in block.finalists] for block in night.blocks]
    assert all(set(block) == {1, 2, 3, 4} for block in racing[:3])
    assert all(set(block) == {1, 2} for block in racing[3:])
    assert len(racing) == 5  # then the two are known to be within 1 % of each other
    assert [block.until for block in night.blocks] == [3, 3, 3, 5, 5]


def test_each_block_launches_each_once_beside_the_baseline_and_every_other_block_the_other_way_round() -> (
    None
):
    night = Night([0.0] * 3, 0.02, seed=3)
    night.search()
    night.finals()
    orders = [[c.values.get("a", 0) for c in block.order] for block in night.blocks]
    assert all(sorted(order) == [0, 1, 2, 3] for order in orders[:3])
    assert orders[1] == orders[0][::-1]
    assert len({tuple(order) for order in orders[::2]}) > 1
    again = Night([0.0] * 3, 0.02, seed=3)
    again.search()
    again.finals()
    assert [block.order for block in again.blocks] == [block.order for block in night.blocks]


@pytest.mark.parametrize(
    ("launches", "finalists", "until"),
    [(3.9, None, 0), (4, 1, 2), (6, 1, 3), (8.9, 1, 3), (9, 2, 3), (15, 4, 3), (1000, 4, 3)],
)
def test_as_many_finalists_as_fit_three_times(launches: float, finalists: int | None, until: int) -> None:
    night = Night([0.3, 0.2, 0.1, 0.05, 0.01], 0.001)
    night.search()
    block = night.decide.first_block(night.records, launches * TRIAL_S)
    assert (len(block.finalists) if block else None) == finalists
    assert (block.until if block else 0) == until
    if block:
        assert block.finalists[0] == configuration(1)


def test_finalists_are_those_that_always_worked_and_are_not_slower() -> None:
    night = Night([0.2, -0.5, 0.1], 0.001)
    night.search()
    assert night.decide.in_question(night.records) == [configuration(1), configuration(3)]
    night.records.append(record(9, failed(Blame.UNKNOWN), {"a": 1}))
    assert night.decide.in_question(night.records) == [configuration(3)]
    night.records.append(record(10, failed(Blame.ENVIRONMENT), {"a": 3}))
    assert night.decide.in_question(night.records) == [configuration(3)]
    nobody = Finals(objectives=OBJECTIVES, limits=Limits(finalists=0), seed=0)
    assert nobody.in_question(night.records) == []
    assert night.decide.in_question(night.records[1:]) == []  # without a baseline


def test_the_search_leaves_a_third_of_the_budget_or_the_smallest_finals_or_nothing() -> None:
    night = Night([0.2], 0.001)
    night.launch(0, Origin.BASELINE)
    assert night.decide.reserve_s(night.records, 100 * TRIAL_S) == 0.0
    night.launch(1)
    reserves = [night.decide.reserve_s(night.records, n * TRIAL_S) / TRIAL_S for n in (8.7, 8.8, 13, 15, 300)]
    assert reserves == pytest.approx([0, 4.4, 4.4, 5, 11])


def test_a_finalist_that_fails_by_its_own_fault_is_out_and_a_fault_of_the_machine_is_not() -> None:
    night = Night([0.2, 0.1], 0.002, breaks=broken_at(1, 3))
    night.search()
    verdict = night.finals()
    assert verdict.chosen.configuration == configuration(2)
    assert [len(block.finalists) for block in night.blocks[1:]] == [1] * (len(night.blocks) - 1)
    night = Night([0.2], 0.002, breaks=lambda n, at: failed(Blame.ENVIRONMENT) if at == 4 else None)
    night.search()
    assert _is_winner(night.finals())
    assert len(night.blocks) == LOOKS[0] + 1  # the block that lost one of its launches is made good


def test_finals_end_when_the_baseline_fails_in_them() -> None:
    night = Night([0.2], 0.002, breaks=broken_at(0, 2))
    night.search()
    assert night.finals().certainty is Certainty.UNCONFIRMED
    assert len(night.blocks) == 1


def test_finals_cut_short_use_the_blocks_that_are_whole_and_go_on_in_new_ones() -> None:
    night = Night([0.2, 0.19], 0.004, seed=5)
    night.search()
    night.finals(launches=9)
    del night.records[-2:]  # killed in the middle of the third block
    read = lambda r: score(r, OBJECTIVES)  # noqa: E731
    assert len(block_model(night.records, read).blocks) in (2, 3)
    before = len(night.blocks)
    night.finals()
    numbers = [block.number for block in night.blocks]
    assert numbers == list(range(len(numbers)))
    assert len(night.blocks) > before
    model = block_model(night.records, read)
    assert model.count(BASELINE, configuration(1).digest) >= LOOKS[0]


def test_what_is_settled_is_not_raced_again_until_something_new_is_found() -> None:
    night = Night([0.2, 0.5], 0.002)
    night.launch(0, Origin.BASELINE)
    night.launch(1)
    night.finals()
    assert night.decide.in_question(night.records) == []
    assert night.decide.reserve_s(night.records, 100 * TRIAL_S) == 0.0
    night.launch(2)
    assert night.decide.in_question(night.records) == [configuration(2), configuration(1)]
    assert night.finals().chosen.configuration == configuration(2)


def test_values_of_different_blocks_are_never_held_against_each_other() -> None:
    """Block 1 is twice as fast, and only one of the two was measured in it."""
    launches = [(0, 0, 100.0), (1, 0, 110.0), (0, 1, 101.0), (1, 1, 111.0), (1, 2, 220.0)]
    records = [
        replace(record(i, measured(s8=rate), {"a": n} if n else {}), origin=Origin.FINAL, block=block)
        for i, (n, block, rate) in enumerate(launches)
    ]
    difference = block_model(records, lambda r: score(r, OBJECTIVES)).difference(
        BASELINE, configuration(1).digest
    )
    assert difference is not None
    assert difference.n_second == 2
    assert difference.ratio == pytest.approx(math.sqrt(1.1 * 111 / 101))


@given(st.lists(st.tuples(*[st.floats(-1, 1)] * 3), min_size=3, max_size=8), st.floats(-1, 1))
def test_what_all_launches_of_a_block_have_in_common_changes_nothing(
    logs: list[tuple[float, float, float]], shift: float
) -> None:
    def model(shifts: Sequence[float]) -> tuple[float, float]:
        records = [
            replace(
                record(0, measured(s8=math.exp(log + by)), {"a": n} if n else {}),
                origin=Origin.FINAL,
                block=block,
            )
            for block, (row, by) in enumerate(zip(logs, shifts, strict=True))
            for n, log in enumerate(row)
        ]
        found = block_model(records, lambda r: score(r, OBJECTIVES))
        assert found.noise is not None
        return found.log_ratio(BASELINE, configuration(1).digest) or 0.0, found.noise.sd_log

    plain = model([0.0] * len(logs))
    assert model([shift * block for block in range(len(logs))]) == pytest.approx(plain, abs=1e-6)


def test_the_looks_together_may_be_wrong_in_one_of_twenty() -> None:
    """The last one twice, as the winner of a round has it in the next, and however many rounds there are."""
    beyond = sum(alpha_of(LOOKS[-1] * 2**doublings) for doublings in range(1, 50))
    assert sum(map(alpha_of, LOOKS)) + alpha_of(LOOKS[-1]) + beyond == pytest.approx(0.05)
    assert [alpha_of(n) for n in (2, 4, 6)] == [alpha_of(3), alpha_of(5), alpha_of(8)]
    assert alpha_of(9) == alpha_of(16) > alpha_of(17) == alpha_of(32)


def test_rounds_of_finals_with_ever_new_configurations_find_no_winner_among_equals() -> None:
    """In each of four rounds the search has found what looks better than the best of those before."""
    false, held, nights = 0, 0, 40
    for seed in range(nights):
        night = Night([0.0] * 16, 0.02, seed=seed)
        night.launch(0, Origin.BASELINE)
        for first in range(1, 17, 4):
            for number in range(first, first + 4):
                night.launch(number)
            night.launch(0, Origin.CONTROL)
            verdict = night.finals()
        held += sum(block.index == 0 for block in night.blocks)
        false += _is_winner(verdict)
    assert held > 1.5 * nights
    assert false <= 0.05 * nights


def test_the_winner_is_launched_beside_what_looks_better_and_what_looks_worse_is_not() -> None:
    night = Night([0.2, 0.15, 0.1], 0.001)
    night.search()
    night.finals()
    assert night.decide.in_question(night.records) == []
    night.gains = [*night.gains, 0.19, 0.3]
    night.launch(4)
    assert night.decide.in_question(night.records) == []
    night.launch(5)
    assert night.decide.in_question(night.records) == [configuration(5), configuration(1)]


def test_repeats_outside_the_finals_add_to_what_is_known_of_the_noise() -> None:
    night = Night([0.0, 0.0], 0.005, seed=6)
    night.search(controls=3)
    night.finals(launches=9)
    with_controls = block_model(night.records, night.decide.read).noise
    alone = block_model([r for r in night.records if r.origin is Origin.FINAL], night.decide.read).noise
    assert with_controls is not None
    assert alone is not None
    assert alone.df == 9 - 3 - 3 + 1  # launches less configurations less blocks but one
    assert with_controls.df == alone.df + 2  # two pairs of neighbours
    assert with_controls.sd_log != alone.sd_log
