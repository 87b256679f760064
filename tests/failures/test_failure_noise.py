"""Whatever carries a log, repeats it or mixes lines into it: its name stays, and is never a wrong one."""

import json
from collections.abc import Callable

import pytest
from failure_logs import DATA, Labelled, labelled
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotune.decide.failures.logscan import scan
from autotune.domain.failure import FailureKind
from autotune.files.rules import VLLM_RULES, read_rules

RULES = read_rules(VLLM_RULES)
LOGS = [log for log in labelled() if len(log.text) < 60_000]
FAILING = [log for log in LOGS if log.fails]
HEALTHY = [log for log in LOGS if not log.fails]
LINES = {log.name: log.text.split("\n") for log in LOGS}

NOISE = (DATA / "healthy_noise.log").read_text().split("\n")
"""Every one of these lines stands in the log of a server that works, or beside it."""
PREFIXES: list[Callable[[int, str], str]] = [
    lambda i, line: f"vllm-serve-1  | {line}",
    lambda i, line: f"2026-05-01T10:11:{i % 60:02d}.123456789Z {line}",
    lambda i, line: f"2026-05-01T10:11:{i % 60:02d}.123456789+02:00 stderr F {line}",
    lambda i, line: f"May  1 10:11:{i % 60:02d} gpu-box vllm[4711]: {line}",
    lambda i, line: f"[pod/vllm-7d9f-abcde/vllm] {line}",
    lambda i, line: json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-05-01T10:11:12Z"}),
    lambda i, line: line.rstrip("\r") + "\r",
    lambda i, line: f"\x1b[1;36m{line}\x1b[0;0m" if line else line,
    lambda i, line: f"{line}      ",
]
steady = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def kind(lines: list[str]) -> FailureKind | None:
    failure = scan(lines, RULES).failure
    return failure.kind if failure else None


@given(st.sampled_from(FAILING), st.data())
@steady
def test_lines_of_other_things_in_between_change_nothing(log: Labelled, data: st.DataObject) -> None:
    lines = list(LINES[log.name])
    spots = st.tuples(st.integers(0, len(lines)), st.lists(st.sampled_from(NOISE), min_size=1, max_size=4))
    for place, noise in sorted(data.draw(st.lists(spots, min_size=1, max_size=25)), reverse=True):
        lines[place:place] = noise
    assert kind(lines) == log.kind


@given(st.sampled_from(FAILING), st.data())
@steady
def test_repeated_lines_change_nothing(log: Labelled, data: st.DataObject) -> None:
    lines = LINES[log.name]
    repeated = data.draw(st.sets(st.integers(0, len(lines) - 1), max_size=len(lines)))
    doubled = [line for i, line in enumerate(lines) for line in [line] * (2 if i in repeated else 1)]
    assert kind(doubled) == log.kind


@pytest.mark.parametrize("log", FAILING, ids=str)
def test_every_line_twice_changes_nothing(log: Labelled) -> None:
    assert kind([line for line in LINES[log.name] for _ in range(2)]) == log.kind


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("log", FAILING, ids=str)
def test_what_carries_the_log_changes_nothing(log: Labelled, prefix: Callable[[int, str], str]) -> None:
    before = scan(LINES[log.name], RULES).failure
    after = scan([prefix(i, line) for i, line in enumerate(LINES[log.name])], RULES).failure
    assert before is not None
    assert after is not None
    assert (after.kind, after.phase, after.rule) == (before.kind, before.phase, before.rule)
    assert after.line_number == before.line_number


@given(st.sampled_from(FAILING), st.data())
@steady
def test_a_log_cut_off_anywhere_is_never_named_wrongly(log: Labelled, data: st.DataObject) -> None:
    lines = LINES[log.name]
    cut = lines[: data.draw(st.integers(0, len(lines)))]
    assert kind(cut) in (None, FailureKind.UNKNOWN, log.kind)


@given(st.sampled_from(FAILING), st.data())
@steady
def test_the_end_of_a_log_alone_is_never_named_wrongly(log: Labelled, data: st.DataObject) -> None:
    """`docker logs --tail` or a ring buffer; without the traceback before it a line may say too little."""
    lines = LINES[log.name]
    kept = lines[data.draw(st.integers(0, log.line - 1)) :]
    assert kind(kept) in (FailureKind.UNKNOWN, log.kind)


@given(st.sampled_from(HEALTHY), st.data())
@steady
def test_a_healthy_log_stays_healthy(log: Labelled, data: st.DataObject) -> None:
    lines = list(LINES[log.name])
    for place in data.draw(st.lists(st.integers(0, len(lines)), max_size=25)):
        lines.insert(place, data.draw(st.sampled_from(NOISE)))
    assert kind(lines[: data.draw(st.integers(0, len(lines)))]) is None


@given(st.lists(st.text(max_size=300), max_size=30))
@settings(max_examples=200, deadline=None)
def test_any_text_is_read_without_an_exception(lines: list[str]) -> None:
    finding = scan(lines, RULES)
    assert finding.lines == len(lines)


@given(st.sampled_from(LOGS), st.integers(0, 60_000))
@settings(max_examples=100, deadline=None)
def test_a_log_cut_off_inside_a_line_is_read(log: Labelled, end: int) -> None:
    scan(log.text[:end].split("\n"), RULES)
