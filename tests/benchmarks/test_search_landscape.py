"""The simulated machine: its truth is a function, its crashes are as declared, its clock adds up."""

import dataclasses
from random import Random

import numpy as np
import pytest
from search_sim import knobs, ours
from search_sim.development import DEVELOPMENT
from search_sim.failing import failure_of
from search_sim.hidden import HIDDEN
from search_sim.reference import objectives_of, random_genes, reference, rows_of
from search_sim.scenario import Scenario
from search_sim.truth import Fate, Luck
from search_sim.world import World, attempt, true_values

from autotune.decide.memory.estimate import memory_model
from autotune.decide.space.sampling import draw
from autotune.domain.launch import server_args, settings
from autotune.domain.space import Configuration
from autotune.files.rules import VLLM_RULES, read_rules

ALL = (*DEVELOPMENT, *HIDDEN)
EACH = pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.name)


@EACH
def test_as_many_random_configurations_fail_as_declared(scenario: Scenario) -> None:
    rows = rows_of(scenario, random_genes(scenario, np.random.default_rng(1), 20_000))
    share = (scenario.truth.fates(rows) != Fate.WORKS).mean()
    assert share == pytest.approx(scenario.crash_share, abs=0.02)


@EACH
def test_one_row_or_many_and_columns_or_words_are_the_same_truth(scenario: Scenario) -> None:
    """What the reference judges in bulk is what a launch with a command line gets."""
    rng = Random(3)  # noqa: S311
    configurations = [draw(scenario.space, rng) for _ in range(50)]
    given = [settings(scenario.space, each) for each in configurations]
    read = [knobs.read_args(server_args(scenario.space, each)) for each in configurations]
    assert read == given
    rows = knobs.columns(given, scenario.truth.defaults)
    values, fates = objectives_of(scenario, rows), scenario.truth.fates(rows)
    for position, one in enumerate(given):
        assert true_values(scenario, one) == pytest.approx(tuple(values[position]))
        alone = knobs.columns([one], scenario.truth.defaults)
        assert scenario.truth.fates(alone)[0] == fates[position]


@EACH
def test_what_works_works_with_more_memory_too(scenario: Scenario) -> None:
    rows = rows_of(scenario, random_genes(scenario, np.random.default_rng(2), 2_000))
    device = scenario.device
    more = dataclasses.replace(device, memory_gib=device.memory_gib + 8, host_gib=device.host_gib + 8)
    larger = dataclasses.replace(scenario, device=more)
    before, after = (each.truth.fates(rows) == Fate.WORKS for each in (scenario, larger))
    assert not (before & ~after).any()


@EACH
def test_the_memory_estimate_knows_the_model_and_is_not_the_truth(scenario: Scenario) -> None:
    """The gate works from what a config.json says; the simulated machine takes a bit more or less."""
    model = memory_model(scenario.environment, scenario.model)
    assert model is not None
    gate = model.calibrated(scenario.space, ())
    rng = Random(5)  # noqa: S311
    wrong = 0
    for _ in range(60):
        configuration = draw(scenario.space, rng)
        row = knobs.columns([settings(scenario.space, configuration)], scenario.truth.defaults)
        fate = Fate(int(scenario.truth.fates(row)[0]))
        short = fate in (Fate.NO_KV, Fate.KV_TOO_SMALL, Fate.OOM_WEIGHTS, Fate.OOM_PROFILE)
        wrong += (gate.shortage(configuration) is not None) is not short
    assert wrong < 0.4 * 60


def test_every_failure_is_one_that_the_rules_know() -> None:
    rules = {rule.id: rule for rule in read_rules(VLLM_RULES).index.rules}
    seen = set()
    for scenario in ALL:
        rows = rows_of(scenario, random_genes(scenario, np.random.default_rng(4), 4_000))
        fates = scenario.truth.fates(rows)
        for fate in set(fates.tolist()) - {Fate.WORKS}:
            position = int(np.flatnonzero(fates == fate)[0])
            row = {name: column[position : position + 1] for name, column in rows.items()}
            failure = failure_of(Fate(fate), scenario.truth, row, Luck())
            seen.add(Fate(fate))
            if failure.rule is not None:
                rule = rules[failure.rule]
                assert (rule.kind, rule.blame) == (failure.kind, failure.blame)
    assert seen >= set(Fate) - {Fate.WORKS}


@pytest.mark.parametrize("seed", [0, 1])
def test_the_clock_adds_up_and_the_same_seed_is_the_same_world(seed: int) -> None:
    def lived() -> list[tuple[float, object]]:
        world, found = World(DEVELOPMENT[0], seed), []
        rng = Random(seed)  # noqa: S311
        for _ in range(20):
            given = settings(DEVELOPMENT[0].space, draw(DEVELOPMENT[0].space, rng))
            before_s = world.now_s
            result = attempt(world, given, 1e9)
            assert world.now_s == pytest.approx(before_s + result.took_s)
            assert result.failed is (result.values is None)
            found.append((world.now_s, result.values))
        return found

    assert lived() == lived()


def test_a_launch_varies_by_three_percent() -> None:
    scenario = DEVELOPMENT[-1]
    world, given = World(scenario, 7), settings(scenario.space, Configuration())
    truth = true_values(scenario, given)
    results = [attempt(world, given, 1e9).values for _ in range(300)]
    logs = np.log([each for each in results if each is not None]) - np.log(truth)
    assert logs.std(axis=0) == pytest.approx(0.03, abs=0.008)
    assert abs(logs.mean()) < 0.006


@pytest.mark.parametrize("scenario", [DEVELOPMENT[2], HIDDEN[7]], ids=lambda scenario: scenario.name)
def test_nothing_works_better_than_the_reference(scenario: Scenario) -> None:
    best = reference(scenario)
    rows = rows_of(scenario, random_genes(scenario, np.random.default_rng(8), 30_000))
    works = scenario.truth.fates(rows) == Fate.WORKS
    found = np.exp(np.log(objectives_of(scenario, rows)[works]).mean(axis=1)).max()
    assert 0 < found <= best.score


@pytest.mark.parametrize("scenario", DEVELOPMENT[:1], ids=lambda scenario: scenario.name)
def test_the_loop_lives_in_the_same_time_as_a_rival(scenario: Scenario) -> None:
    """Every trial of the loop takes what the same settings take a rival, but for chance."""
    history = ours.run_default_start(scenario, 0, 900.0)
    ends = [done.ended_s for done in history.trials]
    assert ends == sorted(ends)
    assert ends[-1] <= 900.0 + 30.0
    baseline = history.trials[0]
    alone = attempt(World(scenario, 1), settings(scenario.space, Configuration()), 1e9)
    assert baseline.took_s == pytest.approx(alone.took_s, rel=0.1)
    assert history.crash_share(900.0) < 1


def test_the_same_seed_gives_the_same_study() -> None:
    first, second = (ours.run_ours(DEVELOPMENT[0], 3, 700.0).trials for _ in range(2))
    assert first == second
