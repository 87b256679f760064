"""What vLLM made of it, from a real process to the database, the JSON and the screen."""

import io
import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from bed import Bed
from builders import failed, info, measured, objectives, point, record
from rich.console import Console

from autotune.domain.effective import Difference, DifferenceKind, Effective
from autotune.domain.measurement import Flag, FlagKind, ServerCounts
from autotune.domain.trial import Failed, Measured, TrialRecord
from autotune.report import tables
from autotune.report.document import trial_document
from autotune.report.effective import EffectiveBlock
from autotune.tune.study import Ending

OFFLOAD = Difference(
    setting="cpu_offload_gb",
    requested=8,
    effective=None,
    kind=DifferenceKind.NO_EFFECT,
    sentence="no weights were offloaded: all 13.54 GiB are on the GPU",
)
BLOCK = Difference(
    setting="block_size", requested=32, effective=640, kind=DifferenceKind.CHANGED, sentence="blocks of 640"
)
FACTS = Effective(
    facts={"kv_cache_tokens": 933248, "kv_cache_gib": 113.92, "prefix_caching": True, "init_s": 50.81},
    differences=(OFFLOAD, BLOCK),
)
COUNTS = ServerCounts(
    generation_tokens=6536,
    prompt_tokens=20432,
    prefix_queries=20432,
    prefix_hits=0,
    preemptions=46,
    drafts=100,
    draft_tokens=400,
    accepted_tokens=100,
)
FLAGS = (
    Flag(kind=FlagKind.MISCOUNTED, text="the server counted 6,536 output tokens, the client 9,000"),
    Flag(kind=FlagKind.PREEMPTED, text="the KV cache was full"),
)


@pytest.fixture
def bed(tmp_path: Path, fake_vllm: tuple[str, ...]) -> Bed:
    return Bed(folder=tmp_path, command=fake_vllm)


def test_measured_and_failed_trials_are_read_back(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_VLLM_RULES", json.dumps([{"if": {"max_num_seqs": ">=1"}, "scenario": "normal"}]))
    assert bed.run_trials(1) is Ending.USER
    monkeypatch.setenv(
        "FAKE_VLLM_RULES", json.dumps([{"if": {"max_num_seqs": ">=1"}, "scenario": "kv_too_small"}])
    )
    assert bed.run_trials(1) is Ending.USER
    good, bad = bed.store().records()
    assert isinstance(good.outcome, Measured)
    assert good.effective is not None
    assert good.effective.facts["vllm_version"] == "0.32.0"
    assert isinstance(good.effective.facts["kv_cache_tokens"], int)
    for measured_point in good.points:
        counts = measured_point.server
        assert counts is not None
        assert counts.generation_tokens is not None
        # Only what came in the window: not the smoke request, the warm-up or the point before.
        tokens = measured_point.out_tok_s * measured_point.window_s
        assert counts.generation_tokens == pytest.approx(tokens, abs=30)
        assert counts.running == pytest.approx(measured_point.streams, abs=1)
        odd = {flag.kind for flag in measured_point.flags}
        assert not odd & {FlagKind.PREFIX_HITS, FlagKind.PREEMPTED}
    assert isinstance(bad.outcome, Failed)
    assert bad.effective is not None
    assert bad.effective.facts["vllm_version"] == "0.32.0"
    assert "kv_cache_tokens" not in bad.effective.facts


@pytest.mark.parametrize("effective", [FACTS, Effective()])
def test_it_comes_back_from_the_database(bed: Bed, effective: Effective) -> None:
    store = bed.store()
    _kept(bed)
    store.set_effective(0, effective)
    assert store.records()[0].effective == effective


def test_the_json_has_the_rates(bed: Bed) -> None:
    plain = json.loads(msgspec.json.encode(trial_document(_trial(), info())))
    assert plain["effective"]["differences"][0]["kind"] == "no_effect"
    assert plain["effective"]["facts"]["kv_cache_tokens"] == 933248
    server = plain["points"][0]["server"]
    assert server["acceptance_rate"] == 0.25
    assert server["mean_accepted_length"] == 2.0
    assert server["prefix_hit_rate"] == 0.0
    assert plain["points"][0]["flags"] == [{"kind": flag.kind, "text": flag.text} for flag in FLAGS]
    without = json.loads(msgspec.json.encode(trial_document(record(0, measured(s1=10)), info())))
    assert without["effective"] is None
    assert without["points"][0]["server"] is None


def test_the_screen_tells_the_differences_first() -> None:
    rows = _rows(_trial())
    assert rows[0] == "What vLLM made of it"
    assert rows[1].startswith("No effect      cpu_offload_gb = 8: no weights were offloaded")
    text = " ".join(" ".join(rows).split(" " * 16))
    assert "Changed        block_size = 32, is 640: blocks of 640" in text
    assert "933,248 tokens (113.9 GiB)" in text
    assert "Drafts         accepted 25 % (2.0 tokens a draft) at 1 stream" in text
    assert "Preemptions    46 at 1 stream" in text
    assert "Suspect        at 1 stream: the server counted 6,536 output tokens, the client 9,000" in text
    assert "Note           at 1 stream: the KV cache was full" in text
    assert all(len(row) <= 80 for row in rows)


def test_beside_a_failure_it_is_short() -> None:
    many = tuple(replace(OFFLOAD, setting=f"setting_{n}", sentence="x" * 200) for n in range(30))
    rows = _rows(record(0, replace(failed()), {"a": 1}), Effective(differences=many))
    assert len(rows) <= 7
    assert rows[1].endswith("…")


def test_a_trial_that_was_not_read_back_has_no_block() -> None:
    assert _rows(record(0, measured(s1=10)), None) == []


def test_the_list_of_trials_marks_a_setting_without_effect() -> None:
    told = _shown(tables.trials([_trial(), record(1, measured(s1=10))], objectives(), set()))
    assert told.count("no effect: cpu_offload_gb") == 1


def _trial() -> TrialRecord:
    outcome = Measured(points=(replace(point(1, 10.0), server=COUNTS, flags=FLAGS),))
    return replace(record(0, outcome), effective=FACTS)


def _kept(bed: Bed) -> None:
    from builders import BEGIN, environment, measured_point, spec

    store = bed.store()
    store.create(spec(bed.spec.space), {"name": "s"}, environment(), BEGIN)
    store.begin_run(600.0, BEGIN)
    store.begin(record(0, None), None)
    with_counts = replace(measured_point(1, 10.0), point=replace(point(1, 10.0), server=COUNTS, flags=FLAGS))
    store.add_point(0, with_counts)
    assert (store.points(0)[0].server, store.points(0)[0].flags) == (COUNTS, FLAGS)


def _rows(trial: TrialRecord, effective: Effective | None = FACTS) -> list[str]:
    return _shown(EffectiveBlock(replace(trial, effective=effective))).rstrip().splitlines()


def _shown(renderable: object) -> str:
    console = Console(file=io.StringIO(), width=80)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()
