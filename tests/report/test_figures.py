"""What the figures show, as numbers: against the study that they are of, for every kind of study."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from builders import failure
from landscape import MadeServer
from studies_made import ONE, THREE, TWO, StudyMaker

from autotune.decide.ranking import front as front_of
from autotune.decide.ranking import values_of
from autotune.domain.effective import Effective
from autotune.domain.failure import Blame, Failure, FailureKind
from autotune.domain.trial import Measured, Origin
from autotune.report import figures
from autotune.report.figures import FIGURES, Nothing, Plot, night
from autotune.report.view import StudyView
from autotune.wiring.open import open_store
from autotune.wiring.view import read_view

Trace = Mapping[str, list[object]]


def read(path: Path) -> StudyView:
    with open_store(str(path)) as store:
        return read_view(store)


def made(folder: Path, **fields: object) -> StudyView:
    maker = StudyMaker(path=folder / "made.db", with_optuna=False, **fields)  # type: ignore[arg-type]
    return read(maker.write())


def never(_number: int, _server: MadeServer) -> Failure | None:
    return failure(kind=FailureKind.GPU_OOM, rule="oom")


def but_one(number: int, server: MadeServer) -> Failure | None:
    return None if number == 3 else never(number, server)


KINDS: Mapping[str, Mapping[str, object]] = {
    "two objectives": {"trials": 40, "objectives": TWO, "invocations": 2},
    "one objective": {"trials": 12, "objectives": ONE},
    "a latency alone": {"trials": 8, "objectives": ("ttft_p50@16",)},
    "a latency second": {"trials": 8, "objectives": ("out_tok_s@16", "tpot_p50@16")},
    "three objectives": {"trials": 30, "objectives": THREE},
    "four objectives": {"trials": 12, "objectives": (*THREE, "req_s@4")},
    "no success": {"trials": 6, "failure": never},
    "one success": {"trials": 6, "failure": but_one},
    "one trial": {"trials": 1},
    "one running": {"trials": 5, "outcome_of_last": "running"},
    "the first one running": {"trials": 1, "outcome_of_last": "running"},
    "one killed": {"trials": 5, "outcome_of_last": "killed", "invocations": 2},
    "no trial": {"trials": 0},
}


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], StudyView]:
    """Each study is made once."""
    known: dict[str, StudyView] = {}

    def view(kind: str) -> StudyView:
        if kind not in known:
            known[kind] = made(tmp_path_factory.mktemp("study"), **KINDS[kind])
        return known[kind]

    return view


def traces(plot: Plot | Nothing) -> list[Trace]:
    assert isinstance(plot, Plot)
    return json.loads(plot.figure.to_json())["data"]


def axes(plot: Plot | Nothing) -> Mapping[str, Mapping[str, object]]:
    assert isinstance(plot, Plot)
    layout = json.loads(plot.figure.to_json())["layout"]
    return {name: part for name, part in layout.items() if name[1:5] == "axis"}


def texts(part: object) -> Iterator[str]:
    """Every text in a figure that a person might read."""
    match part:
        case str():
            yield part
        case Mapping():
            for inner in part.values():
                yield from texts(inner)
        case list():
            for inner in part:
                yield from texts(inner)


@pytest.mark.parametrize("kind", KINDS)
def test_every_study_has_every_figure_or_a_reason(views: Callable[[str], StudyView], kind: str) -> None:
    view = views(kind)
    numbers = {record.number for record in view.records}
    for make in FIGURES:
        plot = make(view)
        assert plot.key == make.__name__
        assert plot.title
        if isinstance(plot, Nothing):
            assert plot.why.endswith(".")
            continue
        assert plot.says.endswith(".")
        assert plot.table.rows
        assert all(len(row) == len(plot.table.columns) for row in plot.table.rows)
        for trace in traces(plot):
            for custom in trace.get("customdata", []):
                assert custom[0] is None or custom[0] in numbers  # type: ignore[index]
        assert not {"NaN", "Infinity"} & set(plot.figure.to_json().replace(",", " ").split())


def shown(view: StudyView) -> set[str]:
    return {make.__name__ for make in FIGURES if isinstance(make(view), Plot)}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("no trial", set()),
        ("the first one running", {"timeline"}),
        ("no success", {"timeline", "failures"}),
        ("one success", {"front", "interactivity", "ladders", "timeline", "failures", "hypervolume"}),
        ("one trial", {"front", "interactivity", "ladders", "timeline", "hypervolume"}),
    ],
)
def test_what_there_is_nothing_of_is_not_drawn(
    views: Callable[[str], StudyView], kind: str, expected: set[str]
) -> None:
    assert shown(views(kind)) == expected


@pytest.mark.parametrize("kind", ["two objectives", "three objectives", "one objective", "a latency second"])
def test_the_front_is_that_of_the_ranking(views: Callable[[str], StudyView], kind: str) -> None:
    view = views(kind)
    numbers = [record.number for record in front_of(view.records, view.info.objectives)]
    assert [candidate.record.number for candidate in view.front] == numbers
    plot = figures.front(view)
    assert isinstance(plot, Plot)
    assert sorted(row[0] for row in plot.table.rows if row[1] == "yes") == numbers
    drawn = {custom[0] for trace in traces(plot) for custom in trace.get("customdata", [])}  # type: ignore[index]
    measured = {r.configuration.digest for r in view.records if isinstance(r.outcome, Measured)}
    assert len(drawn) == len(measured)


def test_the_front_stands_where_its_values_are(views: Callable[[str], StudyView]) -> None:
    view = views("two objectives")
    values = {candidate.record.number: candidate.values for candidate in view.candidates}
    for trace in traces(figures.front(view)):
        if "customdata" in trace:
            places = zip(trace["customdata"], trace["x"], trace["y"], strict=True)
            assert all(values[custom[0]] == (y, x) for custom, x, y in places)  # type: ignore[index]
    line = traces(figures.front(view))[0]
    assert line["mode"] == "lines"
    assert sorted(line["x"], key=str) == sorted((c.values[1] for c in view.front), key=str)


def test_what_to_deploy_and_the_defaults_are_marked(views: Callable[[str], StudyView]) -> None:
    view = views("two objectives")
    assert view.best is not None
    by_name = {str(trace["name"]): trace for trace in traces(figures.front(view)) if "name" in trace}
    assert by_name["vLLM's defaults"]["customdata"] == [[0]]
    assert by_name["to deploy"]["customdata"] == [[view.best.number]]
    others = {candidate.record.number for candidate in view.front} - {0, view.best.number}
    assert {custom[0] for custom in by_name["on the front"]["customdata"]} == others  # type: ignore[index]


def test_throughput_and_interactivity_go_together_by_the_number_of_streams(
    views: Callable[[str], StudyView],
) -> None:
    plot = figures.interactivity(views("two objectives"))
    for trace in traces(plot):
        if trace["mode"] == "markers":
            for custom, x, y in zip(trace["customdata"], trace["x"], trace["y"], strict=True):
                assert y == pytest.approx(x * custom[1])  # type: ignore[index]
    edge = traces(plot)[0]
    assert edge["name"] == "the best of all"
    assert edge["x"] == sorted(edge["x"], reverse=True)  # type: ignore[type-var]
    assert edge["y"] == sorted(edge["y"])  # type: ignore[type-var]


def test_a_ladder_is_the_mean_of_all_launches_with_their_interval(
    views: Callable[[str], StudyView],
) -> None:
    view = views("two objectives")
    plot = figures.ladders(view)
    assert isinstance(plot, Plot)
    at_16 = next(row for row in plot.table.rows if row[1:3] == (0, 16))
    rates = [r.points[-1].out_tok_s for r in view.records if not r.configuration.values]
    assert at_16[3] == len(rates) > 3
    assert min(rates) < float(at_16[4] or 0) < max(rates)
    assert float(at_16[5] or 0) < float(at_16[4] or 0) < float(at_16[6] or 0)
    # Of a single launch a rate has no interval, and a latency has that of its requests.
    single = next(row for row in plot.table.rows if row[3] == 1)
    assert single[5:7] == (None, None)
    assert float(single[8] or 0) < float(single[7] or 0) < float(single[9] or 0)


def test_the_timeline_accounts_for_all_of_the_time(views: Callable[[str], StudyView]) -> None:
    view = views("two objectives")
    plot = figures.timeline(view)
    assert isinstance(plot, Plot)
    spent_s = sum(invocation.spent_s or 0 for invocation in view.invocations)
    assert sum(float(row[2] or 0) for row in plot.table.rows) == pytest.approx(spent_s, rel=1e-6)
    assert sum(float(row[3] or 0) for row in plot.table.rows) == pytest.approx(100)
    drawn = sum(sum(trace["x"]) for trace in traces(plot))  # type: ignore[arg-type]
    assert drawn == pytest.approx(spent_s / 60, rel=1e-6)
    by_name = {row[0]: row for row in plot.table.rows}
    assert by_name["finals"][1] == sum(record.origin is Origin.FINAL for record in view.records)
    failed = sum(record.failure is not None for record in view.records)
    assert by_name["failed"][1] == failed
    assert f"{by_name['failed'][3]:.0f} % into trials that failed" in plot.title


def test_of_many_trials_heights_are_shares_of_the_time(
    views: Callable[[str], StudyView], monkeypatch: pytest.MonkeyPatch
) -> None:
    view = views("two objectives")
    separate = figures.timeline(view)
    monkeypatch.setattr(night, "MOST_SEPARATE", 10)
    dense = figures.timeline(view)
    assert isinstance(dense, Plot)
    assert isinstance(separate, Plot)
    assert dense.table == separate.table
    width_s = sum(invocation.spent_s or 0 for invocation in view.invocations) / 120
    places: dict[object, list[tuple[float, float]]] = {}
    for trace in traces(dense):
        for x, base, y in zip(trace["x"], trace["base"], trace["y"], strict=True):
            row = round(float(base) - 1e-6)  # type: ignore[arg-type]
            places.setdefault((row, x), []).append((base, base + y))  # type: ignore[operator,arg-type]
    for row, (name, _, total_s, *_) in enumerate(dense.table.rows):
        own = [sorted(bars, reverse=True) for (at, _), bars in places.items() if at == row]  # type: ignore[misc]
        heights = sum(bottom - top for bars in own for bottom, top in bars)
        assert heights / 0.8 * width_s == pytest.approx(total_s), name
        # From the bottom of the row upwards, without gaps and never beyond its top.
        for bars in own:
            assert bars[0][0] == pytest.approx(row + 0.4)
            assert all(below[1] == pytest.approx(above[0]) for below, above in pairwise(bars))
            assert bars[-1][1] >= row - 0.4001


def test_failures_are_counted_and_their_lessons_shown(views: Callable[[str], StudyView]) -> None:
    view = views("two objectives")
    plot = figures.failures(view)
    assert isinstance(plot, Plot)
    failed = [record.number for record in view.records if record.failure]
    listed = sorted(int(number) for row in plot.table.rows for number in str(row[4]).split(", "))
    assert listed == failed
    assert sum(int(row[3] or 0) for row in plot.table.rows) == len(failed)
    taught = [str(lesson.finding) for lesson, _ in view.lessons]
    assert taught
    assert sorted(str(row[9]) for row in plot.table.rows if row[9]) == sorted(taught)


def test_many_causes_are_drawn_up_to_a_number_and_all_listed(tmp_path: Path) -> None:
    def each_its_own(number: int, _server: MadeServer) -> Failure | None:
        return failure(rule=f"rule-{number}") if number % 2 else None

    view = made(tmp_path, trials=40, failure=each_its_own, blocks=0)
    plot = figures.failures(view)
    assert isinstance(plot, Plot)
    assert len(traces(plot)[0]["x"]) == 12
    assert len(plot.table.rows) == 20
    assert "8 further causes in the table" in plot.says


def test_importance_is_told_from_chance(views: Callable[[str], StudyView]) -> None:
    view = views("two objectives")
    plot = figures.importance(view)
    assert isinstance(plot, Plot)
    for objective, trace in zip(view.importance, traces(plot), strict=True):
        found = view.importance[objective]
        clear = [opacity == 1 for opacity in trace["marker"]["opacity"]]  # type: ignore[call-overload]
        drawn = list(zip(trace["x"], clear, strict=True))
        assert all((100 * found.shares[name], True) in drawn for name in found.beyond_chance)
        assert sum(clear) == len(found.beyond_chance)


def test_slices_show_each_value_with_what_it_gave_and_where_it_failed(
    views: Callable[[str], StudyView],
) -> None:
    view = views("two objectives")
    plot = figures.slices(view)
    assert isinstance(plot, Plot)
    rows = [row for row in plot.table.rows if row[0] == "speculation"]
    assert [row[1] for row in rows] == ["off", "ngram", "mtp"]
    assert view.baseline is not None
    base = view.candidates[0].values
    for row in rows:
        own = [c for c in view.candidates if c.record.configuration.values.get("speculation") == row[1]]
        failed = [
            r for r in view.records if r.failure and r.configuration.values.get("speculation") == row[1]
        ]
        assert row[2:4] == (len(own), len(failed))
        assert row[5] == pytest.approx(max(c.values[0] / base[0] for c in own))
    parts = [row for row in plot.table.rows if row[0] == "max_num_seqs"]
    assert len(parts) == 3
    set_at_all = [c for c in view.candidates if "max_num_seqs" in c.record.configuration.values]
    assert sum(int(row[2] or 0) for row in parts) == len(set_at_all)


def test_the_hypervolume_never_falls_and_ends_with_the_front(views: Callable[[str], StudyView]) -> None:
    for kind in ("two objectives", "three objectives", "one objective", "a latency alone"):
        view = views(kind)
        plot = figures.hypervolume(view)
        assert isinstance(plot, Plot)
        volumes = [float(row[3] or 0) for row in plot.table.rows]
        assert volumes == sorted(volumes)
        assert volumes[0] == pytest.approx(1.0)
        steps = {row[0] for row in plot.table.rows}
        assert {candidate.record.number for candidate in view.front} <= steps
        assert "finals" in set(texts(json.loads(plot.figure.to_json())["layout"]))


@pytest.mark.parametrize("kind", ["two objectives", "three objectives", "one objective", "one running"])
def test_axes_say_what_and_in_which_unit(views: Callable[[str], StudyView], kind: str) -> None:
    untitled = {"timeline": {"yaxis"}, "failures": {"yaxis"}, "importance": {"yaxis"}}
    for make in FIGURES:
        plot = make(views(kind))
        if isinstance(plot, Nothing) or plot.key == "slices":
            continue
        for name, axis in axes(plot).items():
            if name not in untitled.get(plot.key, set()):
                assert axis["title"]["text"], (plot.key, name)  # type: ignore[index]
            assert axis["automargin"] is True


def test_units_of_the_objectives_are_on_the_axes(views: Callable[[str], StudyView]) -> None:
    found = axes(figures.front(views("a latency second")))
    assert found["xaxis"]["title"]["text"] == "tpot_p50@16 (s), less is better"  # type: ignore[index]
    assert found["yaxis"]["title"]["text"] == "out_tok_s@16 (tok/s), more is better"  # type: ignore[index]


def test_context_colours_markers_only_where_it_differs(views: Callable[[str], StudyView]) -> None:
    def coloured(view: StudyView) -> bool:
        shown = traces(figures.front(view))[-1]["marker"]["color"]  # type: ignore[call-overload]
        return isinstance(shown, list)

    view = views("two objectives")
    assert coloured(view)
    same = [
        replace(
            candidate,
            record=replace(
                candidate.record,
                effective=Effective(facts={"max_model_len": 8192}),
            ),
        )
        for candidate in view.candidates
    ]
    assert not coloured(replace(view, candidates=tuple(same)))


def test_a_study_read_while_it_runs_says_so(views: Callable[[str], StudyView]) -> None:
    assert views("one running").may_be_running
    assert not views("two objectives").may_be_running
    assert len(views("two objectives").budgets_s) == 2
    plot = figures.timeline(views("one running"))
    assert isinstance(plot, Plot)
    assert "running now" in [row[0] for row in plot.table.rows]


def test_the_user_is_never_to_blame_for_what_he_cannot_see(tmp_path: Path) -> None:
    """A failure that no rule knows has its root line in the table, whole."""
    line = "RuntimeError: " + "x" * 300

    def strange(number: int, _server: MadeServer) -> Failure | None:
        return failure(Blame.UNKNOWN, kind=FailureKind.UNKNOWN, root_line=line) if number else None

    plot = figures.failures(made(tmp_path, trials=3, failure=strange))
    assert isinstance(plot, Plot)
    assert plot.table.rows[0][8] == line


def test_values_are_those_of_the_study(views: Callable[[str], StudyView]) -> None:
    view = views("one objective")
    single = [c for c in view.candidates if c.launches == 1]
    assert single
    for candidate in single:
        assert values_of(candidate.record, view.info.objectives) == candidate.values
