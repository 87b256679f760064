"""`autotune compare` on a study of the fake vLLM and on saved bench results."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from bed import Bed
from builders import environment, failed, point, record
from click.testing import Result
from typer.testing import CliRunner

from autotune.cli import app
from autotune.domain.bench import VLLM, BenchResult
from autotune.domain.workload import Workload
from autotune.files.bench_result import SCHEMA, load_bench_result, save_bench_result
from autotune.files.space_document import space_document

RESULT = BenchResult(
    url="http://gpu:8000",
    host="gpu",
    model="m",
    workload=Workload(streams=(1, 8)),
    dialect=VLLM,
    began_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    autotune_version="0.1.0",
    server_version="0.32.0",
    ladders=tuple((point(1, 10 + n), point(8, 50 + n)) for n in range(3)),
)


def call(*words: str) -> Result:
    """`autotune compare WORDS`, in this process."""
    found = CliRunner().invoke(app, ["compare", *words])
    assert isinstance(found.exception, SystemExit | None), found.exception
    return found


def compared(*words: str) -> dict[str, object]:
    done = call(*words, "--json")
    assert done.exit_code == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def rows(found: Mapping[str, object]) -> dict[tuple[int, str], dict[str, object]]:
    listed = found["rows"]
    assert isinstance(listed, list)
    return {(row["streams"], row["metric"]): row for row in listed}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, fake_vllm: tuple[str, ...]) -> Path:
    """A study of 2 trials in `fake.db`, and two bench results."""
    path = tmp_path_factory.mktemp("compare")
    bed = Bed(folder=path, command=fake_vllm)
    bed.run_trials(2)
    save_bench_result(RESULT, path / "a.json")
    faster = tuple(tuple(replace(p, out_tok_s=2 * p.out_tok_s) for p in points) for points in RESULT.ladders)
    save_bench_result(replace(RESULT, ladders=faster, model="n"), path / "b.json")
    return path


@pytest.fixture
def folder(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(made)
    return made


def test_a_saved_result_is_read_as_it_was(folder: Path) -> None:
    assert load_bench_result(folder / "a.json") == RESULT
    assert json.loads((folder / "a.json").read_bytes())["schema"] == SCHEMA


@pytest.mark.parametrize("ref", ["a.json", "fake.db", "fake.db:0"])
def test_nothing_differs_from_itself(folder: Path, ref: str) -> None:
    found = compared(ref, ref)
    assert len(rows(found)) == 8
    for row in rows(found).values():
        assert row["ratio"] == 1
        difference = row["difference"]
        assert difference is None or (isinstance(difference, dict) and not difference["distinguishable"])


def test_two_bench_results(folder: Path) -> None:
    found = compared("a.json", "b.json", "--metric", "out_tok_s")
    row = rows(found)[8, "out_tok_s"]
    difference = row["difference"]
    assert isinstance(difference, dict)
    assert row["ratio"] == pytest.approx(2)
    assert difference["interval"]["low"] < 2 < difference["interval"]["high"]
    assert (difference["basis"], difference["n_first"], difference["n_second"]) == ("repeats", 3, 3)
    assert (difference["confidence"], difference["verdict"]) == (0.95, "B better")
    warnings = found["warnings"]
    assert isinstance(warnings, list)
    assert "The models differ: m; and n." in warnings
    assert sum("of one launch" in warning for warning in warnings) == 2


def test_more_time_is_worse(folder: Path) -> None:
    slow = tuple((point(8, 50 + n, ttft_s=0.2 + n / 1000),) for n in range(2))
    normal = tuple((point(8, 50 + n, ttft_s=0.1 + n / 1000),) for n in range(2))
    save_bench_result(replace(RESULT, ladders=slow), folder / "slow.json")
    save_bench_result(replace(RESULT, ladders=normal), folder / "normal.json")
    done = call("normal.json", "slow.json", "--metric", "ttft_p50")
    assert done.exit_code == 0, done.stderr
    assert "B worse" in done.stdout
    assert "ms" in done.stdout


def test_the_table_says_what_it_rests_on(folder: Path) -> None:
    done = call("a.json", "b.json")
    assert done.exit_code == 0, done.stderr
    for said in ("A  a.json", "B  b.json", "http://gpu:8000", "3 runs of m", "B better", "3 v 3 runs"):
        assert said in done.stdout
    assert "measured several times" in done.stdout
    assert "! The models differ: m; and n." in done.stdout
    assert "by chance" in done.stdout


def test_two_trials_of_a_study(folder: Path) -> None:
    found = compared("0", "1", "--db", "fake.db")
    assert found == compared("fake.db:0", "fake.db:1")
    first, second = found["first"], found["second"]
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert (first["name"], first["parameters"]) == ("fake.db, trial 0", {})
    assert second["name"] == "fake.db, trial 1"
    row = rows(found)[1, "out_tok_s"]
    assert isinstance(row["first"], float)
    assert row["first"] > 0


def test_a_study_stands_for_its_best(folder: Path) -> None:
    first = compared("fake.db", "a.json")["first"]
    assert isinstance(first, dict)
    assert first["name"].endswith("(its best)")
    assert any("workloads differ" in w for w in compared("fake.db", "a.json")["warnings"])  # type: ignore[attr-defined]


def test_what_was_not_measured_cannot_be_compared(tmp_path: Path, fake_vllm: tuple[str, ...]) -> None:
    bed = Bed(folder=tmp_path, command=fake_vllm)
    store = bed.store()
    store.create(bed.spec, space_document(bed.space), environment(), datetime.now(UTC))
    store.begin_run(1.0, datetime.now(UTC))
    store.begin(record(0, None), None)
    store.finish(0, failed(), {}, datetime.now(UTC))
    done = call(f"{tmp_path}/fake.db:0", f"{tmp_path}/fake.db:0")
    assert done.exit_code == 2
    assert "trial 0 was not measured to its end; see: autotune show" in done.stderr
    done = call(f"{tmp_path}/fake.db", f"{tmp_path}/fake.db")
    assert done.exit_code == 2
    assert "No configuration has been measured yet" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("a.json", "none.json"), 2, "none.json: cannot be read: No such file"),
        (("none.db", "a.json"), 4, "none.db: no such study file"),
        (("fake.db:99", "a.json"), 2, "there is no trial 99; the study has 2"),
        (("0", "a.json"), 2, "no study file in studies/"),
        (("a.json", "a.json", "--metric", "speed"), 2, "there is no such metric; choose from out_tok_s"),
        (("bad.json", "a.json"), 2, "is not a result of `autotune bench`"),
        (("bytes.json", "a.json"), 2, "is not a result of `autotune bench`"),
        (("newer.json", "a.json"), 2, "was written by a newer autotune"),
        (("wrong.json", "a.json"), 2, "$.workload"),
        (("empty.json", "a.json"), 2, "nothing was measured in it"),
    ],
)
def test_wrong_input_is_one_sentence(folder: Path, words: tuple[str, ...], code: int, said: str) -> None:
    (folder / "bad.json").write_text("{}")
    (folder / "bytes.json").write_bytes(b"\xff\xfe{")
    good = (folder / "a.json").read_text()
    (folder / "newer.json").write_text(good.replace('"schema": 1', '"schema": 2', 1))
    (folder / "wrong.json").write_text(good.replace('"streams": [', '"streams": [99,', 1))
    save_bench_result(replace(RESULT, ladders=()), folder / "empty.json")
    done = call(*words)
    assert done.exit_code == code, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("autotune: ")]
    assert len(lines) == 1, done.stderr
    assert said in lines[0]
    assert "Traceback" not in done.stderr
