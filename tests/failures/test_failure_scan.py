"""What a scan makes of logs that no rule knows, that hold several runs, or that are made to be slow."""

import sys
from collections.abc import Callable
from dataclasses import replace

import pytest
from failure_logs import LOGS, QUIET, Snippet, render, snippets

from autotune.decide.failures.logscan import last_run, lines_of, scan
from autotune.decide.failures.rulebook import Rules
from autotune.domain.failure import Blame, Failure, FailureKind, LogFinding, Phase
from autotune.files.rules import VLLM_RULES, read_rules

RULES = read_rules(VLLM_RULES)


def found(text: str) -> LogFinding:
    return scan(lines_of(text), RULES)


def failure_in(text: str) -> Failure:
    failure = found(text).failure
    assert failure is not None
    return failure


def test_an_empty_log_shows_nothing() -> None:
    finding = found("")
    assert (finding.failure, finding.lines, finding.ready, finding.version) == (None, 0, False, None)


def test_an_unknown_error_is_shown_with_its_place() -> None:
    log = render(Snippet(at="weights", lines=("ZeroDivisionError: division by zero",)))
    failure = failure_in(log)
    assert (failure.kind, failure.phase, failure.blame) == (FailureKind.UNKNOWN, Phase.WEIGHTS, Blame.UNKNOWN)
    assert failure.root_line == "ZeroDivisionError: division by zero"
    assert failure.line_number is not None
    assert log.split("\n")[failure.line_number - 1].endswith(failure.root_line)
    assert failure.process == "EngineCore"
    assert "division by zero" in failure.why
    assert failure.frames[-1].startswith("initialize_model (")
    assert len(failure.frames) <= 5


def test_a_bare_assertion_is_shown_with_its_source() -> None:
    failure = failure_in(render(Snippet(at="weights", lines=("AssertionError",))))
    assert failure.kind is FailureKind.UNKNOWN
    assert "`return do(what, it, does)`" in failure.why


WORKER = "(Worker_TP{} pid=3{}) ERROR 06-01 10:01:00 [multiproc_executor.py:953] "
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def traceback(function: str, error: str) -> list[str]:
    return [
        "WorkerProc hit an exception.",
        "Traceback (most recent call last):",
        f'  File "/opt/site-packages/vllm/v1/worker/gpu_worker.py", line 7, in {function}',
        error,
    ]


def test_an_exhausted_memory_comes_before_what_it_caused() -> None:
    """A worker that lost its memory makes others fail first, and in stranger ways."""
    caused = [
        WORKER.format(0, 0) + line for line in traceback("execute_model", "RuntimeError: CUDA error: odd")
    ]
    engine = render(Snippet(at="serving", lines=(OOM,)))
    failure = failure_in(render(replace(QUIET, at="serving")) + "\n".join(caused) + "\n" + engine)
    assert (failure.kind, failure.process) == (FailureKind.GPU_OOM, "EngineCore")


def test_workers_that_write_into_each_other_are_told_apart() -> None:
    first = traceback("load_model", "KeyError: 'layer'")
    second = traceback("compile_or_warm_up_model", OOM)
    mixed = [
        WORKER.format(i, i) + line for pair in zip(first, second, strict=True) for i, line in enumerate(pair)
    ]
    failure = failure_in("\n".join(mixed))
    assert (failure.rule, failure.phase, failure.process) == ("gpu-oom-graphs", Phase.GRAPHS, "Worker_TP1")
    assert [frame.partition(" ")[0] for frame in failure.frames] == ["compile_or_warm_up_model"]


def test_what_was_survived_long_ago_does_not_explain_a_death() -> None:
    lines = ("Traceback (most recent call last):", '  File "x.py", line 1, in f', "ValueError: odd request")
    odd = render(replace(QUIET, at="serving", process="APIServer pid=11", level="ERROR", lines=lines))
    death = (
        "(EngineCore pid=22) ERROR 06-01 10:09:00 [multiproc_executor.py:315] Worker proc VllmWorker-0 died "
    )
    assert (
        failure_in(odd + death + "unexpectedly (exit code: -9), shutting down executor.").rule
        == "worker-killed"
    )


def test_a_line_out_of_the_middle_of_a_log_is_named() -> None:
    """As it is pasted into a question: without what was before and after."""
    said = snippets()["gpu-memory-below-utilization"].lines[0]
    line = f"(EngineCore_DP0 pid=174) ERROR 09-28 15:47:24 [core.py:718] {said}"
    assert failure_in(line).rule == "gpu-memory-below-utilization"


def test_a_member_of_an_exception_group_is_found() -> None:
    log = render(replace(QUIET, at="config")) + "\n".join(
        [
            "  + Exception Group Traceback (most recent call last):",
            '  |   File "/opt/vllm/entrypoints/launcher.py", line 7, in run_server',
            "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)",
            "  +-+---------------- 1 ----------------",
            "    | Traceback (most recent call last):",
            '    |   File "/opt/vllm/entrypoints/launcher.py", line 9, in create_server_socket',
            "    | OSError: [Errno 98] Address already in use",
            "    +------------------------------------",
        ]
    )
    assert failure_in(log).rule == "port-in-use"


