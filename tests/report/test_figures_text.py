"""Text from outside is text in every figure, and the themes can be read on both backgrounds."""

import html
import json
import re
from pathlib import Path

import pytest
from builders import failure
from hypothesis import given
from hypothesis import strategies as st
from landscape import MadeServer
from studies_made import NASTY, StudyMaker

from autotune.domain.failure import Failure, FailureKind
from autotune.domain.space import CategoricalDomain, Parameter, Target, TargetKind
from autotune.report.failure import plain
from autotune.report.figures import DARK, FIGURES, LIGHT, Plot
from autotune.report.figures.parts import time_unit
from autotune.report.figures.text import HOVER_CHARS, clipped, escaped, folded, lines
from autotune.report.figures.theme import PAGES, SCALE, SERIES
from autotune.wiring.open import open_store
from autotune.wiring.view import read_view

OURS = re.compile(r"</?b>|<br>")
"""The markup that figures use themselves."""


def is_plain(text: str) -> bool:
    """Whether Plotly would find nothing in `text` but our own markup, and no control character."""
    rest = OURS.sub("", text)
    return not set(rest) & set("<>$\x1b\x00\n\u202e") and "&" not in re.sub(r"&(#36|amp|lt|gt);", "", rest)


@given(st.text())
def test_escaped_text_is_plain_and_comes_back(text: str) -> None:
    assert is_plain(escaped(text))
    assert html.unescape(escaped(text)) == plain(text)


@given(st.text(), st.integers(2, 60))
def test_lines_are_no_longer_than_asked(text: str, chars: int) -> None:
    assert all(len(html.unescape(row)) <= chars for row in lines([text], chars).split("<br>"))
    assert all(len(html.unescape(row)) <= chars for row in folded(text, chars, 3).split("<br>"))
    assert len(folded(text, chars, 3).split("<br>")) <= 3


def test_a_name_is_folded_at_its_underscores() -> None:
    assert folded("max_num_batched_tokens", 16) == "max_num_batched_<br>tokens"
    assert folded("gpu_memory_utilization", 9) == "gpu_<br>memory_u…"
    assert folded("off", 9) == "off"
    assert clipped("abcdef", 4) == "abc…"


@pytest.fixture(scope="module")
def nasty_plots(tmp_path_factory: pytest.TempPathFactory) -> list[Plot]:
    """All figures of a study whose model, values and failures are as bad as text can be."""
    extra = Parameter(
        name="quality",
        domain=CategoricalDomain(choices=NASTY),
        target=Target(kind=TargetKind.FLAG, name="--quality"),
    )

    def fails(number: int, server: MadeServer) -> Failure | None:
        if number % 4 != 3:
            return None
        said = NASTY[number % 3]
        return failure(kind=FailureKind.UNKNOWN, why=said, cure=said, root_line=f"{said}\0{number}")

    path = tmp_path_factory.mktemp("nasty") / "<b>&$x$.db"
    StudyMaker(path=path, trials=45, model=NASTY[0], failure=fails, extra=extra, with_optuna=False).write()
    with open_store(str(path)) as store:
        view = read_view(store)
    plots = [make(view) for make in FIGURES]
    return [plot for plot in plots if isinstance(plot, Plot)]


def test_every_label_of_every_figure_is_plain(nasty_plots: list[Plot]) -> None:
    assert len(nasty_plots) == len(FIGURES)
    for plot in nasty_plots:
        figure = json.loads(plot.figure.to_json())
        figure["layout"].pop("template")
        found = list(_texts(figure))
        assert [text for text in found if not is_plain(text)] == [], plot.key
    hovers = " ".join(text for plot in nasty_plots for text in _texts(json.loads(plot.figure.to_json())))
    assert "&lt;img src=x onerror=alert(1)&gt;" in hovers
    assert "␛[31mred" in hovers


def test_labels_are_short_enough_for_a_phone(nasty_plots: list[Plot]) -> None:
    for plot in nasty_plots:
        for trace in json.loads(plot.figure.to_json())["data"]:
            for text in trace.get("hovertext") or []:
                rows = [html.unescape(OURS.sub("", row)) for row in text.split("<br>")]
                assert all(len(row) <= HOVER_CHARS for row in rows)
                assert len(rows) <= 25


def test_tables_keep_the_text_as_it_is(nasty_plots: list[Plot]) -> None:
    cells = [str(cell) for plot in nasty_plots for row in plot.table.rows for cell in row]
    assert any(NASTY[0] in cell for cell in cells)
    assert any("\x1b[31m" in cell for cell in cells)


def _texts(part: object) -> list[str]:
    match part:
        case str():
            return [part]
        case dict():
            return [text for key, inner in part.items() if key != "bdata" for text in _texts(inner)]
        case list():
            return [text for inner in part for text in _texts(inner)]
    return []


def _luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(a: str, b: str) -> float:
    """As WCAG 2 defines it."""
    low, high = sorted((_luminance(a), _luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("page", PAGES)
def test_colours_stand_out_from_both_pages(page: str) -> None:
    for colour in {*SERIES, *(colour for _, colour in SCALE)}:
        assert _contrast(colour, PAGES[page]) >= 3, colour
    template = {"light": LIGHT, "dark": DARK}[page]
    assert _contrast(template.layout.font.color, PAGES[page]) >= 7
    assert template.layout.paper_bgcolor == "rgba(0,0,0,0)"


def test_figures_leave_text_and_page_to_the_theme(nasty_plots: list[Plot]) -> None:
    for plot in nasty_plots:
        layout = json.loads(plot.figure.to_json())["layout"]
        assert not {"paper_bgcolor", "plot_bgcolor", "font", "title", "width"} & layout.keys()
        assert layout["template"]["layout"]["font"]["color"] == LIGHT.layout.font.color


@pytest.mark.parametrize(("total_s", "unit"), [(50, "seconds"), (3000, "minutes"), (30000, "hours")])
def test_the_unit_of_time_suits_it(total_s: float, unit: str) -> None:
    assert time_unit(total_s)[1] == unit


def test_the_same_study_gives_the_same_figures(tmp_path: Path) -> None:
    path = StudyMaker(path=tmp_path / "s.db", trials=30, with_optuna=False).write()
    with open_store(str(path)) as store:
        once, again = read_view(store), read_view(store)
    for make in FIGURES:
        a, b = make(once), make(again)
        if isinstance(a, Plot) and isinstance(b, Plot):
            assert a.figure.to_json() == b.figure.to_json()
            assert (a.title, a.says, a.table) == (b.title, b.says, b.table)
        else:
            assert a == b
