"""What was seen of a server from outside explains its end better than what its log says of it."""

from dataclasses import replace

import pytest
from failure_logs import LOGS, QUIET, Known, render
from hypothesis import given
from hypothesis import strategies as st

from autotune.decide.failures.behaviour import is_silence
from autotune.decide.failures.classify import classify
from autotune.domain.aftermath import Aftermath, MemoryShortage, ProcessActivity, ProcessMemory
from autotune.domain.failure import Blame, Evidence, Failure, FailureKind, Phase
from autotune.files.rules import VLLM_RULES, read_rules

RULES = read_rules(VLLM_RULES)
GIB = 2**30
TRAINER = ProcessMemory(pid=812, name="trainer", memory_bytes=70 * GIB)
WORKER = ProcessMemory(pid=34, name="VLLM::Worker_TP", memory_bytes=20 * GIB)
SHORT = MemoryShortage(
    total_bytes=100 * GIB,
    available_bytes=2 * GIB,
    floor_bytes=3 * GIB,
    available_at_launch_bytes=90 * GIB,
    server_bytes=85 * GIB,
    others_bytes=8 * GIB,
    others_grew_bytes=GIB,
    other=ProcessMemory(pid=5, name="indexer", memory_bytes=2 * GIB),
)


def told(aftermath: Aftermath, known: Known, at: str = "weights", log: str | None = None) -> Failure:
    text = render(replace(QUIET, at=at)) if log is None else log
    return classify(replace(known.with_log(text), aftermath=aftermath), RULES)


def recorded(name: str) -> str:
    return (LOGS / name).read_text()


KILLED = Known(exit_code=-9)
SERVING = Known(exit_code=0, ready=True, served=True, client_error="the server closed the connection")


# autotune ended it to save the machine


@pytest.mark.parametrize(
    ("at", "known", "phase"),
    [
        ("weights", KILLED, Phase.WEIGHTS),
        ("first_request", replace(KILLED, ready=True, client_error="cannot connect"), Phase.FIRST_REQUEST),
        ("serving", replace(SERVING, exit_code=-9), Phase.SERVING),
    ],
)
def test_a_server_that_exhausts_the_machine(at: str, known: Known, phase: Phase) -> None:
    failure = told(Aftermath(shortage=SHORT), known, at)
    assert (failure.kind, failure.phase, failure.blame) == (
        FailureKind.HOST_OOM,
        phase,
        Blame.CONFIGURATION,
    )
    assert failure.why == (
        "autotune ended the server, because only 2.0 GiB of 100.0 GiB memory were available, less than the "
        "3.0 GiB that keep the machine answering; its processes held 85.0 GiB, and 90.0 GiB had been "
        "available at its launch"
    )
    assert failure.numbers == {
        "available_bytes": 2 * GIB,
        "floor_bytes": 3 * GIB,
        "total_bytes": 100 * GIB,
        "available_at_launch_bytes": 90 * GIB,
        "server_bytes": 85 * GIB,
        "others_bytes": 8 * GIB,
    }
    assert "cpu_offload_gb" in failure.cure


OTHERS = {
    "another grew meanwhile": {"server_bytes": 10, "others_bytes": 80, "others_grew_bytes": 70},
    "others held it before": {"available_at_launch_bytes": 4, "server_bytes": 1, "others_bytes": 90},
}
ITS_OWN = {
    "it grew": {},
    "GPU memory of a unified machine is in no process's count": {"server_bytes": 1, "others_bytes": 2},
    "others grew less": {"server_bytes": 50, "others_bytes": 45, "others_grew_bytes": 38},
    "it took what others had left": {
        "available_at_launch_bytes": 40,
        "server_bytes": 38,
        "others_bytes": 58,
        "others_grew_bytes": 0,
    },
}


def shortage(gib: dict[str, int]) -> MemoryShortage:
    changes = {name: size * GIB for name, size in gib.items()}
    return replace(SHORT, other=TRAINER, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("case", OTHERS)
def test_others_that_exhaust_the_machine_are_named(case: str) -> None:
    failure = told(Aftermath(shortage=shortage(OTHERS[case])), KILLED)
    assert (failure.kind, failure.blame) == (FailureKind.HOST_OOM, Blame.ENVIRONMENT)
    assert "among them trainer (pid 812) 70.0 GiB" in failure.why
    assert (failure.numbers["other"], failure.numbers["other_bytes"]) == ("trainer", 70 * GIB)


@pytest.mark.parametrize("case", ITS_OWN)
def test_what_is_in_nobodys_count_is_the_servers(case: str) -> None:
    assert told(Aftermath(shortage=shortage(ITS_OWN[case])), KILLED).blame is Blame.CONFIGURATION


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 100), st.integers(0, 100))
def test_a_server_that_holds_more_is_never_excused(launch: int, server: int, grew: int, others: int) -> None:
    def blame(server_gib: int) -> Blame:
        gib = {"server_bytes": server_gib, "others_grew_bytes": min(grew, others), "others_bytes": others}
        short = shortage({"available_at_launch_bytes": launch, **gib})
        return told(Aftermath(shortage=short), KILLED, log="").blame

    if blame(server) is Blame.CONFIGURATION:
        assert blame(server + 1) is Blame.CONFIGURATION


def test_it_explains_more_than_what_the_end_left_in_the_log() -> None:
    for name in ("cpu-0.32/g7-cgroup-oom-1300M.log", "cpu-0.32/f02-kv-too-small.log"):
        failure = told(Aftermath(shortage=SHORT), KILLED, log=recorded(name))
        assert (failure.kind, failure.rule, failure.numbers["server_bytes"]) == ("host_oom", None, 85 * GIB)


# The kernel ended it


