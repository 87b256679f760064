"""What a budget is used for: rounds of search and finals, to its end, and nothing that cannot be finished."""

import re
from dataclasses import replace

from bed import SEARCH_ONLY
from builders import objectives
from hypothesis import example, given, settings
from hypothesis import strategies as st
from simulated import LAUNCH_S, MEASURE_S, Clock, quick

from autotune.decide.verdict import Certainty, verdict
from autotune.domain.trial import Interrupted, Measured, Origin
from autotune.tune.study import Ending

LIMITS = replace(SEARCH_ONLY, finalists=2)
TRIAL_S = LAUNCH_S + MEASURE_S
LONGEST_S = 1.2 * TRIAL_S
OBJECTIVES = objectives("out_tok_s@2", "out_tok_s@1")


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10_000), trials=st.floats(0.5, 60), finalists=st.integers(0, 4))
@example(seed=1, trials=38.5, finalists=2)
@example(seed=2, trials=9.5, finalists=1)
def test_a_budget_is_kept_and_used_to_its_end(seed: int, trials: float, finalists: int) -> None:
    clock = Clock(deadline_s=trials * TRIAL_S)
    loop, store, _ = quick(clock, replace(LIMITS, finalists=finalists), seed)
    assert loop.run().ending is Ending.BUDGET
    assert clock.now_s <= clock.deadline_s
    assert clock.deadline_s - clock.now_s < LONGEST_S
    cut = [isinstance(record.outcome, Interrupted) for record in store.trials]
    assert not any(cut[:-1])
    if finalists and trials >= 14:  # any of these worlds has something faster than its baseline
        found = verdict(store.records(), OBJECTIVES)
        assert found is not None
        assert found.certainty is Certainty.CONFIRMED
        assert not found.keeps_baseline


def test_what_is_cut_by_the_deadline_is_rare() -> None:
    """Durations differ by 20 %, budgets end anywhere: a launch like the last one fits or is not begun."""
    cut = 0
    for seed in range(40):
        loop, store, _ = quick(Clock(deadline_s=(10 + 0.137 * seed) * TRIAL_S), SEARCH_ONLY, seed)
        loop.run()
        cut += isinstance(store.trials[-1].outcome, Interrupted)
    assert cut <= 4


def test_after_finals_the_search_goes_on_and_what_is_better_is_confirmed_in_new_ones() -> None:
    clock = Clock(deadline_s=100 * TRIAL_S)
    loop, store, watch = quick(
        clock,
        replace(LIMITS, finalists=4),
        spread=0.0,
        noise=0.0005,
        boost=lambda first: 2.0 if first > 80 else 1.0,
    )
    assert loop.run().ending is Ending.BUDGET
    origins = "".join("f" if record.origin is Origin.FINAL else "s" for record in store.trials)
    assert re.fullmatch("s{72}f{15}s+f+s*", origins), origins
    assert sum(note.startswith("finals: ") for note in watch.notes) == 2
    found = verdict(store.records(), OBJECTIVES)
    assert found is not None
    assert found.certainty is Certainty.CONFIRMED
    assert found.chosen.number > 80
    assert found.untried is None


def test_what_only_looks_as_good_as_the_winner_is_not_raced_against_it() -> None:
    """After finals that are decided each of the others would have its own, until the time is up."""
    clock = Clock(deadline_s=150 * TRIAL_S)
    loop, _, watch = quick(clock, replace(LIMITS, finalists=1), spread=0.0)
    loop.run()
    assert sum(note.startswith("finals: ") for note in watch.notes) <= 2


def test_time_that_is_too_short_for_other_finals_makes_the_interval_narrower() -> None:
    clock = Clock(deadline_s=30 * TRIAL_S)
    loop, store, _ = quick(clock, replace(LIMITS, finalists=1), spread=0.0)
    loop.run()
    assert [record.origin is Origin.FINAL for record in store.trials[-9:-1]] == [True] * 8
    blocks = {record.block for record in store.trials if record.block is not None}
    assert len(blocks) > 3
    three = verdict([r for r in store.trials if r.block is None or r.block < 3], OBJECTIVES)
    all_of_them = verdict(store.records(), OBJECTIVES)
    assert three is not None
    assert all_of_them is not None
    assert three.difference is not None
    assert all_of_them.difference is not None
    assert all_of_them.difference.interval.low > three.difference.interval.low


def test_patience_ends_the_search_and_finals_are_held_all_the_same() -> None:
    limits = replace(LIMITS, patience=6)
    clock = Clock(deadline_s=300 * TRIAL_S)
    loop, store, _ = quick(clock, limits, spread=0.0)
    assert loop.run().ending is Ending.PATIENCE
    count = len(store.trials)
    assert store.trials[-1].origin is Origin.FINAL
    assert clock.now_s < 80 * TRIAL_S
    assert loop.run().ending is Ending.PATIENCE
    assert len(store.trials) == count


def test_what_is_planned_is_told_from_the_first_measured_trial_on() -> None:
    clock = Clock(deadline_s=30 * TRIAL_S)
    loop, store, watch = quick(clock, LIMITS, spread=0.0)
    loop.run()
    first = watch.plans[0]
    assert first.left_s == 29 * TRIAL_S
    assert (first.search_trials, first.finals_blocks, first.finals_launches) == (19, 3, 9)
    assert (first.trial_s, first.finals_s) == (TRIAL_S, 9 * TRIAL_S)
    assert sum(isinstance(r.outcome, Measured) and r.origin is not Origin.FINAL for r in store.trials) == 21
    assert all(plan.is_like(first) for plan in watch.plans[:19])
