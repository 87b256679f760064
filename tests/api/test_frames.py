"""Frames have the documented columns and types, also without a row, and hold what is kept."""

from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest
from studies_made import THREE, StudyMaker

import autotune
from autotune.api.columns import FAILURES, FRONT, LESSONS, POINTS, REQUESTS, TRIALS, dtypes, markdown
from autotune.domain.failure import Blame, Failure, FailureKind, Phase
from autotune.report.spreadsheet import point_rows, request_rows
from autotune.wiring.open import look_into

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
TABLES = {
    "trials": TRIALS,
    "points": POINTS,
    "requests": REQUESTS,
    "failures": FAILURES,
    "lessons": LESSONS,
    "pareto": FRONT,
}


def _frame(study: autotune.Study, name: str) -> pd.DataFrame:
    found = getattr(study, name)
    frame = found() if callable(found) else found
    assert isinstance(frame, pd.DataFrame)
    return frame


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> autotune.Study:
    """A study in which nothing has worked."""
    failure = Failure(
        kind=FailureKind.MODEL_ACCESS, phase=Phase.CONFIG, blame=Blame.USER, why="No such model.", cure=""
    )
    path = tmp_path_factory.mktemp("empty") / "empty.db"
    return autotune.open(StudyMaker(path=path, trials=2, blocks=0, failure=lambda *_: failure).write())


@pytest.mark.parametrize("name", TABLES)
def test_the_page_has_the_table(name: str) -> None:
    assert markdown(TABLES[name]) in PAGE


@pytest.mark.parametrize("name", TABLES)
def test_columns_and_types_are_the_documented_ones(name: str, made: Path, empty: autotune.Study) -> None:
    for study in (autotune.open(made), empty):
        frame = _frame(study, name)
        told = {
            column: str(kind)
            for column, kind in frame.dtypes.items()
            if not str(column).startswith("set_") and "@" not in str(column)
        }
        assert told == dtypes(TABLES[name])


def test_a_study_in_which_nothing_worked_is_no_error(empty: autotune.Study) -> None:
    assert list(empty.trials["state"]) == ["failed", "failed"]
    assert list(empty.failures["why"]) == ["No such model."] * 2
    assert len(empty.points) == len(empty.requests()) == len(empty.pareto()) == 0
    assert empty.best() is None
    answer = empty.what_if({"ttft_p50@4": 2.0}, context_tokens=1)
    assert (answer.best, len(answer.rows)) == (None, 0)
    assert answer.says == "None of 0 measured configurations fits context >= 1 and ttft_p50@4<=2s."
    assert "No configuration has been measured yet." in empty._repr_html_()


def test_points_are_those_of_the_command_line(made: Path) -> None:
    with look_into(str(made)) as store:
        rows = point_rows(store.records())
    frame = autotune.open(made).points
    assert len(frame) == len(rows)
    for name in dtypes(POINTS):
        kept = [row[name] for row in rows]
        seen = [None if pd.isna(value) else value for value in frame[name]]
        assert seen == kept, name


def test_requests_are_those_of_the_command_line(made: Path) -> None:
    frame = autotune.open(made).requests(trial=0, streams=4, gaps=True)
    with look_into(str(made)) as store:
        measured = [point for point in store.measured_points(0) if point.point.streams == 4]
    rows = request_rows(0, measured)
    assert len(frame) == len(rows) > 0
    for name in rows[0]:
        kept = [row[name] for row in rows]
        seen = [None if pd.isna(value) else value for value in frame[name]]
        assert seen == pytest.approx(kept, abs=1e-6) if name.endswith("_s") else seen == kept, name
    for request, gaps, longest in zip(
        measured[0].requests, frame["chunk_gaps_s"], frame["max_gap_s"], strict=True
    ):
        moments = [request.sent_s, *request.chunk_s]
        between = [later - earlier for earlier, later in pairwise(moments)]
        assert list(gaps) == pytest.approx(between, abs=1e-6)
        assert longest == pytest.approx(max(between[1:]), abs=1e-6)


def test_all_requests_are_those_of_every_trial(made: Path) -> None:
    study = autotune.open(made)
    every = study.requests()
    assert sorted(set(every["trial"])) == sorted(set(study.points["trial"]))
    parts = [study.requests(streams=count) for count in study.streams]
    assert sum(map(len, parts)) == len(every)


def test_settings_and_objectives_have_columns_of_their_own(tmp_path: Path) -> None:
    path = StudyMaker(path=tmp_path / "three.db", trials=6, blocks=0, objectives=THREE).write()
    study = autotune.open(path)
    assert study.objectives == THREE
    objectives = ["out_tok_s@16", "out_tok_s@1", "ttft_p50_s@16"]
    assert [column for column in study.trials if "@" in column] == objectives
    assert [column for column in study.pareto() if "@" in column] == objectives
    measured = study.trials[study.trials["state"] == "measured"]
    points = study.points.set_index(["trial", "streams"])
    for row in measured.itertuples():
        assert row._4 == points.loc[(row.trial, 16), "ttft_p50_s"]
    assert study.trials["set_max_num_seqs"].dtype == "Int64"
    assert pd.isna(study.trials.loc[0, "set_max_num_seqs"])


def test_a_failure_leads_to_its_lesson(made: Path) -> None:
    study = autotune.open(made)
    lessons = study.lessons.set_index("lesson")
    told = study.failures.dropna(subset="lesson")
    assert len(told) == len(lessons) > 0
    for failure in told.itertuples():
        assert lessons.loc[failure.lesson, "trial"] == failure.trial


def test_every_figure_is_drawn_or_says_why_not(made: Path, empty: autotune.Study) -> None:
    names = [name for name in dir(autotune.Study) if name.startswith("plot_")]
    assert len(names) == 8
    for study in (autotune.open(made), empty):
        for name in names:
            figure = getattr(study, name)()
            assert figure.data or any(note.text for note in figure.layout.annotations), name
            assert figure.layout.paper_bgcolor != getattr(study, name)(dark=True).layout.paper_bgcolor
