"""The best that a scenario has to give: a large random sample, then evolution, on the truth itself.

It is what 100 % means. A better configuration may exist; no search here was ever above 100 % by more than a
hundredth.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from autotune.decide.hypervolume import hypervolume
from autotune.domain.launch import setting_name
from autotune.domain.space import CategoricalDomain, FloatDomain, IntDomain, Parameter
from search_sim import knobs
from search_sim.knobs import Column, Columns
from search_sim.scenario import Scenario
from search_sim.speed import rate
from search_sim.truth import Fate

SAMPLES, GENERATIONS, CHILDREN, PARENTS = 200_000, 30, 30_000, 400

Genes = dict[str, Column]
"""A column for each parameter of the space, active or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The best of a scenario; `corners` are those of the Pareto front, in the units of the objectives."""

    score: float
    """Geometric mean of the objectives."""
    volume: float
    corners: tuple[tuple[float, ...], ...]
    crash_share: float
    """Of uniformly random configurations."""
    fates: Mapping[str, float]
    seed: int


def reference(scenario: Scenario, seed: int = 0) -> Reference:
    """Find it; the same for the same seed."""
    rng = np.random.default_rng(seed)
    genes = random_genes(scenario, rng, SAMPLES)
    fates = scenario.truth.fates(rows_of(scenario, genes))
    share = {fate.name.lower(): float((fates == fate).mean()) for fate in Fate if (fates == fate).any()}
    parents = _best(scenario, _take(genes, fates == Fate.WORKS))
    for generation in range(GENERATIONS):
        children = _mutated(scenario, parents, rng, 0.3 * 0.87**generation)
        both = {name: np.concatenate([parents[name], children[name]]) for name in parents}
        works = scenario.truth.fates(rows_of(scenario, both)) == Fate.WORKS
        parents = _best(scenario, _take(both, works))
    values = objectives_of(scenario, rows_of(scenario, parents))
    corners = tuple(tuple(map(float, row)) for row in values[_front(values)])
    return Reference(
        score=float(np.exp(np.log(values).mean(axis=1)).max()),
        volume=hypervolume(corners),
        corners=corners,
        crash_share=float((fates != Fate.WORKS).mean()),
        fates=share,
        seed=seed,
    )


def objectives_of(scenario: Scenario, rows: Columns) -> NDArray[np.float64]:
    """A row of true objective values for each configuration."""
    return np.stack([rate(scenario.truth, rows, goal.streams) for goal in scenario.goals], axis=1)


def random_genes(scenario: Scenario, rng: Generator, count: int) -> Genes:
    """As uniformly random search draws them."""
    return {parameter.name: _random(parameter, rng, count) for parameter in scenario.parameters}


def _random(parameter: Parameter, rng: Generator, count: int) -> Column:
    match parameter.domain:
        case CategoricalDomain(choices=choices):
            return rng.integers(0, len(choices), count).astype(float)
        case IntDomain(low=low, high=high, log=True):
            drawn = np.exp(rng.uniform(np.log(low - 0.5), np.log(high + 0.5), count))
            return np.clip(np.round(drawn), low, high).astype(float)
        case IntDomain(low=low, high=high):
            return rng.integers(low, high + 1, count).astype(float)
        case FloatDomain(low=low, high=high, step=step):
            steps = round((high - low) / (step or 0.01))
            drawn = low + rng.integers(0, steps + 1, count) * (step or 0.01)
            return drawn.astype(float)


def rows_of(scenario: Scenario, genes: Genes) -> Columns:
    """The settings that each configuration has."""
    count = len(next(iter(genes.values())))
    rows = {name: np.full(count, default) for name, default in scenario.truth.defaults.items()}
    for name, value in scenario.fixed.items():
        rows[name] = np.full(count, knobs.code(name, value))
    methods = genes.get("speculation")
    for parameter in scenario.parameters:
        name = setting_name(parameter.target)
        column = _coded(parameter, genes[parameter.name])
        if parameter.when is None:
            rows[name] = column
        elif name == knobs.THREADS:
            rows[name] = np.where(rows[knobs.BIND] == 1, column, rows[name])
        elif methods is not None:
            method = knobs.code(knobs.METHOD, parameter.name.partition("_")[0])
            rows[name] = np.where(rows[knobs.METHOD] == method, column, rows[name])
    return rows


def _coded(parameter: Parameter, column: Column) -> Column:
    if not isinstance(parameter.domain, CategoricalDomain):
        return column
    name = setting_name(parameter.target)
    codes = np.array([knobs.code(name, choice) for choice in parameter.domain.choices])
    coded: Column = codes[column.astype(int)]
    return coded


def _mutated(scenario: Scenario, parents: Genes, rng: Generator, scale: float) -> Genes:
    """Children of the parents, each changed in some genes by about `scale` of the range."""
    count = len(next(iter(parents.values())))
    chosen = rng.integers(0, count, CHILDREN)
    children: Genes = {}
    for parameter in scenario.parameters:
        genes = parents[parameter.name][chosen]
        fresh = _random(parameter, rng, CHILDREN)
        match parameter.domain:
            case CategoricalDomain():
                children[parameter.name] = np.where(rng.random(CHILDREN) < 0.1, fresh, genes)
                continue
            case IntDomain(low=low, high=high, log=True):
                step = np.exp(rng.normal(0, scale * np.log(high / low), CHILDREN))
                moved = np.clip(np.round(genes * step), low, high)
            case IntDomain(low=low, high=high):
                moved = np.clip(np.round(genes + rng.normal(0, scale * (high - low), CHILDREN)), low, high)
            case FloatDomain(low=low, high=high, step=step_size):
                grid = step_size or 0.01
                steps = np.round(rng.normal(0, scale * (high - low) / grid, CHILDREN))
                moved = np.clip(genes + steps * grid, low, high)
        changed = np.where(rng.random(CHILDREN) < 0.4, moved, genes)
        children[parameter.name] = np.where(rng.random(CHILDREN) < 0.02, fresh, changed)
    return children


def _best(scenario: Scenario, genes: Genes) -> Genes:
    """The Pareto front, and those with the best geometric mean."""
    values = objectives_of(scenario, rows_of(scenario, genes))
    front = np.flatnonzero(_front(values))
    if len(front) > PARENTS:
        front = front[np.argsort(-values[front, 0])][np.linspace(0, len(front) - 1, PARENTS).astype(int)]
    means = np.argsort(-np.log(values).mean(axis=1))[: PARENTS // 2]
    return _take(genes, np.unique(np.concatenate([front, means])))


def _front(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which rows no other dominates, of one or two objectives."""
    order = np.lexsort(tuple(-values[:, column] for column in reversed(range(values.shape[1]))))
    last = values[order, -1]
    best_before = np.concatenate([[-np.inf], np.maximum.accumulate(last)[:-1]])
    kept = np.zeros(len(values), dtype=bool)
    kept[order] = last > best_before
    if values.shape[1] == 1:
        kept[:] = False
        kept[order[0]] = True
    return kept


def _take(genes: Genes, which: NDArray[np.bool_] | NDArray[np.int64]) -> Genes:
    return {name: column[which] for name, column in genes.items()}
