"""How much each parameter mattered for each objective, by Optuna's PED-ANOVA.

It asks how differently a parameter is distributed among the best configurations than among all that worked,
and takes a parameter that is set in some of them only for what it is (https://arxiv.org/abs/2601.20800).
Shares always add up to 1, so that with few configurations something looks important even where nothing is:
the values are shuffled among the configurations to see how large a share chance alone gives.
"""

import logging
import random
import warnings
from collections.abc import Mapping, Sequence

import optuna
from optuna.distributions import BaseDistribution
from optuna.importance import PedAnovaImportanceEvaluator
from optuna.study import Study
from optuna.trial import TrialState

from autotune.decide.ranking import Candidate
from autotune.domain.importance import Importance
from autotune.domain.objective import Objective
from autotune.domain.space import SearchSpace
from autotune.search.distributions import distributions

ENOUGH = 20
"""Configurations below which nothing can be told. Simulated with 3 of 10 parameters that matter, one of the
others still came first with 20 configurations, which is why `beyond_chance` is told as well."""

BEST = 5
"""Configurations that at least count as the best; a tenth of all where that is more, as Optuna has it. It
advises at least 5."""

SHUFFLES = 19
"""To be above all of 19 shuffles has a chance of 1 in 20."""


def importances(
    candidates: Sequence[Candidate], objectives: Sequence[Objective], space: SearchSpace
) -> Mapping[str, Importance]:
    """By the name of the objective, the same for the same candidates. The baseline sets nothing: left out."""
    own = [candidate for candidate in candidates if candidate.record.configuration.values]
    if len(own) < ENOUGH:
        few = f"only {len(own)} configurations were measured beside the baseline; {ENOUGH} are needed"
        return {str(objective): Importance(missing=few) for objective in objectives}
    study = _study(own, space)
    return {
        str(objective): _importance(study, [_cost(candidate.values[i], objective) for candidate in own])
        for i, objective in enumerate(objectives)
    }


def _cost(value: float, objective: Objective) -> float:
    """Less is better."""
    return -value if objective.maximize else value


def _study(candidates: Sequence[Candidate], space: SearchSpace) -> Study:
    """The candidates as trials of a study in memory. Its own values stay unused."""
    # It tells of every study that is made.
    logging.getLogger("optuna").setLevel(logging.WARNING)
    known: dict[str, BaseDistribution] = {}
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for candidate in candidates:
        known = {**distributions(space, candidate.record.configuration), **known}
    study.add_trials(
        optuna.trial.create_trial(
            state=TrialState.COMPLETE,
            params=dict(candidate.record.configuration.values),
            distributions={name: known[name] for name in candidate.record.configuration.values},
            value=0.0,
        )
        for candidate in candidates
    )
    return study


def _importance(study: Study, costs: Sequence[float]) -> Importance:
    if len(set(costs)) == 1:
        return Importance(missing="all configurations gave the same")
    found = _ped_anova(study, costs)
    total = sum(found.values())
    if total == 0:
        return Importance(missing="the best configurations are spread like all others")
    order = sorted(found, key=lambda name: (-found[name], name))
    return Importance(
        shares={name: found[name] / total for name in order},
        beyond_chance=frozenset(_beyond_chance(study, costs, found)),
    )


def _beyond_chance(study: Study, costs: Sequence[float], found: Mapping[str, float]) -> set[str]:
    """Those of `found` that no shuffle of the values among the configurations reaches."""
    left = sorted(found)
    for seed in range(SHUFFLES):
        shuffled = random.Random(seed).sample(costs, len(costs))  # noqa: S311 - reproducible on purpose
        by_chance = _ped_anova(study, shuffled, left)
        left = [name for name in left if found[name] > by_chance[name]]
    return set(left)


def _ped_anova(
    study: Study, costs: Sequence[float], parameters: list[str] | None = None
) -> Mapping[str, float]:
    """Of each of the `parameters`, of all where none are named."""
    evaluator = PedAnovaImportanceEvaluator(target_quantile=max(0.1, BEST / len(costs)))
    with warnings.catch_warnings():
        # It warns of every `target`, and of each parameter that hardly any trial has: that counts little.
        warnings.simplefilter("ignore")
        return evaluator.evaluate(study, parameters, target=lambda trial: costs[trial.number])
