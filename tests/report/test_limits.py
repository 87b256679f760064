"""Limits wherever a study is shown: what breaks one is no choice, and everything says the same of it."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from builders import failed, measured, objectives, point, record
from studies_made import StudyMaker

import autotune
from autotune.decide.limits import Held
from autotune.decide.ranking import incumbent
from autotune.decide.verdict import verdict
from autotune.domain.measurement import Interval
from autotune.domain.metric_limit import MetricLimit, parse_metric_limits
from autotune.domain.trial import Measured, TrialRecord
from autotune.errors import UserError
from autotune.report import figures, words
from autotune.report.figures import Nothing, Plot
from autotune.report.limits import nothing_to_deploy
from autotune.report.page import page
from autotune.report.page.environment import facts
from autotune.report.page.trials import trial_documents
from autotune.report.verdict import sentences
from autotune.report.view import StudyView
from autotune.search.dashboard import ShownTrial
from autotune.wiring import dashboard
from autotune.wiring.compare import read_side
from autotune.wiring.open import look_into
from autotune.wiring.view import read_view

LIMIT = MetricLimit.parse("ttft_p50@8<=2s")
MADE = "ttft_p50@4<=180ms"
"""In made studies the fastest break it: those that draft with the model's own heads."""


def _held(value: float, **more: object) -> Held:
    fields: dict[str, object] = {"interval": None, "launches": 1, "of_finals": False}
    return Held(limit=LIMIT, value=value, **{**fields, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (_held(1.5), "keeps ttft_p50@8<=2s: 1.50 s"),
        (_held(2.6), "breaks ttft_p50@8<=2s: 2.60 s"),
        (_held(2.004), "breaks ttft_p50@8<=2s: 2.00 s (0.2 % beyond)"),
        (_held(1.5, launches=3), "keeps ttft_p50@8<=2s: 1.50 s, mean of 3 launches"),
        (_held(1.5, launches=1, of_finals=True), "keeps ttft_p50@8<=2s: 1.50 s, 1 launch in the finals"),
        (_held(1.5, interval=Interval(low=1.2, high=1.9)), "keeps ttft_p50@8<=2s: 1.50 s"),
        (
            _held(1.5, launches=3, of_finals=True, interval=Interval(low=0.9, high=2.5)),
            "keeps ttft_p50@8<=2s: 1.50 s, mean of 3 launches in the finals, but its 95 % interval, "
            "900.0 ms to 2.50 s, reaches across the limit",
        ),
    ],
)  # fmt: skip
def test_how_a_configuration_stands_to_a_limit_is_said_with_what_that_rests_on(held: Held, said: str) -> None:
    assert words.limit_held(held) == said


def _trial(number: int, rate: float, ttft_s: float) -> TrialRecord:
    return record(number, Measured(points=(point(8, rate, ttft_s=ttft_s),)), {"a": number} if number else {})


@pytest.mark.parametrize(
    ("records", "said"),
    [
        (
            [_trial(0, 100.0, 2.6), _trial(1, 80.0, 1.5)],
            [
                "Candidate: trial 1, a=1: looks like 0.80 times vLLM's defaults",
                "Trial 1 keeps ttft_p50@8<=2s: 1.50 s.",
                "vLLM's defaults are no choice: trial 0 breaks ttft_p50@8<=2s: 2.60 s.",
            ],
        ),
        (
            [_trial(0, 100.0, 1.0), _trial(1, 900.0, 3.0)],
            ["Nothing else than vLLM's defaults keeps the limits: deploy those. Trial 0 keeps"],
        ),
        (
            [_trial(0, 100.0, 1.0), _trial(1, 90.0, 1.5)],
            ["Nothing measured is clearly faster than vLLM's defaults", "Trial 0 keeps ttft_p50@8<=2s"],
        ),
    ],
)
def test_the_verdict_says_what_is_kept_and_why_the_defaults_are_no_choice(
    records: list[TrialRecord], said: list[str]
) -> None:
    wanted = objectives("out_tok_s@8")
    found = verdict(records, wanted, limits=(LIMIT,))
    assert found is not None
    text = sentences(found, wanted)
    for part in said:
        assert part in text


