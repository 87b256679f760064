"""What each failure teaches, that it holds for no more than is known, and that the gate keeps it."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest
from builders import environment, failed, failure, record
from hypothesis import given, settings
from hypothesis import strategies as st
from lesson_lab import BOOL, SCOPE, WORKS, Lab, crash, parameter

from autotune.decide.lessons.gate import gate, scope_of, standing
from autotune.decide.lessons.learning import learn
from autotune.decide.schedule import is_marginal
from autotune.domain.failure import Blame, Failure, FailureKind, Phase
from autotune.domain.lesson import Lesson, LessonForm, Standing
from autotune.domain.space import CategoricalDomain, Configuration, IntDomain, SearchSpace, Value
from autotune.domain.study import Limits
from autotune.domain.trial import Failed, Measured, Origin, Outcome
from autotune.files.lessons import LESSONS, read_lessons
from autotune.files.rules import VLLM_RULES, read_rules

BOOK = read_lessons()
Settings = Mapping[str, Value]


def _kv(estimated_len: float | None = 3968.0, **numbers: float) -> Failure:
    found = {"max_model_len": 8192.0, "needed_gib": 0.02, "available_gib": 0.01, **numbers}
    if estimated_len is not None:
        found["estimated_len"] = estimated_len
    return failure(rule="kv-too-small", numbers=found)


def _oom(phase: Phase) -> Failure:
    return failure(kind=FailureKind.GPU_OOM, phase=phase, rule="gpu-oom")


def _bad(rule: str, **numbers: float | str) -> Failure:
    return failure(kind=FailureKind.BAD_FLAG, phase=Phase.ARGS, rule=rule, numbers=numbers)


@pytest.mark.parametrize(
    ("failed_with", "given_settings", "words"),
    [
        (
            _kv(),
            {"max_model_len": 8192, "kv_cache_memory_bytes": 2097152, "max_num_seqs": 8},
            "max_model_len > 3968 while kv_cache_memory_bytes <= 2097152",
        ),
        (
            _kv(None),
            {"max_model_len": 8192, "kv_cache_memory_bytes": 2097152},
            "kv_cache_memory_bytes <= 2097152 while max_model_len >= 8192",
        ),
        (
            _kv(),
            {"max_model_len": 8192, "gpu_memory_utilization": 0.3, "max_num_seqs": 8, "block_size": 16},
            "max_model_len > 3968 while gpu_memory_utilization <= 0.3 and max_num_seqs >= 8",
        ),
        (_kv(), {"gpu_memory_utilization": 0.3}, "gpu_memory_utilization <= 0.3"),
        (
            failure(rule="kv-mamba-blocks", numbers={"max_num_seqs": 256.0, "blocks": 96.0}),
            {"max_num_seqs": 256, "gpu_memory_utilization": 0.5},
            "max_num_seqs > 96 while gpu_memory_utilization <= 0.5",
        ),
        (
            _oom(Phase.WEIGHTS),
            {"tensor_parallel_size": 1, "max_model_len": 9, "speculative_config__method": "ngram"},
            "tensor_parallel_size <= 1",
        ),
        (
            _oom(Phase.PROFILE),
            {"max_num_batched_tokens": 8192, "max_num_seqs": 512, "gpu_memory_utilization": 0.9},
            "max_num_batched_tokens >= 8192 while max_num_seqs >= 512",
        ),
        (
            _oom(Phase.GRAPHS),
            {"gpu_memory_utilization": 0.95, "enforce_eager": False},
            "gpu_memory_utilization >= 0.95 while enforce_eager == false",
        ),
        (
            failure(kind=FailureKind.HOST_OOM, rule="host-oom-killer"),
            {"cpu_offload_gb": 8.0},
            "cpu_offload_gb >= 8",
        ),
        (
            _bad("flag-invalid-choice", flag="--kv-cache-dtype", value="fp8_x"),
            {"kv_cache_dtype": "fp8_x", "dtype": "half"},
            'kv_cache_dtype == "fp8_x"',
        ),
        (_bad("flag-unknown", arguments="--nope --no-x 3"), {"nope": 3}, "nope == nope"),
        (
            _bad("config-batched-tokens-below-sequences", max_num_batched_tokens=64.0, max_num_seqs=128.0),
            {"max_num_batched_tokens": 64, "max_num_seqs": 128},
            "max_num_batched_tokens < max_num_seqs",
        ),
        (
            _bad("config-batched-tokens-below-sequences", max_num_batched_tokens=64.0, max_num_seqs=128.0),
            {"max_num_batched_tokens": 64},
            "max_num_batched_tokens < 128",
        ),
        (
            _bad("config-heads-not-divisible", heads=32.0, tensor_parallel_size=3.0),
            {"tensor_parallel_size": 3},
            "32 % tensor_parallel_size != 0",
        ),
        (
            failure(kind=FailureKind.INCOMPATIBLE, rule="async-scheduling-with-speculation"),
            {"async_scheduling": True, "speculative_config__method": "suffix", "max_num_seqs": 4},
            'async_scheduling == true and speculative_config__method == "suffix"',
        ),
        (
            failure(kind=FailureKind.UNSUPPORTED, rule="value-unknown-to-vllm", numbers={"value": "FOO"}),
            {"attention_backend": "FOO", "dtype": "half"},
            'attention_backend == "FOO"',
        ),
    ],
)
def test_what_a_failure_teaches_in_words(failed_with: Failure, given_settings: Settings, words: str) -> None:
    finding = learn(failed_with, given_settings, BOOK, [])
    assert finding is not None
    assert str(finding) == words
    assert finding.rejects(given_settings)


@pytest.mark.parametrize(
    "failed_with",
    [
        failure(kind=FailureKind.MEMORY_BUSY, rule="cpu-utilization-too-high"),
        replace(_kv(), blame=Blame.ENVIRONMENT),
        replace(_kv(), blame=Blame.UNKNOWN),
        replace(_kv(), confidence=0.6),
        failure(kind=FailureKind.STALL),
        crash().failure,
        failure(kind=FailureKind.INCOMPATIBLE, rule="async-scheduling-with-speculation"),
        _bad("flag-unknown", arguments="--other"),
    ],
)
def test_what_is_not_known_for_sure_teaches_nothing_at_once(failed_with: Failure) -> None:
    assert (
        learn(failed_with, {"max_model_len": 8192, "kv_cache_memory_bytes": 1, "nope": 1}, BOOK, []) is None
    )


def test_a_setting_left_to_vllm_is_not_taken_for_a_worse_one() -> None:
    finding = learn(_kv(), {"max_model_len": 8192, "max_num_seqs": 8}, BOOK, [])
    assert finding is not None
    assert finding.rejects({"max_model_len": 4096, "max_num_seqs": 8})
    assert not finding.rejects({"max_model_len": 4096, "max_num_seqs": 8, "gpu_memory_utilization": 0.98})
    assert not finding.rejects({"max_model_len": 4096})
    assert not finding.rejects({"max_model_len": 3968, "max_num_seqs": 8})
    assert not finding.rejects({"max_model_len": "auto", "max_num_seqs": 8})


def test_success_beats_a_lesson() -> None:
    given_settings = {"max_model_len": 8192, "kv_cache_memory_bytes": 2097152}
    narrowed = learn(_kv(), given_settings, BOOK, [{**given_settings, "max_model_len": 5000}])
    assert narrowed is not None
    assert str(narrowed) == "max_model_len == 8192 and kv_cache_memory_bytes == 2097152"
    assert learn(_kv(), given_settings, BOOK, [given_settings]) is None


_NUMBERS = {
    "max_model_len": st.integers(1, 10000),
    "kv_cache_memory_bytes": st.integers(1, 10),
    "gpu_memory_utilization": st.sampled_from([0.3, 0.6, 0.9]),
    "max_num_seqs": st.integers(1, 10),
    "tensor_parallel_size": st.integers(1, 2),
    "enforce_eager": st.booleans(),
    "speculative_config__method": st.sampled_from(["ngram", "draft_model"]),
}


@given(
    given_settings=st.fixed_dictionaries({}, optional=_NUMBERS),
    measured=st.lists(st.fixed_dictionaries({}, optional=_NUMBERS), max_size=5),
    failed_with=st.sampled_from([_kv(), _kv(None), *map(_oom, Phase)]),
)
def test_no_lesson_forbids_what_was_measured_and_each_forbids_what_taught_it(
    given_settings: Settings, measured: list[Settings], failed_with: Failure
) -> None:
    finding = learn(failed_with, given_settings, BOOK, measured)
    if finding is not None:
        assert finding.rejects(given_settings)
        assert not any(finding.rejects(worked) for worked in measured)


@given(
    needs=st.integers(1, 100),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=10, deadline=None)
def test_a_bound_from_the_log_is_kept_by_all_later_trials(needs: int, seed: int) -> None:
    """A server whose cache holds `needs` tokens a byte: what fails once is tried in no other form."""
    space = SearchSpace(
        name="kv",
        parameters=(
            parameter("max_model_len", IntDomain(low=128, high=8192)),
            parameter("kv_cache_memory_bytes", CategoricalDomain(choices=(10, 40, 80))),
            parameter("eager", BOOL),
        ),
    )

    def server(given_settings: Settings) -> Outcome:
        size, length = given_settings.get("kv_cache_memory_bytes"), given_settings.get("max_model_len")
        assert isinstance(size, int | None)
        assert isinstance(length, int | None)
        room = needs * (size or 1000)
        return Failed(failure=_kv(float(room))) if (length or 0) > room else WORKS

    lab = Lab(space=space, server=server)
    lab.search(Random(seed), trials=40)  # noqa: S311
    failures = [r for r in lab.records if r.failure]
    sizes = {r.configuration.values["kv_cache_memory_bytes"] for r in failures}
    assert len(failures) == len(lab.lessons) == len(sizes), "one failure for each size of cache at most"


def _lesson(**changes: object) -> Lesson:
    finding = learn(_kv(), {"max_model_len": 8192, "kv_cache_memory_bytes": 2097152}, BOOK, [])
    assert finding is not None
    fields: dict[str, object] = {
        "number": 1, "finding": finding, "why": "", "kind": FailureKind.KV_CACHE_TOO_SMALL, "trial": 4,
        "study": "s", "scope": SCOPE,
    }  # fmt: skip
    return Lesson(**{**fields, **changes})  # type: ignore[arg-type]


def test_a_lesson_counts_where_it_was_taught_until_it_is_forgotten_or_refuted() -> None:
    small = replace(SCOPE, model="/models/other")
    no_good = replace(_lesson().finding, form=LessonForm.NO_GOOD)
    assert standing(_lesson(), SCOPE, []) is Standing.APPLIES
    assert standing(_lesson(forgotten=True), SCOPE, []) is Standing.FORGOTTEN
    assert standing(_lesson(), replace(SCOPE, vllm_version="0.33"), []) is Standing.EXPIRED
    assert standing(_lesson(), replace(SCOPE, device="NVIDIA H200"), []) is Standing.ELSEWHERE
    assert standing(_lesson(), small, []) is Standing.ELSEWHERE, "another model takes other memory"
    assert standing(_lesson(finding=no_good), small, []) is Standing.APPLIES
    worked = {"max_model_len": 4096, "kv_cache_memory_bytes": 1}
    assert standing(_lesson(), SCOPE, [worked]) is Standing.REFUTED


def test_the_gate_knows_settings_by_vllms_names_and_fixed_ones_too() -> None:
    named_otherwise = replace(parameter("max_model_len", IntDomain(low=1, high=9999)), name="context")
    cache = replace(parameter("kv_cache_memory_bytes", IntDomain(low=1, high=2**30)), name="cache")
    space = SearchSpace(name="s", parameters=(named_otherwise, cache))
    bars = gate(space, SCOPE, [_lesson()], [])
    assert bars.forbids(Configuration(values={"context": 4096, "cache": 1024}))
    assert not bars.forbids(Configuration(values={"context": 3968, "cache": 1024}))
    assert not gate(space, SCOPE, [_lesson(forgotten=True)], []).forbids(
        Configuration(values={"context": 4096, "cache": 1024})
    )
    measured = [record(0, WORKS, {"context": 4096, "cache": 1024})]
    assert gate(space, SCOPE, [_lesson()], measured).lessons == ()


def test_a_forgotten_lesson_is_not_learned_again() -> None:
    space = SearchSpace(name="s", parameters=(parameter("kv_cache_memory_bytes", IntDomain(low=1, high=9)),))
    lab = Lab(space=space, server=lambda given: Failed(failure=_kv(None)) if given else WORKS)
    lab.launch(Configuration(), Origin.BASELINE)
    lab.launch(Configuration(values={"kv_cache_memory_bytes": 4}), Origin.SAMPLED)
    lab.lessons = [replace(lab.lessons[0], forgotten=True)]
    lab.launch(Configuration(values={"kv_cache_memory_bytes": 3}), Origin.SAMPLED)
    assert len(lab.lessons) == 1
    lab.launch(Configuration(values={"kv_cache_memory_bytes": 5}), Origin.SAMPLED)
    assert len(lab.lessons) == 2, "what the forgotten lesson did not say can be learned"


def test_a_nearly_large_enough_cache_is_tried_once_more_warm_before_anything_is_learned() -> None:
    space = SearchSpace(name="s", parameters=(parameter("max_num_seqs", IntDomain(low=1, high=9)),))
    marginal = Failed(failure=_kv(7900.0, needed_gib=1.05, available_gib=1.0))
    outcomes = [WORKS, marginal, WORKS]
    lab = Lab(space=space, server=lambda _: outcomes[len(lab.records)])
    lab.launch(Configuration(), Origin.BASELINE)
    lab.launch(Configuration(values={"max_num_seqs": 4}), Origin.SAMPLED)
    assert lab.lessons == []
    assert lab.settle() == 1
    assert lab.records[2].origin is Origin.RETRY
    assert isinstance(lab.records[2].outcome, Measured)
    assert lab.lessons == []

    lab = Lab(space=space, server=lambda given: marginal if given else WORKS)
    lab.launch(Configuration(), Origin.BASELINE)
    lab.launch(Configuration(values={"max_num_seqs": 4}), Origin.SAMPLED)
    assert lab.settle() == 1
    assert [str(lesson.finding) for lesson in lab.lessons] == ["max_num_seqs >= 4"]
    lab = Lab(space=space, server=lab.server, limits=Limits(retries=0))
    lab.launch(Configuration(values={"max_num_seqs": 4}), Origin.SAMPLED)
    assert len(lab.lessons) == 1


@pytest.mark.parametrize(
    ("failed_with", "given_settings", "marginal"),
    [
        (_kv(needed_gib=1.09, available_gib=1.0), {}, True),
        (_kv(needed_gib=1.2, available_gib=1.0), {}, False),
        (failure(rule="kv-none"), {}, True),
        (failure(rule="kv-none"), {"enforce_eager": True}, False),
        (_kv(needed_gib=1.09, available_gib=1.0), {"kv_cache_memory_bytes": 1}, False),
        (failure(rule="kv-mamba-blocks", numbers={"blocks": 3.0}), {}, False),
        (failed(Blame.CONFIGURATION).failure, {}, True),
        (crash().failure, {}, False),
    ],
)
def test_which_failure_a_warm_start_may_mend(
    failed_with: Failure, given_settings: Settings, marginal: bool
) -> None:
    assert is_marginal(failed_with, given_settings) is marginal


def test_every_rule_and_phase_that_the_knowledge_names_exists_and_can_form_a_lesson() -> None:
    rules = {rule.id: rule for rule in read_rules(VLLM_RULES).index.rules}
    for teaching in BOOK.teachings:
        for name in teaching.rules:
            assert name in rules, f"{LESSONS.name} names rule {name}"
            assert rules[name].blame is Blame.CONFIGURATION, f"{name} is not the settings' doing"
            groups = {group for pattern in rules[name].patterns for group in pattern.groupindex}
            assert {teaching.named_by, teaching.valued_by} - {None} <= groups


def test_the_device_is_what_memory_depends_on() -> None:
    assert scope_of(environment(), "m", None).device == "CPU, 24 GiB"
    assert scope_of(environment(), "m", None).architecture == "m"
