"""Points are computed anew from the raw requests in the file, and come out as they were."""

import dataclasses
import sqlite3
from pathlib import Path
from random import Random

import pytest
from builders import BEGIN, environment, measured_point, record, request, spec
from sqlalchemy import Connection, event
from sqlalchemy.engine.interfaces import DBAPICursor, ExecutionContext

from autotune.decide.estimators import ESTIMATOR_VERSION, estimate
from autotune.domain.measurement import (
    ClientLoad,
    Flag,
    FlagKind,
    MeasuredPoint,
    RequestRecord,
    RequestState,
    ServerCounts,
)
from autotune.domain.slo import parse_slos
from autotune.domain.space import SearchSpace
from autotune.domain.workload import Workload
from autotune.store.connection import open_engine
from autotune.store.evidence import EvidenceStore

SLOS = parse_slos(["ttft_p95=300ms", "tpot_p95=22ms"])
STREAMS, WINDOW = 4, (3.0, 13.0)
SEEN_BESIDE = {
    "server": ServerCounts(generation_tokens=400, out_tok_s=40.0),
    "client": ClientLoad(cpu_share=0.2, loop_lag_p99_s=0.001, run_queue_s=0.1, involuntary_switches=2),
    "flags": (Flag(kind=FlagKind.PREEMPTED, text="2 requests were begun anew"),),
    "discarded": (Flag(kind=FlagKind.STALLED, text="all streams were silent for 2.1 s"),),
}


def measured() -> MeasuredPoint:
    """A point of a server with some noise, at times that are no whole microseconds."""
    rng = Random(3)  # noqa: S311 - the same point each time
    requests: list[RequestRecord] = []
    for stream in range(STREAMS):
        sent_s, sequence = rng.random(), 0
        while sent_s < WINDOW[1]:
            chunk_s = [sent_s + rng.uniform(0.1, 0.4)]
            while len(chunk_s) < 20:
                chunk_s.append(chunk_s[-1] + rng.uniform(0.01, 0.03))
            whole = chunk_s[-1] < WINDOW[1]
            requests.append(
                request(
                    stream,
                    sequence,
                    sent_s=sent_s,
                    chunk_s=tuple(chunk_s) if whole else tuple(c for c in chunk_s if c < WINDOW[1]),
                    ended_s=chunk_s[-1],
                    output_tokens=20 if whole else None,
                    wanted_output_tokens=20,
                    state=RequestState.DONE if whole else RequestState.CUT,
                    shortened=sequence == 0,
                )
            )
            sent_s, sequence = chunk_s[-1], sequence + 1
    point = estimate(requests, WINDOW, STREAMS, SLOS)
    return MeasuredPoint(
        point=dataclasses.replace(point, **SEEN_BESIDE), window=WINDOW, requests=tuple(requests)
    )


@pytest.fixture
def store(tmp_path: Path) -> EvidenceStore:
    store = EvidenceStore(open_engine(f"sqlite:///{tmp_path}/s.db", create=True))
    workload = Workload(streams=(1, 4), slos=SLOS)
    space = SearchSpace(name="s", parameters=())
    store.create(spec(space, workload=workload), {"name": "s"}, environment(), BEGIN)
    store.begin_run(600.0, BEGIN)
    store.begin(record(0, None), None)
    return store


def execute(tmp_path: Path, statement: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(tmp_path / "s.db")
    rows = connection.execute(statement).fetchall()
    connection.commit()
    connection.close()
    return rows


def numbers(value: object) -> object:
    """All of a point as dicts and numbers, for comparison to the microsecond."""
    if isinstance(value, dict):
        return {key: numbers(inner) for key, inner in value.items()}
    return pytest.approx(value, rel=1e-6, abs=1e-6) if isinstance(value, float) else value


def test_the_stored_requests_give_the_same_point_again(store: EvidenceStore) -> None:
    kept = measured()
    store.add_point(0, kept)
    (read,) = store.measured_points(0)
    again = estimate(read.requests, read.window, read.point.streams, SLOS)
    assert dataclasses.asdict(dataclasses.replace(again, **SEEN_BESIDE)) == numbers(
        dataclasses.asdict(kept.point)
    )
    assert again.slo is not None
    assert 0 < again.slo.met < again.slo.of


def test_a_point_of_an_older_version_is_renewed_and_what_was_seen_beside_it_stays(
    store: EvidenceStore, tmp_path: Path
) -> None:
    kept = measured()
    store.add_point(0, kept)
    execute(
        tmp_path,
        "UPDATE autotune_point SET estimator_version = 0, out_tok_s = 1, slo = NULL, goodput_req_s = NULL,"
        " ttft_s = NULL",
    )
    assert store.points(0)[0].out_tok_s == 1
    assert store.reestimate() == 1
    assert dataclasses.asdict(store.points(0)[0]) == numbers(dataclasses.asdict(kept.point))
    assert execute(tmp_path, "SELECT estimator_version FROM autotune_point") == [(ESTIMATOR_VERSION,)]
    assert store.reestimate() == 0


def test_a_current_point_and_one_without_requests_stay_as_they_are(
    store: EvidenceStore, tmp_path: Path
) -> None:
    store.add_point(0, measured_point(1, 10.0))  # its requests do not give 10 tok/s: it is not looked at
    store.add_point(0, dataclasses.replace(measured_point(4, 40.0), requests=()))
    execute(tmp_path, "UPDATE autotune_point SET estimator_version = 0 WHERE streams = 4")
    before = store.points(0)
    assert store.reestimate() == 0
    assert store.points(0) == before


def test_a_large_point_is_one_bulk_insert_of_about_four_bytes_a_token(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/s.db", create=True)
    store = EvidenceStore(engine)
    store.begin_run(600.0, BEGIN)
    store.begin(record(0, None), None)
    count, chunks = 5000, 256
    chunk_s = tuple(1.25 + 0.01 * k for k in range(1, chunks + 1))
    requests = tuple(request(sequence=n, chunk_s=chunk_s, output_tokens=chunks) for n in range(count))
    inserts: list[bool] = []

    def note(
        _connection: Connection, _cursor: DBAPICursor, statement: str, _parameters: object,
        _context: ExecutionContext, many: bool,
    ) -> None:  # fmt: skip
        if "INTO autotune_request" in statement:
            inserts.append(many)

    event.listen(engine, "before_cursor_execute", note)
    before = (tmp_path / "s.db").stat().st_size
    store.add_point(0, dataclasses.replace(measured_point(64, 1.0), requests=requests))
    execute(tmp_path, "PRAGMA wal_checkpoint(TRUNCATE)")
    assert inserts == [True]
    grown = (tmp_path / "s.db").stat().st_size - before
    assert 4.0 < grown / (count * chunks) < 5.5
