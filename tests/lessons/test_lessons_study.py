"""Studies on the fake vLLM that learn: conflicts isolated, bounds kept, lessons shared and forgotten."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from bed import Bed
from builders import environment
from lesson_lab import BOOL, parameter

from autotune.decide.lessons.plan import Learner
from autotune.domain.expression import Expression
from autotune.domain.interrupt import Interrupt
from autotune.domain.launch import settings
from autotune.domain.lesson import Lesson, Standing
from autotune.domain.refusal import Grounds
from autotune.domain.space import (
    CategoricalDomain,
    Configuration,
    IntDomain,
    Parameter,
    SearchSpace,
    Target,
    TargetKind,
)
from autotune.domain.trial import Measured, Origin, TrialRecord
from autotune.files.space_document import space_document
from autotune.tune.study import Ending
from autotune.wiring.lessons import learner_of, standings, take_over


def _draft(name: str, key: str, domain: IntDomain | CategoricalDomain, **more: object) -> Parameter:
    target = Target(kind=TargetKind.JSON, name="--speculative-config", keys=(key,))
    return Parameter(name=name, domain=domain, target=target, **more)  # type: ignore[arg-type]


WHEN_NGRAM = Expression.parse("speculation == 'ngram'")
SPACE = SearchSpace(
    name="six",
    parameters=(
        parameter("enable_prefix_caching", BOOL),
        _draft("speculation", "method", CategoricalDomain(choices=("off", "ngram")), omit=("off",)),
        _draft("tokens", "num_speculative_tokens", IntDomain(low=2, high=6), when=WHEN_NGRAM),
        parameter("enforce_eager", BOOL),
        parameter("async_scheduling", BOOL),
        parameter("max_num_seqs", IntDomain(low=2, high=64)),
        parameter("max_num_batched_tokens", IntDomain(low=128, high=2048)),
    ),
)
CONFLICT = {"if": {"enable_prefix_caching": True, "speculative_config.method": "ngram"}}
KV_SPACE = SearchSpace(
    name="kv",
    parameters=(
        parameter("kv_cache_memory_bytes", CategoricalDomain(choices=(1000, 2000, 9000))),
        parameter("max_model_len", CategoricalDomain(choices=(1024, 2048, 4096))),
    ),
)
KV_RULES = [
    {"if": {"kv_cache_memory_bytes": 1000}, "scenario": {"kv_cache_tokens": 1500}},
    {"if": {"kv_cache_memory_bytes": 2000}, "scenario": {"kv_cache_tokens": 3000}},
]


def _rules(monkeypatch: pytest.MonkeyPatch, rules: Sequence[object]) -> None:
    monkeypatch.setenv("FAKE_VLLM_RULES", json.dumps(rules))


def _bed(folder: Path, command: tuple[str, ...], space: SearchSpace, name: str = "fake") -> Bed:
    return Bed(folder=folder, command=command, space=space, name=name)


def _both_on(record: TrialRecord) -> bool:
    values = record.configuration.values
    return values.get("enable_prefix_caching") is True and values.get("speculation") == "ngram"


def test_a_conflict_is_isolated_and_the_study_goes_on_with_everything_else(
    tmp_path: Path, fake_vllm: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    _rules(monkeypatch, [{**CONFLICT, "scenario": "dies_at_first_request"}])
    bed = _bed(tmp_path, fake_vllm, SPACE)
    bed.run_trials(1)
    values = {"enable_prefix_caching": True, "speculation": "ngram", "tokens": 4, "enforce_eager": False}
    numbers = {"async_scheduling": True, "max_num_seqs": 32, "max_num_batched_tokens": 512}
    # As if a run had been killed just before it launched this; so it is what the next run begins with.
    interrupt = Interrupt(time.monotonic, time.monotonic() + 100)
    bed.loop(interrupt).search.begin(Configuration(values={**values, **numbers}), Origin.SAMPLED)
    bed.run_trials(6)
    (lesson,) = bed.store().lessons.all()
    wanted = 'enable_prefix_caching == true and speculative_config__method == "ngram"'
    assert lesson.finding.forbids.source == wanted
    learned_after = len(bed.store().records())
    assert learned_after <= 1 + 1 + 1 + 6
    bed.run_trials(4)
    records = bed.store().records()
    assert sum(record.origin is Origin.ISOLATION for record in records) <= 6
    assert not any(_both_on(record) for record in records[learned_after:])
    assert all(isinstance(record.outcome, Measured) for record in records[learned_after:])
    speculating = [r for r in records if r.configuration.values.get("speculation") == "ngram"]
    assert any(isinstance(record.outcome, Measured) for record in speculating)


def test_a_crash_by_chance_teaches_nothing(
    tmp_path: Path, fake_vllm: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = {"if": {"max_num_seqs": "<=64"}, "scenario": "dies_at_first_request", "once": f"{tmp_path}/x"}
    _rules(monkeypatch, [chance])
    bed = _bed(tmp_path, fake_vllm, replace(SPACE, parameters=(SPACE.parameters[0], *SPACE.parameters[5:])))
    bed.run_trials(7)
    records = bed.store().records()
    assert [record.number for record in records if record.failure] == [1]
    assert bed.store().lessons.all() == []
    assert records[1].configuration in [r.configuration for r in records if isinstance(r.outcome, Measured)]


def _failures(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    return [record for record in records if record.failure]


def test_a_bound_is_kept_over_a_stop_and_when_all_is_forbidden_the_study_ends(
    tmp_path: Path, fake_vllm: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    _rules(monkeypatch, KV_RULES)
    bed = _bed(tmp_path, fake_vllm, KV_SPACE)
    bed.run_trials(4)
    bed.run_trials(6)
    store = bed.store()
    for lesson in store.lessons.all():
        for record in store.records()[lesson.trial + 1 :]:
            assert not lesson.finding.rejects(settings(KV_SPACE, record.configuration))
    assert 1 <= len(_failures(store.records())) == len(store.lessons.all())
    info = store.info()
    assert info is not None
    assert info.refused[Grounds.LESSON] > 0

    only_small = replace(KV_SPACE, name="small", parameters=(
        parameter("kv_cache_memory_bytes", CategoricalDomain(choices=(999, 1000))),
        parameter("max_model_len", CategoricalDomain(choices=(2048, 4096))),
    ))  # fmt: skip
    _rules(monkeypatch, [{"if": {"kv_cache_memory_bytes": "<=1000"}, "scenario": {"kv_cache_tokens": 1500}}])
    small = _bed(tmp_path / "small", fake_vllm, only_small)
    assert small.run_trials(10) is Ending.EXHAUSTED
    assert len(small.store().records()) <= 3


def test_a_lesson_that_was_not_kept_before_a_kill_is_learned_when_the_study_goes_on(
    tmp_path: Path, fake_vllm: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    _rules(monkeypatch, [{"if": {"kv_cache_memory_bytes": "<=9000"}, "scenario": {"kv_cache_tokens": 1500}}])
    bed = _bed(tmp_path, fake_vllm, KV_SPACE)
    learn = Learner.lesson_due
    monkeypatch.setattr(Learner, "lesson_due", lambda *_: None)
    bed.run_trials(2)
    monkeypatch.setattr(Learner, "lesson_due", learn)
    failures = _failures(bed.store().records())
    assert bed.store().lessons.all() == []
    bed.run_trials(1)
    assert [lesson.trial for lesson in bed.store().lessons.all()][:1] == [r.number for r in failures][:1]


def _second(bed: Bed, version: str) -> tuple[Sequence[Lesson], list[Standing], list[str]]:
    """The second study of a folder, with this version of vLLM, after taking over."""
    notes: list[str] = []
    where = environment()
    where = replace(where, vllm=replace(where.vllm, version=version))
    store = bed.store()
    take_over(store, learner_of(bed.spec, where), bed.url, notes.append)
    take_over(store, learner_of(bed.spec, where), bed.url, lambda _: None)
    store.create(bed.spec, space_document(bed.space), where, datetime.now(UTC))
    lessons = store.lessons.all()
    info = bed.store().info()
    assert info is not None
    return lessons, [standing for _, standing in standings(info, [], lessons)], notes


def test_a_second_study_in_the_folder_never_launches_what_the_first_proved_impossible(
    tmp_path: Path, fake_vllm: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    _rules(monkeypatch, KV_RULES)
    first = _bed(tmp_path, fake_vllm, KV_SPACE, "first")
    while not first.store().lessons.all():
        first.run_trials(2)
    learned = first.store().lessons.all()
    (tmp_path / "broken.db").write_text("no database")
    version = environment().vllm.version

    second = _bed(tmp_path, fake_vllm, replace(KV_SPACE, parameters=KV_SPACE.parameters[::-1]), "second")
    lessons, counting, notes = _second(second, version)
    assert {n.study for n in lessons} == {"first"}
    assert [(n.trial, n.finding) for n in lessons] == [(n.trial, n.finding) for n in learned]
    assert counting == [Standing.APPLIES] * len(learned)
    assert any("broken.db" in note for note in notes)
    second.run_trials(5)
    for record in second.store().records():
        given = settings(second.space, record.configuration)
        assert not any(lesson.finding.rejects(given) for lesson in learned)

    newer = _bed(tmp_path, fake_vllm, KV_SPACE, "newer")
    lessons, counting, _ = _second(newer, "0.99.0")
    assert len(lessons) >= len(learned)
    assert set(counting) == {Standing.EXPIRED}


def _autotune(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "COLUMNS": "120"}
    command = [sys.executable, "-m", "autotune", "lessons", "--db", "fake.db", *words]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)


def test_lessons_are_listed_in_words_and_forgotten_for_good(
    tmp_path: Path, fake_vllm: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    _rules(monkeypatch, [{"if": {"kv_cache_memory_bytes": "<=9000"}, "scenario": {"kv_cache_tokens": 1500}}])
    bed = _bed(tmp_path, fake_vllm, KV_SPACE)
    while not bed.store().lessons.all():
        bed.run_trials(2)
    (lesson, *_) = bed.store().lessons.all()
    listed = _autotune(tmp_path)
    assert listed.returncode == 0, listed.stderr
    assert str(lesson.finding) in listed.stdout
    assert f"taught by trial {lesson.trial}" in listed.stdout
    assert "counts" in listed.stdout
    assert _autotune(tmp_path, "--forget", "99").returncode == 2
    assert "forgotten" in _autotune(tmp_path, "--forget", "1").stdout
    bed.run_trials(1)
    document = json.loads(_autotune(tmp_path, "--json").stdout)
    assert document["lessons"][0]["standing"] == "forgotten"
    assert document["lessons"][0]["forbids"] == lesson.finding.forbids.source
    assert [n["trial"] for n in document["lessons"]].count(lesson.trial) == 1