def test_where_nothing_keeps_the_limits_the_nearest_is_named_with_what_it_breaks() -> None:
    wanted = objectives("out_tok_s@8")
    records = [_trial(0, 100.0, 2.6), _trial(1, 80.0, 2.1), record(2, failed(), {"a": 2})]
    assert verdict(records, wanted, limits=(LIMIT,)) is None
    assert nothing_to_deploy(records, wanted, (LIMIT,)) == (
        "No configuration keeps the limit ttft_p50@8<=2s, of 2 measured. Nearest comes trial 1, a=1: "
        "it breaks ttft_p50@8<=2s: 2.10 s."
    )
    both = parse_metric_limits(["ttft_p50@8<=2s", "out_tok_s@8>=90"])
    assert nothing_to_deploy(records, wanted, both) == (
        "No configuration keeps all limits, ttft_p50@8<=2s and out_tok_s@8>=90, of 2 measured. Nearest comes "
        "trial 1, a=1: it breaks ttft_p50@8<=2s: 2.10 s; breaks out_tok_s@8>=90: 80.0 tok/s."
    )


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([], "No configuration has been measured yet."),
        ([record(0, failed(), {})], "No configuration has been measured yet."),
        ([record(0, measured(s1=1.0), {})], "No configuration has been scored yet: too few requests fit"),
        (
            [_trial(1, 9.0, 1.0), record(2, failed(), {"a": 1})],
            "What was measured has also failed by its own",
        ),
    ],
)
def test_other_reasons_why_nothing_is_chosen(records: list[TrialRecord], said: str) -> None:
    assert nothing_to_deploy(records, objectives("out_tok_s@8"), (LIMIT,)).startswith(said)


