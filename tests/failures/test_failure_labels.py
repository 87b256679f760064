"""Every recorded log is named as the person who read it named it."""

import re
from collections.abc import Iterator

import pytest
from failure_logs import LOGS, Labelled, labelled

from autotune.decide.failures.classify import classify
from autotune.decide.failures.logscan import lines_of, scan
from autotune.decide.failures.rulebook import Rules
from autotune.domain.failure import Failure
from autotune.files.rules import VLLM_RULES, read_rules

RULES = read_rules(VLLM_RULES)
LOGS_AND_LABELS = labelled()
FAILING = [log for log in LOGS_AND_LABELS if log.fails]
HEALTHY = [log for log in LOGS_AND_LABELS if not log.fails]


def named(log: Labelled, rules: Rules = RULES) -> Failure | None:
    return scan(lines_of(log.text), rules).failure


def facts(failure: Failure) -> tuple[str, str, str]:
    return failure.kind.value, failure.phase.value, failure.blame.value


def wanted(log: Labelled) -> tuple[str, str, str]:
    return log.kind, log.phase, log.blame


def test_every_log_has_a_label_and_every_label_a_log() -> None:
    recorded = {str(path.relative_to(LOGS)) for path in LOGS.rglob("*.log")}
    assert recorded == {log.name for log in LOGS_AND_LABELS}
    assert len(FAILING) >= 40
    assert len(HEALTHY) >= 50


@pytest.mark.parametrize("log", FAILING, ids=str)
def test_a_failing_log_is_named_by_itself(log: Labelled) -> None:
    failure = named(log)
    assert failure is not None
    assert facts(failure) == wanted(log)
    assert failure.line_number == log.line
    assert failure.root_line is not None
    assert failure.root_line.startswith(log.root)
    assert failure.rule is not None
    assert failure.source


@pytest.mark.parametrize("log", HEALTHY, ids=str)
def test_a_healthy_log_shows_no_failure(log: Labelled) -> None:
    finding = scan(lines_of(log.text), RULES)
    assert finding.failure is None
    assert finding.ready == log.ready
    assert finding.served == log.served


@pytest.mark.parametrize("log", FAILING, ids=str)
def test_what_else_is_known_does_not_change_the_name(log: Labelled) -> None:
    failure = classify(log.evidence, RULES)
    assert facts(failure) == wanted(log)
    assert failure.line_number == log.line


@pytest.mark.parametrize("log", [log for log in LOGS_AND_LABELS if log.silent], ids=str)
def test_a_log_that_ends_without_a_word_is_named_by_the_signal(log: Labelled) -> None:
    failure = classify(log.evidence, RULES)
    assert facts(failure) == wanted(log)
    assert failure.rule is None
    assert failure.root_line is None
    assert failure.confidence <= 0.5


def numbers(name: str) -> dict[str, float | str]:
    log = next(log for log in FAILING if log.name.endswith(name))
    failure = named(log)
    assert failure is not None
    return dict(failure.numbers)


def test_the_numbers_are_those_of_the_log() -> None:
    assert numbers("f02-kv-too-small.log") == {
        "max_model_len": 8192,
        "needed_gib": 0.02,
        "available_gib": 0.01,
        "estimated_len": 3968,
    }
    assert numbers("g1_kv_too_small_for_len.log")["needed_gib"] == 16.0
    assert numbers("a2b_sampler_warmup_oom_v1.log")["dummy_requests"] == 1024
    assert numbers("recipes-551-mamba-blocks-journald.log")["blocks"] == 856
    assert numbers("a1_profile_oom_weights_barely_fit.log")["tried_gib"] == pytest.approx(0.875)
    hog = numbers("a3_hog_after_boot.log")
    assert (hog["other_pid"], hog["other_gib"]) == (3707, 10.91)


def test_a_cure_names_the_settings_of_this_log() -> None:
    def cure(name: str) -> str:
        failure = named(next(log for log in FAILING if log.name.endswith(name)))
        assert failure is not None
        return failure.cure

    assert "max_model_len at most 3968" in cure("f02-kv-too-small.log")
    assert "gpu_memory_utilization than 0.16" in cure("g1_kv_too_small_for_len.log")
    assert "max_num_seqs at most 856" in cure("recipes-551-mamba-blocks-journald.log")
    assert "kv_cache_memory_bytes = 134357314437" in cure("a2_graph_capture_oom.log")


def test_two_healthy_logs_say_more_than_that_they_are_healthy() -> None:
    def notices(name: str) -> list[str]:
        log = next(log for log in HEALTHY if log.name.endswith(name))
        return [notice.rule for notice in scan(lines_of(log.text), RULES).notices]

    assert notices("a6_race_first.log") == ["gpu-memory-taken-at-start"]
    assert notices("v4_offload8.log") == ["offload-without-effect"]
    assert notices("s2_llama8b_default.log") == []


def _texts() -> Iterator[str]:
    for log in LOGS_AND_LABELS:
        yield log.text


def test_the_logs_are_small_and_name_no_machine() -> None:
    assert sum(path.stat().st_size for path in LOGS.rglob("*")) < 4_000_000
    private = re.compile(
        r"/(?:home|Users|work)/|\b10\.(?!0\.4\.)\d+\.\d+\.\d+\b|\b192\.168\.|hf_[A-Za-z]{10}|@\w+\.com"
    )
    assert [found[0] for text in _texts() for found in private.finditer(text)] == []
