"""The native Optuna study of a study file, and the choice of the next configuration.

The study in the file is the record, readable by `optuna.load_study` and optuna-dashboard. Nothing is ever
sampled on it: what is proposed and not launched leaves no trace there.
"""

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain

import optuna
from optuna.samplers import RandomSampler
from optuna.storages import BaseStorage, InMemoryStorage, RDBStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState

from autotune.decide.told import Told, ToldState
from autotune.domain.launch import server_args
from autotune.domain.refusal import Refusal
from autotune.domain.space import Configuration
from autotune.domain.study import StudySpec
from autotune.domain.trial import Origin, Proposal
from autotune.errors import StoreError, UserError
from autotune.search.candidates import Candidates
from autotune.search.distributions import distributions

ATTEMPTS = 30
"""Uniform draws of what was tried before after which one of them is measured again: in a small space all may
be taken."""

Refuses = Callable[[Configuration], Refusal | None]

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
    """One Optuna study in the database at `url`, begun or continued; the `Search` of the loop.

    Without a `url` it is kept in memory and gone with this object; all else is the same.
    """

    def __init__(self, spec: StudySpec, url: str | None) -> None:
        logging.getLogger("optuna").setLevel(logging.WARNING)
        self._space = spec.space
        directions = [
            StudyDirection.MAXIMIZE if objective.maximize else StudyDirection.MINIMIZE
            for objective in spec.objectives
        ]
        self._study = optuna.create_study(
            study_name=spec.name,
            storage=_storage(url),
            directions=directions,
            # Nothing is ever sampled on the record itself; this sampler only keeps Optuna from making TPE.
            sampler=RandomSampler(seed=spec.seed),
            load_if_exists=True,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            self._study.set_metric_names([str(objective) for objective in spec.objectives])
        self._candidates = Candidates(spec, directions)
        self._starts = [Proposal(configuration=s.configuration, origin=s.origin) for s in spec.starts]
        self._refused_starts: set[str] = set()
        self._words_of: list[object] = []

    @_database_errors()
    def propose(self, refuses: Refuses = lambda _: None) -> Proposal | None:
        """The next configuration: the baseline first, then the start points, then one that is drawn and new.

        Never one that breaks a constraint or is refused; None when all that is drawn is refused. Where
        everything allowed has been tried it is one of those again, if possible one that worked. Raises
        UserError when no draw keeps the constraints of the space.
        """
        history = self._study.get_trials(deepcopy=False)
        if not history and refuses(Configuration()) is None:
            return Proposal(configuration=Configuration(), origin=Origin.BASELINE)
        tried = self._tried(history)
        refused: list[Refusal] = []
        repeats: list[Proposal] = []
        for candidate in chain(self._starts, self._candidates.guided(history)):
            if self._words(candidate.configuration) not in tried and self._allowed(
                candidate, refuses, refused
            ):
                return replace(candidate, refused=tuple(refused))
        for candidate in self._candidates.uniform(history):
            if self._words(candidate.configuration) in tried:
                repeats.append(candidate)
            elif self._allowed(candidate, refuses, refused):
                return replace(candidate, refused=tuple(refused))
            if len(repeats) > ATTEMPTS:
                break
        if not repeats and not refused:
            raise UserError(f"search space {self._space.name}: no configuration keeps its constraints")
        repeats.sort(key=lambda repeat: not tried[self._words(repeat.configuration)])
        again = next((repeat for repeat in repeats if refuses(repeat.configuration) is None), None)
        return again and replace(again, refused=tuple(refused))

    def _allowed(self, candidate: Proposal, refuses: Refuses, refused: list[Refusal]) -> bool:
        """Whether it is not refused; a refusal goes to `refused`, that of a start point the first time."""
        refusal = refuses(candidate.configuration)
        if refusal is None:
            return True
        if candidate.origin in (Origin.FLIP, Origin.EXPERT):
            # They are asked for again each time: the grounds may be gone as the study learns.
            if candidate.configuration.digest in self._refused_starts:
                return False
            self._refused_starts.add(candidate.configuration.digest)
        refused.append(refusal)
        return False

    def _tried(self, history: Sequence[FrozenTrial]) -> Mapping[object, bool]:
        """The words of all that was tried, and whether it ever worked."""
        self._words_of += [self._words(_configuration(t)) for t in history[len(self._words_of) :]]
        tried: dict[object, bool] = {}
        for words, trial in zip(self._words_of, history, strict=True):
            tried[words] = tried.get(words, False) or trial.state == TrialState.COMPLETE
        return tried

    def _words(self, configuration: Configuration) -> object:
        """What makes two configurations the same server."""
        return server_args(self._space, configuration).words

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


def _storage(url: str | None) -> BaseStorage:
    if url is None:
        return InMemoryStorage()
    connect_args: dict[str, object] = {"timeout": 60} if url.startswith("sqlite") else {}
    return RDBStorage(url, engine_kwargs={"connect_args": connect_args})
