"""What is kept comes back as it was, from a real SQLite file."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from builders import BEGIN, environment, failure, measured_point, point, record, request, spec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotune.domain.failure import Blame
from autotune.domain.fill import Fill
from autotune.domain.imported import CandidateFlag, Form, Imported, ImportedCommand, NotUnderstood
from autotune.domain.machine import FlagFact
from autotune.domain.measurement import (
    Attainment,
    ClientLoad,
    Flag,
    FlagKind,
    Interval,
    Quantiles,
    ServerCounts,
)
from autotune.domain.output import Output
from autotune.domain.server import ServerMark
from autotune.domain.space import Json, SearchSpace, Value
from autotune.domain.trial import Abandoned, Failed, Interrupted, Interruption, Measured, Outcome, Step
from autotune.errors import StoreError
from autotune.store.codec import pack_gaps, unpack_gaps
from autotune.store.connection import open_engine
from autotune.store.evidence import EvidenceStore

SPACE = SearchSpace(name="s", parameters=())
FULL_POINT = replace(
    point(8, 50.0),
    ttft_s=Quantiles(
        n=700, p50=1.0, p90=2.0, p95=3.0, p99=4.0, intervals={"p50": Interval(low=0.9, high=1.1)}
    ),
    chunk_gap_s=Quantiles(n=90_000, p50=0.01, p90=0.02, p95=0.03, p99=0.04),
    goodput_req_s=1.5,
    slo=Attainment(met=9, of=10, interval=Interval(low=0.6, high=0.98)),
    errors={"HTTP 500: x": 2},
    server=ServerCounts(generation_tokens=500, out_tok_s=49.9, running=7.5),
    client=ClientLoad(cpu_share=0.1, loop_lag_p99_s=0.0004, run_queue_s=None, involuntary_switches=3),
    flags=(Flag(kind=FlagKind.PREEMPTED, text="3 requests were begun anew"),),
    discarded=(Flag(kind=FlagKind.STALLED, text="all streams were silent for 2.1 s"),),
)
MARK = ServerMark(token="t", log_path="/tmp/x.log", tmp_dir="/tmp/at-x", port=8123, boot_id="b")


@pytest.fixture
def store(tmp_path: Path) -> EvidenceStore:
    store = EvidenceStore(open_engine(f"sqlite:///{tmp_path}/s.db", create=True))
    store.create(spec(SPACE), {"name": "s"}, environment(), BEGIN)
    store.begin_run(600.0, BEGIN)
    return store


def test_the_study_comes_back_and_its_flags_are_not_kept(store: EvidenceStore, tmp_path: Path) -> None:
    flags = {"--max-num-seqs": FlagFact(name="--max-num-seqs", default="hf_secret")}
    full = replace(environment(), vllm=replace(environment().vllm, flags=flags))
    other = EvidenceStore(open_engine(f"sqlite:///{tmp_path}/other.db", create=True))
    other.create(spec(SPACE), {"name": "s"}, full, BEGIN)
    for info in (store.info(), other.info()):
        assert info is not None
        assert info.environment == environment()
        assert info.workload == spec(SPACE).workload
        assert info.objectives == spec(SPACE).objectives
        assert (info.seed, info.space_digest) == (7, SPACE.digest)


@pytest.mark.parametrize(
    "outcome",
    [
        Measured(points=(point(1, 10.0), FULL_POINT)),
        Failed(failure=failure(numbers={"estimated_len": 3968.0, "text": "x"}), points=(point(1, 10.0),)),
        Failed(failure=failure(Blame.UNKNOWN, root_line="it's 100 % \U0001f980", line_number=3)),
        Abandoned(why="trial 3 is far better", points=(point(1, 10.0),)),
        Interrupted(reason=Interruption.USER),
    ],
)
def test_a_trial_comes_back_as_it_was(store: EvidenceStore, outcome: Outcome) -> None:
    begun = record(0, None, {"a": 1, "b": True, "c": "off", "d": 0.5})
    store.begin(begun, MARK)
    for p in outcome.points:
        store.add_point(0, replace(measured_point(p.streams, p.out_tok_s), point=p))
    steps = {Step.LAUNCH: 21.5, Step.STOP: 0.5}
    store.finish(0, outcome, steps, BEGIN)
    assert store.records() == [replace(begun, outcome=outcome, step_s=steps, finished_at=BEGIN)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(
    st.dictionaries(
        st.text(min_size=1, max_size=8),
        st.booleans()
        | st.integers(-(2**60), 2**60)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        max_size=4,
    )
)
def test_any_configuration_comes_back_with_its_types(tmp_path: Path, values: dict[str, Value]) -> None:
    store = EvidenceStore(open_engine(f"sqlite:///{tmp_path}/s.db", create=True))
    store.begin_run(1.0, BEGIN)
    number = len(store.records())
    store.begin(record(number, None, values), None)
    kept = store.records()[-1].configuration.values
    assert kept == values
    assert {k: type(v) for k, v in kept.items()} == {k: type(v) for k, v in values.items()}


def test_the_file_that_a_study_was_begun_from_comes_back(tmp_path: Path) -> None:
    flags: dict[str, Json] = {"a": 1, "b": [1.5, "x"], "c": {"d": {"e": None, "f": [True]}}}
    command = ImportedCommand(
        form=Form.SYSTEMD,
        source="/etc/vllm.service",
        model="/models/tiny",
        flags=flags,
        env={"A": "1"},
        secrets=("HF_TOKEN",),
        candidates=(CandidateFlag(name="--c", value={"d": 1}, line=7, remark="why"),),
        not_understood=(NotUnderstood(line=8, text="x", why="y"),),
        host="::1",
        port=9000,
        not_serving={"api-key": None},
    )
    imported = Imported(command=command, text="ExecStart=...\n")
    other = EvidenceStore(open_engine(f"sqlite:///{tmp_path}/other.db", create=True))
    other.create(replace(spec(SPACE), imported=imported), {"name": "s"}, environment(), BEGIN)
    kept = other.info()
    assert kept is not None
    assert kept.imported == imported


def test_answers_and_filled_contexts_come_back(store: EvidenceStore) -> None:
    store.begin(record(0, None), MARK)
    assert (store.records()[0].outputs, store.records()[0].fills) == ((), ())
    outputs = (Output(prompt=0, tokens=("a", "\u00e9"), logprobs=(-0.5, -1.25)),)
    fills = (
        Fill(streams=1, context_tokens=2040, total_s=3.5),
        Fill(streams=4, context_tokens=500, total_s=1.0, error="HTTP 500"),
    )
    store.set_outputs(0, outputs)
    store.set_fills(0, fills[:1])
    store.set_fills(0, fills)
    assert (store.records()[0].outputs, store.records()[0].fills) == (outputs, fills)


def test_raw_requests_come_back_to_the_microsecond(store: EvidenceStore) -> None:
    store.begin(record(0, None), MARK)
    odd = request(sequence=5, chunk_s=(), output_tokens=None, prompt_tokens=None, error="HTTP 500")
    kept = replace(measured_point(8, 50.0), requests=(request(shortened=True), odd))
    store.add_point(0, kept)
    store.add_point(0, measured_point(1, 10.0))
    assert store.measured_points(0) == (measured_point(1, 10.0), kept)


@given(st.lists(st.integers(0, 3_600_000_000), max_size=50), st.integers(0, 10**9))
def test_gaps_keep_every_chunk_time_however_many_there_are(ticks: list[int], sent_us: int) -> None:
    sent_s = sent_us / 1e6
    chunk_s = tuple(sent_s + tick / 1e6 for tick in sorted(ticks))
    assert unpack_gaps(sent_s, pack_gaps(sent_s, chunk_s)) == pytest.approx(chunk_s, abs=1e-6)


def test_unfinished_trials_come_with_the_mark_that_finds_their_server(store: EvidenceStore) -> None:
    store.begin(record(0, None), MARK)
    store.begin(record(1, None), MARK)
    store.finish(1, Interrupted(reason=Interruption.USER), {}, BEGIN)
    spawned = replace(MARK, pid=123, pid_started_s=4.5)
    store.set_mark(0, spawned)
    assert [(r.number, mark) for r, mark in store.unfinished()] == [(0, spawned)]


def test_a_trial_number_is_never_used_twice(store: EvidenceStore) -> None:
    store.begin(record(0, None), MARK)
    with pytest.raises(StoreError):
        store.begin(record(0, None), MARK)


def test_time_spent_adds_up_over_invocations(store: EvidenceStore) -> None:
    store.end_run(100.0, "budget")
    store.begin_run(60.0, BEGIN)
    store.end_run(50.5, "user")
    info = store.info()
    assert info is not None
    assert info.spent_s == 150.5
    assert list(store.budgets_s()) == [600.0, 60.0]


def test_the_file_is_in_wal_mode_with_foreign_keys_enforced(store: EvidenceStore, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "s.db")
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()
    with pytest.raises(StoreError, match="FOREIGN KEY"):
        store.add_point(99, measured_point(1, 1.0))