def test_the_worker_comes_before_those_who_wait_for_it() -> None:
    engine = render(Snippet(at="weights", lines=("ValueError: of the engine",), alone=True))
    tag = "(Worker_TP1 pid=33) ERROR 06-01 10:01:00 [multiproc_executor.py:953] "
    lines = ("WorkerProc failed to start.", "Traceback (most recent call last):", "KeyError: 'of the worker'")
    failure = failure_in(engine + "\n".join(tag + line for line in lines))
    assert failure.root_line == "KeyError: 'of the worker'"


def test_what_a_survivor_logged_is_no_failure() -> None:
    lines = ("Traceback (most recent call last):", '  File "x.py", line 1, in f', "ValueError: odd request")
    log = render(replace(QUIET, at="serving", process="APIServer pid=11", level="ERROR", lines=lines))
    assert found(log).failure is None
    ignored = [
        "Exception ignored in: <function f at 0x7f>",
        "Traceback (most recent call last):",
        "KeyError: 'x'",
    ]
    assert found(log + "\n".join(ignored)).failure is None
    # The same traceback without these words ended a process.
    assert found(log + "\n".join(ignored[1:])).failure is not None


def test_of_a_container_that_restarts_in_a_loop_the_last_failure_counts() -> None:
    first, second = (render(snippets()[rule]) for rule in ("kv-none", "gpu-memory-below-utilization"))
    finding = found(first + second + render(replace(QUIET, at="device")))
    assert finding.failure is not None
    assert finding.failure.rule == "gpu-memory-below-utilization"
    assert (finding.run, finding.runs) == (2, 3)
    assert finding.failure.line_number is not None
    assert finding.failure.line_number > len(first.split("\n"))


def test_a_last_run_that_works_is_what_a_log_is_about() -> None:
    finding = found(render(snippets()["kv-none"]) + (LOGS / "cpu-0.32/a1-llama-eager.log").read_text())
    assert finding.failure is None
    assert (finding.run, finding.runs, finding.ready) == (2, 2, True)


def test_every_request_refused_is_a_failure_without_a_rule() -> None:
    ready = render(replace(QUIET, at="first_request"))
    bad = '(APIServer pid=11) INFO:     127.0.0.1:51002 - "POST /v1/completions HTTP/1.1" {} \n'
    refused = failure_in(ready + bad.format("400 Bad Request") * 9)
    assert (refused.kind, refused.blame, refused.rule) == (FailureKind.CLIENT, Blame.USER, None)
    assert failure_in(ready + bad.format("500 Internal Server Error") * 9).kind is FailureKind.UNKNOWN
    assert found(ready + bad.format("400 Bad Request") * 2).failure is None
    assert found(ready + bad.format("400 Bad Request") * 9 + bad.format("200 OK") * 9).failure is None


def test_secrets_are_not_kept() -> None:
    said = "vllm serve: error: unrecognized arguments: --hf-tokn hf_abcdefghijkl --api-key=sesame123"
    kept = str(failure_in(render(Snippet(at="args", lines=(said,)))))
    assert "hf_abcdefghijkl" not in kept
    assert "sesame123" not in kept
    assert "--hf-tokn <secret>" in kept


def test_only_named_settings_are_taken_from_the_arguments() -> None:
    args = {"api_key": "sesame", "max_num_seqs": 64, "x": 3}
    run, _ = last_run([f"INFO 06-01 10:00:01 [api_utils.py:273] non-default args: {args}"], RULES)
    assert run.progress.values == {"max_num_seqs": 64.0}


def calls(work: Callable[[], object]) -> int:
    """How many functions, of Python and of C, `work` calls: other processes cannot disturb it."""
    count = 0

    def profile(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def hostile(rules: Rules) -> list[str]:
    """Lines that hold the literals of many rules and the text of none."""
    literals = [literal for rule in rules.index.rules for literal in rule.contains]
    return [" ".join(literals[i : i + 8]) for i in range(len(literals))]


@pytest.mark.parametrize(
    "lines",
    [
        (LOGS / "h200-0.26/s2_llama8b_default.log").read_text().split("\n"),
        (LOGS / "h200-0.26/a3_hog_after_boot.log").read_text().split("\n"),
        hostile(RULES),
        [f"(Worker pid={i}) ERROR 06-01 10:00:01 [f{i}.py:1] Some{i}Error: {i}" for i in range(500)],
    ],
    ids=["healthy", "failing", "hostile", "many sources"],
)
def test_the_work_grows_with_the_length_and_not_faster(lines: list[str]) -> None:
    few = calls(lambda: scan(lines * 2, RULES))
    many = calls(lambda: scan(lines * 8, RULES))
    assert many < 4.2 * few


def test_what_is_kept_does_not_grow_with_the_log() -> None:
    errors = [
        f"(Worker pid={i}) ERROR 06-01 10:00:01 [f{i}.py:1] {line}"
        for i in range(2000)
        for line in ("Traceback (most recent call last):", f"Some{i}Error: {i}")
    ]
    run, _ = last_run(errors, RULES)
    assert len(run.events.all()) < 100
    assert len(run.traces) <= 256


def test_a_line_without_an_end_is_no_danger() -> None:
    endless = "ValueError: " + "out of memory. Tried to allocate " * 200_000
    assert calls(lambda: scan([endless], RULES)) < 2000
