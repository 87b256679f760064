"""A study for optuna-dashboard: an Optuna study in memory, made so that what is best there is best here.

optuna-dashboard (0.21) takes every COMPLETE trial for one that may be best: it looks neither at the
constraints that Optuna 5 keeps nor at which trials are launches of one configuration. Only what stands for a
configuration that was measured is COMPLETE here, with that configuration's values.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from wsgiref.types import WSGIApplication

import optuna
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState

from autotune.decide.told import ToldState
from autotune.domain.objective import Objective
from autotune.domain.space import Configuration, SearchSpace
from autotune.errors import EnvironmentFault
from autotune.search.distributions import distributions

_STATES: Mapping[ToldState | None, TrialState] = {
    ToldState.COMPLETE: TrialState.COMPLETE,
    ToldState.PRUNED: TrialState.PRUNED,
    ToldState.FAIL: TrialState.FAIL,
    None: TrialState.RUNNING,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTrial:
    """A trial as the dashboard has it. `state` is None while it runs; `note` is Markdown."""

    state: ToldState | None
    values: tuple[float, ...] | None
    configuration: Configuration
    attributes: Mapping[str, str | int | float]
    note: str
    started_at: datetime
    finished_at: datetime | None


def dashboard_app(
    name: str, objectives: Sequence[Objective], space: SearchSpace, trials: Iterable[ShownTrial], note: str
) -> WSGIApplication:
    """optuna-dashboard on a study in memory; the first of `trials` has number 0.

    Raises EnvironmentFault when it is not installed.
    """
    try:
        from optuna_dashboard import save_note, wsgi
    except ModuleNotFoundError as error:
        if error.name != "optuna_dashboard":
            raise
        raise EnvironmentFault(
            "optuna-dashboard is not installed; install it with: pip install 'vllm-autotune[dashboard]'"
        ) from None
    study = _study(name, objectives)
    notes: Callable[[Study | Trial, str], None] = save_note
    notes(study, note)
    for number, shown in enumerate(trials):
        study.add_trial(_frozen(shown, space))
        # What keeps notes wants a handle, which Optuna itself gives for new trials only.
        key = study.get_trials(deepcopy=False)[number]._trial_id  # noqa: SLF001 - `Trial` wants Optuna's own id
        notes(Trial(study, key), shown.note)
    app: WSGIApplication = wsgi(study._storage)  # noqa: SLF001 - a study does not tell where it is kept
    return app


def _study(name: str, objectives: Sequence[Objective]) -> Study:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study = optuna.create_study(
            storage=optuna.storages.InMemoryStorage(),
            study_name=name,
            sampler=optuna.samplers.RandomSampler(seed=0),
            directions=[
                StudyDirection.MAXIMIZE if objective.maximize else StudyDirection.MINIMIZE
                for objective in objectives
            ],
        )
        study.set_metric_names([str(objective) for objective in objectives])
    return study


def _frozen(shown: ShownTrial, space: SearchSpace) -> FrozenTrial:
    return FrozenTrial(
        number=-1,  # given by the study
        trial_id=-1,
        state=_STATES[shown.state],
        value=None,
        values=shown.values,
        datetime_start=_local(shown.started_at),
        datetime_complete=None if shown.finished_at is None else _local(shown.finished_at),
        params=dict(shown.configuration.values),
        distributions=distributions(space, shown.configuration),
        user_attrs=dict(shown.attributes),
        system_attrs={},
        intermediate_values={},
    )


def _local(moment: datetime) -> datetime:
    """Optuna's own moments are of local time, without saying so."""
    return moment.astimezone().replace(tzinfo=None)
