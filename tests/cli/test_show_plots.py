"""`autotune show` in terminals: the Pareto plot and the ladders, wide, narrow, without colour, piped."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from builders import failure
from studies_made import THREE, StudyMaker
from terminal import colours, in_terminal, plain

AUTOTUNE = (sys.executable, "-m", "autotune")
BARS = set("\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588")
UP, ACROSS = "output of all streams, tok/s", "tok/s for each stream"


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("few") / "s.db"
    return StudyMaker(path=path, trials=5, with_optuna=False).write()


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("many") / "s.db"
    return StudyMaker(path=path, trials=200, with_optuna=False).write()


@cache
def _show(study: Path, *words: str, columns: int = 80, **env: str) -> str:
    code, seen = in_terminal([*AUTOTUNE, "show", *words, "--db", str(study)], columns=columns, env=env)
    assert code == 0, seen
    return seen


def _lines(seen: str) -> list[str]:
    return plain(seen).rstrip().split("\n")


def _plot(seen: str) -> list[str]:
    """Its lines, from the label of one axis to the legend below that of the other."""
    lines = _lines(seen)
    begin = next((number for number, line in enumerate(lines) if line.startswith(UP)), len(lines))
    return lines[begin:]


def _piped(study: Path, *words: str, columns: int = 80) -> str:
    env = {**os.environ, "COLUMNS": str(columns)}
    done = subprocess.run(
        [*AUTOTUNE, "show", *words, "--db", str(study)], env=env, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.parametrize(("which", "columns"), [("study", 80), ("study", 50), ("night", 80), ("night", 200)])
def test_the_plot_fits_has_its_axes_and_marks_front_defaults_and_best(
    request: pytest.FixtureRequest, which: str, columns: int
) -> None:
    study: Path = request.getfixturevalue(which)
    plot = _plot(_show(study, columns=columns))
    assert max(map(len, plot)) <= min(80, columns)
    assert any(ACROSS in line for line in plot)
    canvas = [line.partition("|")[2] for line in plot if "|" in line]
    best = json.loads(_best(study))["best"]
    drawn = set("".join(canvas)) - {" "}
    legend = plot[-1]
    assert drawn <= set("@*o.")
    assert {mark for mark in "@*o." if f"{mark} " in legend} == drawn
    is_default = not best["parameters"]
    assert f"@ best: {'the defaults' if is_default else 'trial {}'.format(best['number'])}" in legend
    assert ("o defaults" in legend) is not is_default
    assert "".join(canvas).count("@") == 3  # one for each stream count


def _best(study: Path) -> str:
    words = [*AUTOTUNE, "best", "--json", "--db", str(study)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_the_fastest_is_at_the_top_and_the_axes_have_what_was_measured(night: Path) -> None:
    trials = json.loads(_piped(night, "--json"))["trials"]
    rates = [p["out_tok_s"] for t in trials for p in t["points"] if t["state"] == "measured"]
    plot = _plot(_show(night))
    top = float(plot[1].split("|")[0].replace(",", ""))
    assert top == pytest.approx(max(rates), rel=0.1)  # a mean over launches, never more than the largest
    assert top <= max(rates) * 1.001
    assert set(plot[1].partition("|")[2]) - {" "}
    assert set(plot[12].partition("|")[2]) - {" "}


def test_below_50_columns_there_is_no_plot_and_no_line_is_broken_by_the_terminal(study: Path) -> None:
    seen = _show(study, columns=40)
    assert UP not in seen
    head, *lines = _lines(seen)
    assert head.startswith("s: acme/Chat-8B")  # a line of its own, as long as the names are
    rows = lines[lines.index("trial  state            took") :]
    assert max(len(line.rstrip()) for line in rows) <= 40
    assert any("out_tok_s@16" in line for line in rows)


def test_each_row_has_its_ladder(night: Path) -> None:
    lines = _lines(_show(night))
    rows = [line for line in lines if " measured " in line]
    assert rows
    for row in rows:
        ladder = row.split()[-1]
        assert set(ladder) <= BARS
        assert len(ladder) == 3
    defaults = rows[0].split()[-1]
    assert list(defaults) == sorted(defaults)
    assert "\u2588" in "".join(row.split()[-1] for row in rows)  # the fastest of all is a full one
    assert not any(BARS & set(line) for line in lines if " failed " in line)


def test_one_trial_has_its_ladder_too_and_where_blocks_cannot_be_written_other_characters(
    study: Path,
) -> None:
    line = next(line for line in _lines(_show(study, "0")) if line.startswith("Ladder"))
    assert BARS & set(line)
    assert line.endswith("output tok/s at 1, 4, 16 streams")
    seen = _show(study, "0", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    line = next(line for line in _lines(seen) if line.startswith("Ladder"))
    assert line.split()[1].isascii()
    assert line.split()[1][-1] == "@"
    assert "?" not in line


def test_no_colour_is_needed_and_none_is_set_where_none_is_wanted(study: Path) -> None:
    seen = _show(study, NO_COLOR="1")
    assert colours(seen) == set()
    assert colours(_show(study))
    assert _plot(seen) == _plot(_show(study))


def test_on_a_dumb_terminal_and_in_a_pipe_it_is_a_list_alone(study: Path) -> None:
    dumb = _show(study, TERM="dumb")
    assert "\x1b" not in dumb
    piped = _piped(study)
    assert UP not in dumb + piped
    assert not BARS & set(dumb + piped)
    assert [line.rstrip() for line in _lines(dumb)] == [line.rstrip() for line in piped.rstrip().split("\n")]
    narrow = _piped(study, columns=40)
    assert "out_tok_s@16" in narrow.split("trial  state", 1)[1].split("\n", 1)[0]
    assert set(json.loads(_piped(study, "--json"))) == {"study", "trials", "front"}


def test_three_objectives_fit_too(tmp_path: Path) -> None:
    made = StudyMaker(path=tmp_path / "s.db", trials=12, objectives=THREE, with_optuna=False).write()
    seen = _show(made)
    assert "@ best: " in _plot(seen)[-1]
    assert max(len(line.rstrip()) for line in _lines(seen)[1:]) <= 80


def test_a_study_without_a_measured_trial_has_no_plot(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    StudyMaker(path=path, trials=3, failure=lambda _n, _s: failure(), with_optuna=False).write()
    assert UP not in _show(path)
