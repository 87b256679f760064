"""Lessons come back as they were kept, and stay forgotten."""

from dataclasses import replace
from pathlib import Path

import pytest
from builders import BEGIN, environment, spec

from autotune.decide.lessons.gate import scope_of
from autotune.domain.expression import Expression
from autotune.domain.failure import FailureKind
from autotune.domain.lesson import Finding, Lesson, LessonForm
from autotune.domain.refusal import Grounds, Refusal
from autotune.domain.space import SearchSpace
from autotune.errors import StoreError
from autotune.store.connection import open_engine
from autotune.store.evidence import EvidenceStore
from autotune.store.lessons import LessonStore

LESSON = Lesson(
    number=1,
    finding=Finding(
        form=LessonForm.BOUND,
        forbids=Expression.parse('a > 3 and b == "it\'s \u00e9"'),
        while_unset=frozenset({"c", "d"}),
    ),
    why="too small",
    kind=FailureKind.KV_CACHE_TOO_SMALL,
    trial=4,
    study="s",
    scope=scope_of(environment(), "m", "A"),
)


REFUSAL = Refusal(grounds=Grounds.LESSON, why="lesson 1: a > 3")
OTHER = Refusal(grounds=Grounds.VLLM, why="ValueError: no")


def _store(folder: Path) -> LessonStore:
    return LessonStore(open_engine(f"sqlite:///{folder}/s.db", create=True))


def test_a_lesson_comes_back_as_it_was_and_is_forgotten_for_good(tmp_path: Path) -> None:
    store = _store(tmp_path)
    second = replace(LESSON, number=2, trial=5)
    store.add(LESSON)
    store.add(second)
    assert store.all() == [LESSON, second]
    assert store.forget(2)
    assert not store.forget(3)
    assert _store(tmp_path).all() == [LESSON, replace(second, forgotten=True)]


def test_the_same_lesson_is_not_kept_twice(tmp_path: Path) -> None:
    store = _store(tmp_path)
    store.add(LESSON)
    with pytest.raises(StoreError):
        store.add(replace(LESSON, number=2))


def test_refusals_add_up_over_invocations_and_the_architecture_is_kept(tmp_path: Path) -> None:
    store = EvidenceStore(open_engine(f"sqlite:///{tmp_path}/s.db", create=True))
    study = spec(SearchSpace(name="s", parameters=()), architecture="LlamaForCausalLM")
    store.create(study, {"name": "s"}, environment(), BEGIN)
    for count in (3, 4):
        store.begin_run(1.0, BEGIN)
        store.count_refused([REFUSAL] * count)
        store.count_refused([OTHER, REFUSAL])
    info = store.info()
    assert info is not None
    assert info.refused == {Grounds.LESSON: 9, Grounds.VLLM: 2}
    assert info.refusals == 11
    assert store.refusals() == [(REFUSAL, 9), (OTHER, 2)]
    assert info.architecture == "LlamaForCausalLM"
