"""How others search the same space in the same time, with what their users know: nothing but a default.

All of them measure the default first. None checks a configuration before it launches it.
"""

import itertools
import math
import random
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import optuna
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import Trial, TrialState

from autotune.decide.space.sampling import nearest
from autotune.domain.launch import setting_name, settings
from autotune.domain.space import (
    CategoricalDomain,
    Configuration,
    FloatDomain,
    IntDomain,
    Parameter,
    SearchSpace,
    Value,
)
from search_sim import knobs
from search_sim.history import Done, History
from search_sim.scenario import Scenario
from search_sim.world import Attempt, World, attempt

GRID_VALUES = 4
"""Of a number, as they are written into a sweep by hand."""


class Crash(StrEnum):
    """What a crash is told to Optuna as."""

    FAIL = "fail"
    """What `study.optimize(catch=...)` makes of an exception; auto-tuning-vllm tells the same itself."""
    ZERO = "zero"
    """A throughput of 0, as vllm-tuner keeps it."""
    CONSTRAINT = "constraint"
    """No throughput and a violated constraint, as in SLO-Guard."""


def run_random(scenario: Scenario, seed: int, budget_s: float) -> History:
    """Uniform random search."""
    return _run_optuna(scenario, seed, budget_s, RandomSampler(seed=seed), Crash.FAIL)


def run_tpe(crash: Crash) -> Callable[[Scenario, int, float], History]:
    """Optuna's default sampler, which the public tuners take as it is (10 random trials, then TPE)."""

    def run(scenario: Scenario, seed: int, budget_s: float) -> History:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return _run_optuna(scenario, seed, budget_s, TPESampler(seed=seed), crash)

    return run


def _run_optuna(
    scenario: Scenario, seed: int, budget_s: float, sampler: BaseSampler, crash: Crash
) -> History:
    run = _Run(World(scenario, seed), History(scenario=scenario, budget_s=budget_s))
    study = optuna.create_study(directions=["maximize"] * len(scenario.goals), sampler=sampler)
    run.launch(Configuration())
    while run.goes_on:
        trial = study.ask()
        result = run.launch(_suggested(trial, scenario.space))
        if result.values is not None:
            if crash is Crash.CONSTRAINT:
                trial.set_constraint("works", -1.0)
            study.tell(trial, result.values)
        elif crash is Crash.FAIL:
            study.tell(trial, state=TrialState.FAIL)
        else:
            if crash is Crash.CONSTRAINT:
                trial.set_constraint("works", 1.0)
            study.tell(trial, [0.0] * len(scenario.goals))
    return run.history


@dataclass
class _Run:
    world: World
    history: History

    @property
    def goes_on(self) -> bool:
        return self.world.now_s < self.history.budget_s

    def launch(self, configuration: Configuration) -> Attempt:
        return self.launch_with(settings(self.world.scenario.space, configuration))

    def launch_with(self, given: Mapping[str, Value]) -> Attempt:
        result = attempt(self.world, given, self.history.budget_s)
        self.history.trials.append(
            Done(
                settings=given,
                ended_s=self.world.now_s,
                took_s=result.took_s,
                failed=result.failed,
                values=result.values,
            )
        )
        return result


def _suggested(trial: Trial, space: SearchSpace) -> Configuration:
    values: dict[str, Value] = {}
    for parameter in space.parameters:
        if space.is_active(parameter, values):
            values[parameter.name] = _suggest(trial, parameter)
    return Configuration(values=values)


def _suggest(trial: Trial, parameter: Parameter) -> Value:
    match parameter.domain:
        case CategoricalDomain(choices=choices):
            return choices[choices.index(trial.suggest_categorical(parameter.name, choices))]
        case IntDomain(low=low, high=high, step=step, log=log):
            return trial.suggest_int(parameter.name, low, high, step=step, log=log)
        case FloatDomain(low=low, high=high, step=step, log=log) as domain:
            return nearest(domain, trial.suggest_float(parameter.name, low, high, step=step, log=log))


Change = tuple[tuple[str, Value], ...]
"""Settings that differ from the default, which belong together."""


def run_grid(scenario: Scenario, seed: int, budget_s: float) -> History:
    """One setting after the other away from the default, then the products of what was better.

    That is how `vllm bench sweep` is used, whose own grid of everything would take weeks. When the products
    are done, the whole grid is begun, in a random order.
    """
    rng = random.Random(seed)  # noqa: S311 - reproducible on purpose
    run = _Run(World(scenario, seed), History(scenario=scenario, budget_s=budget_s))
    base = _score(run.launch(Configuration()))
    factors = [list(_changes(parameter, scenario.space)) for parameter in scenario.space.parameters]
    factors = [factor for factor in factors if factor]
    rng.shuffle(factors)
    better: list[tuple[float, Change]] = []
    for factor in factors:
        scored = [(_launch_change(run, change), change) for change in factor if run.goes_on]
        if scored and max(scored)[0] > base:
            better.append(max(scored, key=lambda pair: pair[0]))
    better.sort(key=lambda pair: -pair[0])
    chosen = [change for _, change in better]
    for changes in itertools.chain(_products(chosen), _whole_grid(factors, rng)):
        if not run.goes_on:
            break
        _launch_change(run, tuple(itertools.chain(*changes)))
    return run.history


def _changes(parameter: Parameter, space: SearchSpace) -> Iterator[Change]:
    """The values a user would write for it; a method of drafting comes with numbers of tokens."""
    name, domain = setting_name(parameter.target), parameter.domain
    if parameter.when is not None:
        return
    if not isinstance(domain, CategoricalDomain):
        for position in range(GRID_VALUES):
            share = position / (GRID_VALUES - 1)
            if domain.log:
                exact = domain.low * math.pow(domain.high / domain.low, share)
            else:
                exact = domain.low + share * (domain.high - domain.low)
            yield ((name, nearest(domain, exact)),)
        return
    for choice in domain.choices:
        if choice in parameter.omit:
            continue
        if name != knobs.METHOD:
            yield ((name, choice),)
            continue
        for tokens in (2, 4):
            lookup: Change = ((knobs.LOOKUP, 4),) if choice == "ngram" else ()
            yield ((name, choice), (knobs.DRAFTS, tokens), *lookup)


def _products(changes: Sequence[Change]) -> Iterator[Sequence[Change]]:
    """All of them together, then all but one, and so on: the largest products first."""
    for count in range(len(changes), 1, -1):
        yield from itertools.combinations(changes, count)


def _whole_grid(factors: Sequence[Sequence[Change]], rng: random.Random) -> Iterable[Sequence[Change]]:
    while True:
        yield [rng.choice([(), *factor]) for factor in factors]


def _launch_change(run: _Run, change: Change) -> float:
    return _score(run.launch_with({**run.world.scenario.fixed, **dict(change)}))


def _score(result: Attempt) -> float:
    if result.values is None:
        return 0.0
    return math.exp(sum(map(math.log, result.values)) / len(result.values))