def test_the_kernels_log_names_a_process() -> None:
    small = replace(WORKER, pid=35, memory_bytes=GIB)
    failure = told(Aftermath(oom_killed=(small, WORKER), oom_kills=2), Known(exit_code=1))
    assert (failure.kind, failure.blame) == (FailureKind.HOST_OOM, Blame.CONFIGURATION)
    assert failure.confidence > 0.9
    assert "VLLM::Worker_TP (pid 34), which held 20.0 GiB" in failure.why
    assert failure.numbers == {"victim": "VLLM::Worker_TP", "victim_pid": 34, "victim_bytes": 20 * GIB}


def test_the_control_group_counts() -> None:
    log = recorded("cpu-0.32/g7-cgroup-oom-1300M.log")
    lament = render(replace(QUIET, at="weights", alone=False))
    guess = told(Aftermath(), KILLED)
    for known, text in ((KILLED, None), (Known(exit_code=1), log), (Known(exit_code=1), lament)):
        failure = told(Aftermath(oom_kills=1), known, log=text)
        assert (failure.kind, failure.blame) == (FailureKind.HOST_OOM, Blame.CONFIGURATION)
        assert "the kernel ended a process of autotune's control group" in failure.why
        assert failure.confidence > guess.confidence
    assert "2 processes" in told(Aftermath(oom_kills=2), SERVING, "serving").why
    # Whose end it was is not said, so a cause in the log stands; and a refused request has no such cause.
    named = told(Aftermath(oom_kills=1), Known(exit_code=1), log=recorded("cpu-0.32/f02-kv-too-small.log"))
    assert named.rule == "kv-too-small-cpu"
    refused = Known(ready=True, client_error="HTTP 400: no")
    assert told(Aftermath(oom_kills=1), refused, "serving").kind is FailureKind.CLIENT


def test_a_hang_after_a_kill_is_no_stall() -> None:
    assert told(Aftermath(oom_kills=1), Known(timed_out=True)).kind is FailureKind.HOST_OOM


# It hangs


def activity(name: str, cpu_s: float, *frames: str, **changes: str) -> ProcessActivity:
    return ProcessActivity(
        pid=1,
        name=name,
        state=changes.get("state", "S"),
        cpu_s=cpu_s,
        watched_s=1.0,
        waits_in=changes.get("waits_in"),
        frames=frames,
    )


API = activity("VLLM::APIServer", 0.0, "wait_for_engine_startup (utils.py:1400)")
ENGINE = activity("VLLM::EngineCore", 1.0, "capture_model (model_runner.py:727)", "capture (x.py:565)")
WORKER_WAITS = activity("VLLM::Worker", 0.0, "worker_busy_loop (multiproc_executor.py:9)", "wait (poll.py:1)")
COMPUTES = "VLLM::EngineCore computes in capture_model (model_runner.py:727) -> capture (x.py:565)"


@pytest.mark.parametrize(
    ("seen", "words", "innermost"),
    [
        ((API, ENGINE), COMPUTES, "capture (x.py:565)"),
        ((API, ENGINE, WORKER_WAITS), COMPUTES, "capture (x.py:565)"),
        (
            (API, WORKER_WAITS),
            "(multiproc_executor.py:9) -> wait (poll.py:1); none of its 2 processes used the processor",
            "wait (poll.py:1)",
        ),
        (
            (activity("VLLM::Worker", 0.0, state="D", waits_in="nv_wait"),),
            "VLLM::Worker waits for a device or a disk in the kernel's nv_wait; none of its 1 processes used",
            None,
        ),
        ((activity("VLLM::Worker", 0.9, state="R"),), "VLLM::Worker computes", None),
    ],
)
def test_a_hung_server_says_where(
    seen: tuple[ProcessActivity, ...], words: str, innermost: str | None
) -> None:
    aftermath = Aftermath(activity=seen, stacks_path="/logs/trial-1.stacks.txt")
    failure = told(aftermath, Known(timed_out=True), "graphs")
    assert (failure.kind, failure.phase) == (FailureKind.STALL, Phase.GRAPHS)
    assert words in failure.why
    assert failure.frames[-1:] == ((innermost,) if innermost else ())
    assert "/logs/trial-1.stacks.txt" in failure.cure


def test_a_stall_that_the_log_names_says_where_too() -> None:
    said = "No available shared memory broadcast block found in 60 seconds. This typically happens when"
    waiting = render(replace(QUIET, at="serving", level="INFO", lines=(said,)))
    known = Known(ready=True, served=True, timed_out=True)
    failure = told(Aftermath(activity=(API, ENGINE)), known, log=waiting)
    assert failure.rule == "shared-memory-broadcast-wait"
    assert failure.frames == ENGINE.frames
    assert failure.why.endswith(f"; {COMPUTES}")


@pytest.mark.parametrize(
    ("error", "silent"),
    [
        ("the server sent nothing for 120 s", True),
        ("no completion came back within 120 s", True),
        ("no connection within 10 s", True),
        ("the server closed the connection", False),
        ("HTTP 500: EngineCore encountered an issue.", False),
    ],
)
def test_silence(error: str, silent: bool) -> None:
    assert is_silence(error) is silent
    evidence = Evidence(log="", exit_code=None, ready=True, served=False, client_error=error)
    assert (classify(evidence, RULES).kind is FailureKind.STALL) is silent


# How it ended otherwise


def test_dead_at_the_first_request_or_in_the_middle_of_the_load_with_exit_code_0() -> None:
    for served, phase, words in (
        (False, Phase.FIRST_REQUEST, "at its first request"),
        (True, Phase.SERVING, "while it served"),
    ):
        failure = told(Aftermath(), replace(SERVING, served=served), phase.value)
        assert (failure.kind, failure.phase) == (FailureKind.ENGINE_CRASH, phase)
        assert words in failure.why
