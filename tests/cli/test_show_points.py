"""`autotune show` with points and requests, on a study file without a run."""

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from builders import BEGIN, environment, failed, measured_point, record, spec
from typer.testing import CliRunner, Result

from autotune.cli import app
from autotune.domain.measurement import Flag, FlagKind
from autotune.domain.slo import parse_slos
from autotune.domain.space import SearchSpace
from autotune.domain.trial import Measured
from autotune.domain.workload import Workload
from autotune.store.connection import open_engine
from autotune.store.evidence import EvidenceStore

Show = Callable[..., Result]


@pytest.fixture(scope="module")
def show(tmp_path_factory: pytest.TempPathFactory) -> Show:
    """`autotune show WORDS` on a study with a measured, a suspect and a failed trial."""
    folder = tmp_path_factory.mktemp("study")
    store = EvidenceStore(open_engine(f"sqlite:///{folder}/s.db", create=True))
    workload = Workload(streams=(1, 8), slos=parse_slos(["ttft_p95=2s"]))
    store.create(
        spec(SearchSpace(name="s", parameters=()), workload=workload), {"name": "s"}, environment(), BEGIN
    )
    store.begin_run(60.0, BEGIN)
    stalled = Flag(kind=FlagKind.STALLED, text="silent for 2.1 s")
    for number, outcome in enumerate([Measured(points=()), Measured(points=()), failed()]):
        store.begin(record(number, None, {"note": "=1+1"} if number else {}), None)
        for streams in (1, 8):
            kept = measured_point(streams, 10.0 * streams)
            flags = (stalled,) if (number, streams) == (1, 8) else ()
            store.add_point(number, replace(kept, point=replace(kept.point, flags=flags)))
        store.finish(number, outcome, {}, BEGIN)

    def call(*words: str) -> Result:
        return CliRunner().invoke(app, ["show", "--db", str(folder / "s.db"), *words], env={"COLUMNS": "80"})

    return call


def test_points_of_one_trial_and_of_all_that_were_measured(show: Show) -> None:
    one = show("2", "--points")
    assert one.exit_code == 0, one.stderr
    assert "Trial 2" in one.stdout
    assert "8 streams" in one.stdout
    every = show("--points").stdout
    assert [f"Trial {n} " in every for n in range(3)] == [True, True, False]
    assert "suspect: silent for 2.1 s" in every


def test_the_list_marks_what_is_suspect(show: Show) -> None:
    assert "suspect at 8 streams: silent for 2.1 s" in show().stdout


def test_points_and_requests_as_csv(show: Show) -> None:
    points = list(csv.DictReader(io.StringIO(show("--csv").stdout)))
    assert [(p["trial"], p["streams"], p["state"]) for p in points] == [
        (str(n), streams, "failed" if n == 2 else "measured") for n in range(3) for streams in ("1", "8")
    ]
    assert points[2]["set_note"] == "'=1+1"
    requests = list(csv.DictReader(io.StringIO(show("1", "--requests", "--csv").stdout)))
    assert [(r["streams"], r["sequence"]) for r in requests] == [
        ("1", "0"),
        ("1", "1"),
        ("8", "0"),
        ("8", "1"),
    ]


def test_requests_as_json_have_their_gaps_and_points_their_doubts(show: Show) -> None:
    requests = json.loads(show("1", "--requests", "--json").stdout)["requests"]
    assert [r["chunk_gaps_s"] for r in requests] == [[0.25, 0.125, 0.125]] * 4
    points = json.loads(show("1", "--points", "--json").stdout)["points"]
    assert [(p["trial"], p["suspect"]) for p in points] == [(1, False), (1, True)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--requests",), "name its number"),
        (("0", "--points", "--requests"), "choose one"),
        (("--csv", "--json"), "choose one"),
        (("9", "--points"), "no trial 9"),
    ],
)
def test_what_cannot_be_shown_is_one_sentence(show: Show, words: tuple[str, ...], said: str) -> None:
    done = show(*words)
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
