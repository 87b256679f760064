"""The native Optuna study of a study file, and the choice of the next configuration.

The study in the file is the record, readable by `optuna.load_study` and optuna-dashboard. Choosing happens on
a copy in memory, made anew for every proposal with a sampler seeded from (study seed, trial number, attempt).
So a proposal that is thrown away (it breaks a constraint, or was tried before) leaves no trace in the record,
and a study that is continued goes on exactly as if it had never stopped.
"""

import logging
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState

from autotune.decide.space.sampling import draw
from autotune.decide.told import Told, ToldState
from autotune.domain.launch import server_args
from autotune.domain.refusal import Refusal
from autotune.domain.space import Configuration, Value
from autotune.domain.study import StudySpec
from autotune.domain.trial import Origin, Proposal
from autotune.errors import HarnessError, StoreError, UserError
from autotune.search.distributions import distribution, distributions

STARTUP_SUCCESSES = 10
"""Trials that worked before TPE takes over from random choice. TPE that begins on fewer locks onto what the
first survivors happen to share; 10 is also Optuna's own default, which however counts failures too."""

ATTEMPTS = 30
"""Allowed draws before one that was tried before is accepted: in a small space all may be taken."""

SAMPLER_DRAWS = 100
"""Draws by the sampler, which take about 10 ms each; then uniform ones, which take hardly any time. A sampler
that is drawn into what lessons forbid for that long has nothing to say about the rest."""

DRAWS = 3000
"""Draws before all is taken to be forbidden."""

_REPEATS = {Origin.CONTROL.value, Origin.FINAL.value}

_STATES = {
    ToldState.COMPLETE: TrialState.COMPLETE,
    ToldState.PRUNED: TrialState.PRUNED,
    ToldState.FAIL: TrialState.FAIL,
}


@contextmanager
def _database_errors() -> Iterator[None]:
    """Optuna's fault in the file becomes the StoreError that any other fault in it is."""
    try:
        yield
    except optuna.exceptions.StorageInternalError as error:
        raise StoreError(f"the study file cannot be used: {error.__cause__ or error}") from error


