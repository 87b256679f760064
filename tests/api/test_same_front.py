"""The front is the same trials in Python, on the command line, in the report and in optuna-dashboard."""

import json
from collections.abc import Sequence
from pathlib import Path
from wsgiref.types import WSGIApplication
from wsgiref.util import setup_testing_defaults

import optuna
import pytest
from studies_made import ONE, THREE, TWO, StudyMaker
from typer.testing import CliRunner

import autotune
from autotune.cli import app
from autotune.report.figures import Plot, front
from autotune.wiring.dashboard import copy_app
from autotune.wiring.open import look_into
from autotune.wiring.view import read_view


def get(application: WSGIApplication, path: str) -> dict[str, object]:
    """What a WSGI application answers to GET."""
    environ: dict[str, object] = {"PATH_INFO": path, "REQUEST_METHOD": "GET"}
    setup_testing_defaults(environ)
    body = b"".join(application(environ, lambda *_: lambda _: None))
    found = json.loads(body)
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module", params=[ONE, TWO, THREE], ids=["one", "two", "three"])
def study(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Finals launch the best again: their single launches lie around what their configurations give."""
    path = tmp_path_factory.mktemp("front") / "front.db"
    return StudyMaker(path=path, trials=30, objectives=request.param, blocks=4, seed=2).write()


def _of_command(path: Path, command: str) -> Sequence[int]:
    done = CliRunner().invoke(app, [command, "--db", str(path), "--json"])
    assert done.exit_code == 0, done.output
    found: Sequence[int] = json.loads(done.stdout)["front"]
    return found


def test_it_is_the_same_trials_everywhere(study: Path) -> None:
    with look_into(str(study)) as store:
        view = read_view(store)
    expected = sorted(candidate.record.number for candidate in view.front)
    assert any(candidate.launches > 1 for candidate in view.front)

    api = autotune.open(study)
    assert sorted(api.pareto()["trial"]) == expected
    assert sorted(api.trials[api.trials["on_front"]]["trial"]) == expected
    assert sorted(_of_command(study, "best")) == expected
    assert sorted(_of_command(study, "show")) == expected

    plot = front(view)
    assert isinstance(plot, Plot)
    if len(view.info.objectives) > 1:
        assert sorted(row[0] for row in plot.table.rows if row[1]) == expected

    shown = get(copy_app(view), "/api/studies/0")
    assert sorted(trial["number"] for trial in shown["best_trials"]) == expected
    assert shown["objective_names"] == [str(objective) for objective in view.info.objectives]


def test_the_record_itself_would_show_lucky_launches_as_best(study: Path) -> None:
    """Why there is a copy: of the record a dashboard takes each launch for itself."""
    with look_into(str(study)) as store:
        expected = [candidate.record.number for candidate in read_view(store).front]
    record = optuna.load_study(study_name=None, storage=f"sqlite:///{study}")
    assert sorted(trial.number for trial in record.best_trials) != sorted(expected)


def test_the_dashboard_has_every_trial_with_its_note_and_only_configurations_complete(study: Path) -> None:
    with look_into(str(study)) as store:
        view = read_view(store)
    shown = get(copy_app(view), "/api/studies/0")
    trials = shown["trials"]
    assert [trial["number"] for trial in trials] == [record.number for record in view.records]
    complete = {trial["number"]: trial["values"] for trial in trials if trial["state"] == "Complete"}
    assert complete == {c.record.number: list(c.values) for c in view.candidates}
    for trial, record in zip(trials, view.records, strict=True):
        note = trial["note"]["body"].replace("\\", "")
        attributes = {each["key"]: each["value"] for each in trial["user_attrs"]}
        assert attributes["origin"] == record.origin
        assert {each["name"] for each in trial["params"]} == set(record.configuration.values)
        if record.failure:
            assert attributes["failure"] == record.failure.kind
            assert record.failure.why in note
            assert record.failure.cure in note
        else:
            assert float(attributes["gain"]) > 0
            assert "measured" in note
