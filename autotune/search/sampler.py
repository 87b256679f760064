"""What Optuna's TPE would try next, without a trace in any study.

It is asked through the interface that Optuna has for samplers, with a trial that no study knows, about a copy
of the trials in memory that grows with the study.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.samplers import TPESampler
from optuna.storages import InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from autotune.decide.space.sampling import nearest
from autotune.domain.space import (
    CategoricalDomain,
    Configuration,
    Domain,
    FloatDomain,
    IntDomain,
    Parameter,
    SearchSpace,
    Value,
)
from autotune.errors import HarnessError
from autotune.search.distributions import distribution

WIDE = 64
"""Whole numbers from which on TPE has real ones in their place. With 12 parameters and 100 trials a draw took
20 ms, nine tenths of them for the probability of every single number of three wide ranges."""

_NO_TRIAL = create_trial(state=TrialState.RUNNING)
"""What samplers are asked for; TPE does not look at it, unless it is to lie about others that are running."""


class Tpe:
    """Multivariate TPE over `space`: all parameters with the same condition are drawn together.

    Optuna's own way to group them (`group=True`) goes by what trials set together, and one that sets a single
    parameter, a neighbour of the baseline for example, parts that from all others for good.
    """

    def __init__(self, space: SearchSpace, directions: Sequence[StudyDirection]) -> None:
        self._space = space
        self._directions = list(directions)
        self._views = {parameter.name: _View(parameter) for parameter in space.parameters}
        self._heard: list[int] = []
        self._copy, self._study_id = self._new_copy()

    def draws(self, heard: Sequence[FrozenTrial], seed: int) -> Iterator[Configuration]:
        """Without end, what it would try after the finished trials `heard`: the same for the same `seed`."""
        sampler = TPESampler(seed=seed, n_startup_trials=0, multivariate=True, constant_liar=False)
        self._hear(heard)
        # A study reads its trials when it is first asked, and never again unless it makes one.
        study = optuna.load_study(study_name=None, storage=self._copy, sampler=sampler)
        groups = self._groups(heard)
        while True:
            drawn: dict[str, object] = {}
            values: dict[str, Value] = {}
            for name, view in self._views.items():
                if self._space.is_active(view.parameter, values):
                    if name not in drawn:
                        drawn |= sampler.sample_relative(study, _NO_TRIAL, groups[name])
                    values[name] = view.value(drawn.get(name))
            yield Configuration(values=values)

    def successes(self, heard: Sequence[FrozenTrial]) -> int:
        """How many of the finished trials `heard` worked and speak for the largest group."""
        largest = max(self._groups(heard).values(), key=len, default={})
        worked = (trial.params.keys() for trial in heard if trial.state == TrialState.COMPLETE)
        return sum(bool(names) and largest.keys() <= names for names in worked)

    def _groups(self, heard: Sequence[FrozenTrial]) -> Mapping[str, dict[str, BaseDistribution]]:
        """Of each parameter, those that are drawn with it, itself included where there is a choice at all.

        A trial speaks for a group if it sets all of it. Of parameters with the same condition that is the set
        that most trials set; the others, whose own value vLLM is mostly left to find, are drawn alone.
        """
        free = {name: view for name, view in self._views.items() if not view.distribution.single()}
        groups: dict[str, dict[str, BaseDistribution]] = {name: {} for name in self._views}
        for condition in dict.fromkeys(view.parameter.when for view in free.values()):
            names = {name for name, view in free.items() if view.parameter.when == condition}
            counts = Counter(frozenset(names & trial.params.keys()) for trial in heard)
            together = max(filter(None, counts), key=lambda s: (counts[s], len(s), sorted(s)), default=names)
            for name in names:
                members = together if name in together else {name}
                # In an order of their own: that of a set changes from process to process.
                groups[name] = {n: free[n].distribution for n in sorted(members)}
        return groups

    def _hear(self, heard: Sequence[FrozenTrial]) -> None:
        """Have exactly `heard` in the copy; as a rule all but the last few of them are there."""
        numbers = [trial.number for trial in heard]
        if numbers[: len(self._heard)] != self._heard:
            self._heard = []
            self._copy, self._study_id = self._new_copy()
        for trial in heard[len(self._heard) :]:
            self._copy.create_new_trial(self._study_id, template_trial=self._seen(trial))
        self._heard = numbers

    def _new_copy(self) -> tuple[InMemoryStorage, int]:
        copy = InMemoryStorage()
        return copy, copy.create_new_study(self._directions)

    def _seen(self, trial: FrozenTrial) -> FrozenTrial:
        views = {name: self._views[name] for name in trial.params}
        return create_trial(
            state=trial.state,
            values=trial.values,
            params={name: view.seen(trial.params[name]) for name, view in views.items()},
            distributions={name: view.distribution for name, view in views.items()},
            # Constraints are kept there.
            system_attrs=trial.system_attrs,
        )


class _View:
    """A parameter as TPE sees it."""

    def __init__(self, parameter: Parameter) -> None:
        self.parameter = parameter
        self.distribution = _distribution(parameter.domain)

    def seen(self, value: Value) -> Value:
        """`value` for TPE."""
        return float(value) if isinstance(self.distribution, FloatDistribution) else value

    def value(self, drawn: object) -> Value:
        """Of what TPE drew; None where there is only one."""
        domain = self.parameter.domain
        match domain, drawn:
            case CategoricalDomain(choices=choices), _:
                return choices[0] if drawn is None else next(c for c in choices if c == drawn)
            case ((IntDomain() | FloatDomain()), int() | float() | None):
                return nearest(domain, domain.low if drawn is None else drawn)
        raise HarnessError(f"parameter {self.parameter.name}: TPE drew {drawn!r}")


def _distribution(domain: Domain) -> BaseDistribution:
    match domain:
        case IntDomain(low=low, high=high, step=step, log=log) if (high - low) // step >= WIDE:
            # Half a step beyond both ends, which are then drawn as often as the numbers between them.
            return FloatDistribution(low=low - step / 2, high=high + step / 2, log=log)
        case _:
            return distribution(domain)
