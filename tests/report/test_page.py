"""The report as text: complete in itself, free of what does not belong, the same trials as elsewhere."""

import gzip
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from hashlib import sha256
from html.parser import HTMLParser
from itertools import count
from pathlib import Path

import pytest
from builders import failure
from sqlalchemy import Engine, event
from studies_made import NASTY, ONE, THREE, StudyMaker

from autotune.domain.failure import Failure
from autotune.domain.launch import shell_lines
from autotune.report.page import page
from autotune.report.verdict import sentences
from autotune.report.view import StudyView
from autotune.store.connection import open_engine
from autotune.store.evidence import EvidenceStore
from autotune.wiring.open import open_store
from autotune.wiring.view import read_view

VOID = {"meta", "br", "img", "input", "link", "hr", "wbr"}


class Document(HTMLParser):
    """The elements of a page, and the text of each by its id."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self.by_id: dict[str, str] = {}
        self._open: list[tuple[str, str]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.elements.append((tag, attributes))
        if tag not in VOID:
            self._open.append((tag, attributes.get("id", "")))
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1][0] == "script":
            self.scripts[-1] += data
        elif not self._open or self._open[-1][0] != "style":
            self.text += data
        for _, name in self._open:
            self.by_id[name] = self.by_id.get(name, "") + data

    def unpacked(self, name: str) -> str:
        return gzip.decompress(b64decode(self.by_id[name])).decode()

    @property
    def data(self) -> dict[str, list[dict[str, object]]]:
        found: dict[str, list[dict[str, object]]] = json.loads(self.unpacked("data"))
        return found

    @property
    def words(self) -> str:
        return " ".join(self.text.split())


def view_of(path: Path) -> StudyView:
    with open_store(str(path)) as store:
        return read_view(store)


Make = Callable[..., StudyView]


@pytest.fixture
def made(tmp_path: Path) -> Make:
    """Writes a study file and reads it."""
    paths = (tmp_path / f"made{number}.db" for number in count())
    return lambda **how: view_of(StudyMaker(path=next(paths), **how).write())


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> StudyView:
    return view_of(StudyMaker(path=tmp_path_factory.mktemp("night") / "night.db", trials=24).write())


@pytest.fixture(scope="module")
def document(night: StudyView) -> Document:
    return Document(page(night))


def test_it_refers_to_nothing_outside(document: Document) -> None:
    for tag, attributes in document.elements:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base"}
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith("#")
        assert not any(name.startswith("on") or name == "style" for name in attributes)


def test_only_the_programs_that_come_with_it_run(document: Document) -> None:
    policy = next(a["content"] for _, a in document.elements if "Content-Security" in a.get("http-equiv", ""))
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["connect-src"] == "'none'"
    assert "http" not in policy
    _, _, program = document.scripts
    expected = [
        f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
        for text in (document.unpacked("plotly"), program)
    ]
    assert rules["script-src"].split() == expected


def test_nothing_in_its_program_ends_it_early(document: Document) -> None:
    program = document.scripts[-1]
    assert program.rstrip().endswith("})();")
    assert "<!--" not in program
    assert "innerHTML" not in program


def test_it_has_the_trials_of_the_study(night: StudyView, document: Document) -> None:
    trials = document.data["trials"]
    assert [trial["number"] for trial in trials] == [record.number for record in night.records]
    assert [trial["command"] for trial in trials] == [shell_lines(r.argv, r.env) for r in night.records]
    on_front = {trial["number"] for trial in trials if trial["front"]}
    assert on_front == {candidate.record.number for candidate in night.front}
    assert on_front
    told = {trial["number"]: trial["values"] for trial in trials}
    for record in night.records:
        values = [objective.value(record.points) for objective in night.info.objectives]
        assert told[record.number] == [None if v is None else pytest.approx(v, rel=1e-4) for v in values]


def test_it_says_the_verdict_and_how_to_start_it(night: StudyView, document: Document) -> None:
    assert night.verdict is not None
    assert sentences(night.verdict, night.info.objectives, brief=True) in document.words
    command = shell_lines(night.verdict.chosen.argv, night.verdict.chosen.env)
    assert command in document.by_id["verdict"]
    assert command in [a.get("data-copy") for _, a in document.elements]


def test_it_groups_the_failures(night: StudyView, document: Document) -> None:
    failures = [record.failure for record in night.records if record.failure]
    assert failures
    for failed in failures:
        assert f"{failed.kind} at {failed.phase}" in document.by_id["failures"]
    assert any(lesson.trial for lesson, _ in night.lessons)
    for lesson, _ in night.lessons:
        assert str(lesson.finding) in document.by_id["failures"]


def test_it_says_what_was_compared_at_each_stream_count(night: StudyView, document: Document) -> None:
    compared = " ".join(document.by_id["comparison"].split())
    assert "Output tokens per second" in compared
    assert "blocks of the finals" in compared
    for streams in night.info.workload.streams:
        assert f" {streams} " in compared


def test_every_anchor_leads_somewhere(document: Document) -> None:
    ids = [a["id"] for _, a in document.elements if "id" in a]
    assert len(ids) == len(set(ids))
    for _, attributes in document.elements:
        if "href" in attributes:
            assert attributes["href"].removeprefix("#") in ids


def _nasty(text: str) -> Callable[[int, object], Failure | None]:
    """All but the baseline fail, and say `text`."""
    return lambda number, _: failure(why=text, root_line=text, cure=text) if number else None


@pytest.mark.parametrize("text", NASTY)
def test_text_from_outside_is_text(text: str, made: Make) -> None:
    plain, view = (made(model=name, trials=6, failure=_nasty(name)) for name in ("plain", text))
    document = Document(page(view))
    assert {tag for tag, _ in document.elements} == {tag for tag, _ in Document(page(plain)).elements}
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e]", document.text)
    for word in re.findall(r"\w+", text)[:6]:
        assert document.words.count(word) >= 3


def _no_success(number: int, _server: object) -> Failure | None:
    return failure()


def _no_baseline(number: int, _server: object) -> Failure | None:
    return None if number else failure()


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"trials": 1, "blocks": 0}, "Nothing else was measured than vLLM's defaults"),
        ({"trials": 4, "failure": _no_success}, "No configuration has been measured yet."),
        ({"trials": 4, "blocks": 0, "failure": _no_baseline}, "vLLM's defaults could not be measured here"),
        ({"trials": 8, "objectives": ONE, "blocks": 0}, "out_tok_s@16"),
        ({"trials": 12, "objectives": THREE}, "ttft_p50@16"),
        ({"trials": 4, "blocks": 0, "outcome_of_last": "running"}, "The study is still running"),
        ({"trials": 4, "blocks": 0, "outcome_of_last": "killed"}, "Candidate|deploy those"),
    ],
    ids=["single", "none", "no baseline", "one objective", "three objectives", "running", "killed"],
)
def test_it_says_the_right_thing_of_any_study(how: dict[str, object], said: str, made: Make) -> None:
    document = Document(page(made(**how)))
    assert re.search(said, document.words)
    assert len(document.data["trials"]) >= 1


def test_a_page_that_is_renewed_says_so(night: StudyView, document: Document) -> None:
    assert "renewal" not in document.by_id
    renewed = Document(page(night, renewed_every_s=7.0))
    assert [a["data-every-s"] for _, a in renewed.elements if a.get("id") == "renewal"] == ["7.0"]


def test_it_reads_no_raw_request(tmp_path: Path) -> None:
    path = StudyMaker(path=tmp_path / "study.db", trials=4).write()
    engine: Engine = open_engine(f"sqlite:///{path}", create=False)
    asked: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *call: asked.append(call[2]))
    read_view(EvidenceStore(engine))
    assert any("autotune_point" in statement for statement in asked)
    assert not any("autotune_request" in statement for statement in asked)
