"""The dominated hypervolume: exact, the same in any order, never falling, 1 for the baseline alone."""

import math
from collections.abc import Sequence
from itertools import product
from random import Random

import pytest
from builders import measured, objectives, record
from hypothesis import given
from hypothesis import strategies as st

from autotune.decide.hypervolume import Corner, exclusive, growth, hypervolume
from autotune.decide.ranking import Candidate, candidates, gain
from autotune.decide.relative import ratios, reference_of
from autotune.domain.objective import Objective

SIDE = 6


def corners(dimensions: int) -> st.SearchStrategy[list[Corner]]:
    return st.lists(st.tuples(*[st.integers(0, SIDE).map(float)] * dimensions), max_size=9)


ANY_CORNERS = st.integers(1, 4).flatmap(corners)


def by_counting(found: Sequence[Corner]) -> int:
    """How many unit cells of a grid lie in one of the boxes."""
    if not found:
        return 0
    cells = product(range(SIDE), repeat=len(found[0]))
    return sum(
        any(all(c + 1 <= x for c, x in zip(cell, box, strict=True)) for box in found) for cell in cells
    )


@given(ANY_CORNERS)
def test_it_is_the_number_of_cells_of_a_grid(found: list[Corner]) -> None:
    assert hypervolume(found) == pytest.approx(by_counting(found), abs=1e-9)


@given(ANY_CORNERS, st.data())
def test_what_a_box_adds_is_what_it_alone_holds(found: list[Corner], data: st.DataObject) -> None:
    if not found:
        return
    one = data.draw(corners(len(found[0])).filter(bool))[0]
    assert exclusive(one, found) == pytest.approx(hypervolume([*found, one]) - hypervolume(found), abs=1e-9)


RATES = st.floats(0.1, 1e4)


@st.composite
def studies(draw: st.DrawFn) -> tuple[list[Candidate], tuple[Objective, ...]]:
    """Configurations with values for 1, 2 or 3 objectives that go either way; the first is the baseline."""
    names = draw(
        st.sampled_from(
            [["out_tok_s@8"], ["out_tok_s@8", "ttft_p50@8"], ["out_tok_s@8", "tpot_p50@8", "req_s@1"]]
        )
    )
    rows = draw(st.lists(st.tuples(*[RATES] * len(names)), min_size=1, max_size=10))
    base = record(0, measured(s1=1.0, s8=1.0), values={})
    found = [
        Candidate(record=base if i == 0 else record(i, base.outcome), values=row, launches=1)
        for i, row in enumerate(rows)
    ]
    return found, objectives(*names)


@given(studies(), st.randoms(use_true_random=False))
def test_it_grows_with_every_step_and_ends_the_same_in_any_order(
    study: tuple[list[Candidate], tuple[Objective, ...]], rng: Random
) -> None:
    found, wanted = study
    grown = growth(found, wanted)
    assert grown is not None
    volumes = [volume for _, volume in grown.steps]
    assert volumes == sorted(set(volumes))
    shuffled = list(found)
    rng.shuffle(shuffled)
    again = growth(shuffled, wanted)
    assert again is not None
    assert again.steps[-1][1] == pytest.approx(volumes[-1])
    boxes = [ratios(c.values, found[0].values, wanted) for c in found]
    assert volumes[-1] == pytest.approx(hypervolume(boxes))


@given(studies())
def test_the_baseline_alone_is_1_and_one_configuration_is_its_gain(
    study: tuple[list[Candidate], tuple[Objective, ...]],
) -> None:
    found, wanted = study
    alone = growth(found[:1], wanted)
    assert alone is not None
    assert alone.steps == ((0, pytest.approx(1.0)),)
    grown = growth(found, wanted)
    assert grown is not None
    best = max(gain(c.values, found[0].values, wanted) for c in found)
    assert grown.side(grown.steps[-1][1]) >= best * (1 - 1e-9)


def test_less_is_better_where_the_objective_says_so() -> None:
    wanted = objectives("ttft_p50@8")
    half = Candidate(record=record(1, None), values=(0.5,), launches=1)
    base = Candidate(record=record(0, None, values={}), values=(1.0,), launches=1)
    grown = growth([base, half], wanted)
    assert grown is not None
    assert grown.steps == ((0, 1.0), (1, 2.0))


def test_a_baseline_that_is_0_or_missing_gives_way_to_the_first_that_is_not() -> None:
    base = Candidate(record=record(0, None, values={}), values=(0.0,), launches=1)
    found = [base, *(Candidate(record=record(i, None), values=(float(i),), launches=1) for i in (2, 4))]
    for among in (found, found[1:]):
        reference = reference_of(among)
        assert reference is not None
        assert reference.record.number == 2
    assert growth(found, objectives("goodput_req_s@8")) is not None
    assert growth([base], objectives("goodput_req_s@8")) is None
    assert growth([], objectives()) is None


def test_repeats_count_with_their_mean_from_the_first_on() -> None:
    records = [
        record(0, measured(s8=100.0), values={}),
        record(1, measured(s8=400.0), values={"a": 1}),
        record(2, measured(s8=100.0), values={"a": 1}),
    ]
    wanted = objectives("out_tok_s@8")
    grown = growth(candidates(records, wanted), wanted)
    assert grown is not None
    assert grown.steps == ((0, 1.0), (1, pytest.approx(2.0)))
    assert math.isclose(grown.side(2.0), 2.0)