class OptunaSearch:
    """One Optuna study in the database at `url`, begun or continued; the `Search` of the loop."""

    def __init__(self, spec: StudySpec, url: str) -> None:
        logging.getLogger("optuna").setLevel(logging.WARNING)
        self._space = spec.space
        self._seed = spec.seed
        self._directions = [
            StudyDirection.MAXIMIZE if objective.maximize else StudyDirection.MINIMIZE
            for objective in spec.objectives
        ]
        storage = optuna.storages.RDBStorage(url, engine_kwargs={"connect_args": _connect_args(url)})
        self._study = optuna.create_study(
            study_name=spec.name,
            storage=storage,
            directions=self._directions,
            # Nothing is ever sampled on the record itself; this sampler only keeps Optuna from making TPE.
            sampler=RandomSampler(seed=spec.seed),
            load_if_exists=True,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            self._study.set_metric_names([str(objective) for objective in spec.objectives])

    @_database_errors()
    def propose(self, refuses: Callable[[Configuration], Refusal | None] = lambda _: None) -> Proposal | None:
        """The next configuration: the baseline first, then one that is drawn, allowed and new.

        Never one that breaks a constraint or is refused; None when all that is drawn is refused. Where
        everything allowed has been tried it is one of those again, if possible one that worked. Raises
        UserError when no draw keeps the constraints of the space.
        """
        history = self._study.get_trials(deepcopy=False)
        if not history and refuses(Configuration()) is None:
            return Proposal(configuration=Configuration(), origin=Origin.BASELINE)
        worked: dict[object, bool] = {}
        for trial in history:
            words = self._words(_configuration(trial))
            worked[words] = worked.get(words, False) or trial.state == TrialState.COMPLETE
        refused: list[Refusal] = []
        repeats: list[Configuration] = []
        for candidate in self._allowed_by_constraints(history):
            if refusal := refuses(candidate):
                refused.append(refusal)
                continue
            if self._words(candidate) not in worked:
                return Proposal(configuration=candidate, origin=Origin.SAMPLED, refused=tuple(refused))
            repeats.append(candidate)
            if len(repeats) > ATTEMPTS:
                break
        if not repeats and not refused:
            raise UserError(f"search space {self._space.name}: no configuration keeps its constraints")
        repeats.sort(key=lambda repeat: not worked[self._words(repeat)])
        return (
            Proposal(configuration=repeats[0], origin=Origin.SAMPLED, refused=tuple(refused))
            if repeats
            else None
        )

    def _words(self, configuration: Configuration) -> object:
        """What makes two configurations the same server."""
        args = server_args(self._space, configuration)
        return args.flags, tuple(sorted(args.env.items()))

    def _allowed_by_constraints(self, history: Sequence[FrozenTrial]) -> Iterator[Configuration]:
        """What the sampler would try next, and when it has been asked in vain for long, any configuration."""
        for attempt in range(DRAWS):
            if attempt < SAMPLER_DRAWS:
                candidate = self._draw(history, attempt)
            else:
                key = f"{self._seed}:{len(history)}:{attempt}"
                candidate = draw(self._space, random.Random(key))  # noqa: S311 - reproducible on purpose
            if self._space.violated(candidate) is None:
                yield candidate

    def _draw(self, history: Sequence[FrozenTrial], attempt: int) -> Configuration:
        """What the sampler would try next, given `history`.

        It does not see what was launched again on purpose: a tenth of all trials are its good ones, and the
        repeats of the best, or of the baseline, whose parameters say nothing, would take all of the places.
        """
        heard = [trial for trial in history if trial.user_attrs["origin"] not in _REPEATS]
        sampler = _sampler(heard, f"{self._seed}:{len(history)}:{attempt}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            scratch = optuna.create_study(directions=self._directions, sampler=sampler)
            scratch.add_trials(heard)
            trial = scratch.ask()
            values: dict[str, Value] = {}
            for parameter in self._space.parameters:
                if self._space.is_active(parameter, values):
                    values[parameter.name] = _suggest(trial, parameter.name, distribution(parameter.domain))
        return Configuration(values=values)

    @_database_errors()
    def begin(self, configuration: Configuration, origin: Origin) -> int:
        """Register it as running, in one commit, and return its trial number."""
        self._study.add_trial(
            optuna.trial.create_trial(
                state=TrialState.RUNNING,
                params=dict(configuration.values),
                distributions=distributions(self._space, configuration),
                user_attrs={"origin": origin.value},
            )
        )
        return self._study.get_trials(deepcopy=False)[-1].number

    @_database_errors()
    def tell(self, number: int, told: Told) -> None:
        """Say how it ended; telling a finished trial again changes nothing."""
        frozen = self._study.get_trials(deepcopy=False)[number]
        if frozen.state.is_finished():
            return
        # A handle on a trial of a killed run: `ask` gives one to new trials only.
        trial = Trial(self._study, frozen._trial_id)  # noqa: SLF001 - Optuna's constructor wants its own id
        for name, value in told.constraints.items():
            if name not in trial.constraints:
                trial.set_constraint(name, value)
        self._study.tell(trial, values=told.values, state=_STATES[told.state])

    @_database_errors()
    def running(self) -> Sequence[tuple[int, Configuration, Origin]]:
        """Trials begun and never told."""
        trials = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        return [(t.number, _configuration(t), Origin(t.user_attrs["origin"])) for t in trials]


def _configuration(trial: FrozenTrial) -> Configuration:
    return Configuration(values=trial.params)


def _sampler(history: Sequence[FrozenTrial], key: str) -> BaseSampler:
    """Random until enough trials have worked, then multivariate TPE, conditional groups kept together."""
    seed = random.Random(key).getrandbits(32)  # noqa: S311 - reproducible on purpose
    worked = sum(trial.state == TrialState.COMPLETE and bool(trial.params) for trial in history)
    if worked < STARTUP_SUCCESSES:
        return RandomSampler(seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return TPESampler(seed=seed, n_startup_trials=0, multivariate=True, group=True)


def _suggest(trial: Trial, name: str, domain: BaseDistribution) -> Value:
    match domain:
        case optuna.distributions.IntDistribution(low=low, high=high, step=step, log=log):
            return trial.suggest_int(name, low, high, step=step, log=log)
        case optuna.distributions.FloatDistribution(low=low, high=high, step=step, log=log):
            return trial.suggest_float(name, low, high, step=step, log=log)
        case optuna.distributions.CategoricalDistribution(choices=choices):
            chosen = trial.suggest_categorical(name, choices)
            if chosen is not None:
                return chosen
    raise HarnessError(f"parameter {name}: Optuna gave no value for {domain}")


def _connect_args(url: str) -> dict[str, object]:
    return {"timeout": 60} if url.startswith("sqlite") else {}