@dataclass(frozen=True)
class Shown:
    """A made study, and the trials in it that break the limit by themselves."""

    path: Path
    view: StudyView
    breaking: set[int]

    def says(self, *words: str) -> str:
        command = [sys.executable, "-m", "autotune", *words, "--db", str(self.path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
        return done.stdout


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    path = StudyMaker(
        path=tmp_path_factory.mktemp("limits") / "made.db", trials=14, limits=[MADE], with_optuna=False
    ).write()
    with look_into(str(path)) as store:
        view = read_view(store)
    limit = MetricLimit.parse(MADE)
    breaking = {r.number for r in view.records if r.points and (limit.violation(r.points) or 0) > 0}
    assert 0 < len(breaking) < len(view.candidates)
    return Shown(path, view, breaking)


def test_the_fastest_of_the_made_study_breaks_the_limit_and_another_one_wins(shown: Shown) -> None:
    fastest = incumbent(shown.view.records, shown.view.info.objectives)
    assert fastest is not None
    assert fastest.number in shown.breaking
    assert shown.view.best is not None
    assert shown.view.best.number not in shown.breaking
    assert not shown.breaking & {candidate.record.number for candidate in shown.view.front}


def test_every_way_to_look_names_the_same_front_and_the_same_best(shown: Shown) -> None:
    study = autotune.open(shown.path)
    assert study.limits == (MADE,)
    numbers = [candidate.record.number for candidate in shown.view.front]
    best = study.best()
    assert best is not None
    assert shown.view.best is not None
    document = json.loads(shown.says("best", "--json"))
    assert document["front"] == list(study.pareto()["trial"]) == numbers
    assert document["front"] == json.loads(shown.says("show", "--json"))["front"]
    assert document["best"]["number"] == best.trial == shown.view.best.number
    assert list(study.trials.loc[study.trials["on_front"], "trial"]) == numbers
    assert f"Trial {best.trial} keeps {MADE}" in best.says
    assert [limit["keeps"] for limit in document["verdict"]["limits"]] == [True]
    assert document["study"]["limits"] == [MADE]


def test_frames_say_who_keeps_the_limits(shown: Shown) -> None:
    study = autotune.open(shown.path)
    trials = study.trials
    assert set(trials.loc[~trials["keeps_limits"].fillna(True), "trial"]) == shown.breaking
    assert trials.loc[trials["state"] != "measured", "keeps_limits"].isna().all()
    assert (study.pareto()["ttft_p50_s@4"] <= 0.18).all()
    assert study.about["limits"] == MADE


def test_a_what_if_holds_the_limits_of_the_study_unless_it_asks_for_others(shown: Shown) -> None:
    study = autotune.open(shown.path)
    assert not shown.breaking & set(study.what_if().rows["trial"])
    loose = study.what_if({"ttft_p50@4": 2.0})
    assert shown.breaking & set(loose.rows["trial"])
    both = study.what_if({"out_tok_s@1": 50.0})
    assert not shown.breaking & set(both.rows["trial"])
    assert f"out_tok_s@1>=50 and {MADE}" in both.says
    with pytest.raises(UserError, match="what_if: a limit must be above 0"):
        study.what_if({"ttft_p50@4": 0.0})


def test_show_marks_what_breaks_a_limit_and_says_which(shown: Shown) -> None:
    lines = shown.says("show").splitlines()
    assert f"! breaks a limit ({MADE})" in " ".join(lines)
    marked = {int(line.split("!")[0]) for line in lines if line[4:5] == "!"}
    assert marked == shown.breaking
    assert sum(f"breaks {MADE}: " in line for line in lines) == len(shown.breaking)
    one = shown.says("show", str(min(shown.breaking)))
    assert f"breaks {MADE}: " in one
    keeps = shown.view.front[0].record.number
    assert f"Limits         keeps {MADE}: " in shown.says("show", str(keeps))
    document = json.loads(shown.says("show", str(min(shown.breaking)), "--json"))
    assert list(document["breaks"]) == [MADE]
    assert document["breaks"][MADE] > 0.18


def test_best_can_be_asked_by_other_limits_afterwards(shown: Shown, tmp_path: Path) -> None:
    free = json.loads(shown.says("best", "--json", "--limit", "ttft_p50@4<=2s"))
    assert set(free["front"]) & shown.breaking
    script = tmp_path / "launch.sh"
    printed = shown.says("best", "--limit", "out_tok_s@1>=50", "--export", str(script))
    assert "keeps out_tok_s@1>=50" in printed
    assert f"keeps {MADE}" in printed
    assert f"# limits   Trial {shown.view.best.number} keeps out_tok_s@1>=50" in script.read_text()  # type: ignore[union-attr]


def test_the_report_marks_them_and_names_the_limits(shown: Shown) -> None:
    plot = figures.front(shown.view)
    assert isinstance(plot, Plot)
    (crosses,) = [trace for trace in plot.figure.data if trace.name == "breaks a limit"]
    assert {data[0] for data in crosses.customdata} <= shown.breaking
    assert all("breaks ttft_p50@4&lt;=180ms" in hover for hover in crosses.hovertext)
    assert f"break {MADE}: they are no choice" in plot.says
    assert plot.table.columns[3:6] == ("out_tok_s@1 (tok/s)", "ttft_p50@4 (s)", "breaks")
    broken = {row[0] for row in plot.table.rows if row[5]}
    assert broken == {c.record.number for c in shown.view.candidates if c.broken}
    volume = figures.hypervolume(shown.view)
    assert isinstance(volume, Plot)
    assert not shown.breaking & {row[0] for row in volume.table.rows}
    assert ("Limits", MADE) in facts(shown.view)
    documents = {each["number"]: each for each in trial_documents(shown.view)}
    assert {number for number, each in documents.items() if each["breaks"]} == shown.breaking
    assert {
        number for number, each in documents.items() if "breaks ttft" in str(each["why"])
    } == shown.breaking
    assert "ttft_p50@4&lt;=180ms" in page(shown.view)


def test_what_is_compared_as_the_best_of_a_study_keeps_its_limits(shown: Shown, hopeless: Path) -> None:
    assert shown.view.best is not None
    assert read_side(str(shown.path), None).name.endswith(f", trial {shown.view.best.number} (its best)")
    with pytest.raises(UserError, match="No configuration keeps the limit"):
        read_side(str(hopeless), None)


def test_the_dashboard_has_none_of_them_complete(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[ShownTrial] = []
    monkeypatch.setattr(dashboard, "dashboard_app", lambda *given: kept.extend(given[3]))
    dashboard.copy_app(shown.view)
    complete = {number for number, trial in enumerate(kept) if trial.values is not None}
    assert complete == {c.record.number for c in shown.view.candidates if c.keeps_limits}
    for number in shown.breaking:
        assert kept[number].state == "pruned"
        assert r"breaks ttft\_p50\@4" in kept[number].note
        assert kept[number].attributes["breaks"] == MADE


@pytest.fixture(scope="module")
def hopeless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study in which nothing keeps the limit."""
    path = tmp_path_factory.mktemp("hopeless") / "hopeless.db"
    return StudyMaker(path=path, trials=5, blocks=0, limits=["ttft_p50@16<=1ms"], with_optuna=False).write()


def test_where_nothing_keeps_the_limits_everything_says_so_and_nothing_breaks(hopeless: Path) -> None:
    said = "No configuration keeps the limit ttft_p50@16<=1ms, of "
    command = [sys.executable, "-m", "autotune", "best", "--db", str(hopeless)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())
    study = autotune.open(hopeless)
    assert study.best() is None
    assert len(study.pareto()) == 0
    assert "No configuration keeps the limit ttft_p50@16&lt;=1ms" in study._repr_html_()
    with look_into(str(hopeless)) as store:
        view = read_view(store)
    assert view.baseline is not None
    plot = figures.front(view)
    assert isinstance(plot, Plot)
    assert f"none of {len(view.candidates)} measured configurations keeps the limits" in plot.title
    assert isinstance(figures.hypervolume(view), Nothing)
    for make in (figures.ladders, figures.interactivity, figures.slices, figures.timeline):
        make(view)
    assert "No configuration keeps the limit" in page(view)
