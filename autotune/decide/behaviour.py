"""Names a failure by how the process behaved, where its log does not: signal, exit code, deadline, client.

These are conclusions, not quotations, so each says how sure it is; a signature in the log always comes first.
"""

import re
from dataclasses import dataclass

from autotune.decide.naming import without_secrets
from autotune.decide.progress import later
from autotune.domain.failure import Blame, Evidence, Failure, FailureKind, LogFinding, Phase

_SHELL_SIGNALS = range(129, 160)
"""A shell reports a program that signal N ended as 128 + N."""
_SIGHUP, _SIGINT, _SIGKILL, _SIGTERM = 1, 2, 9, 15
_SIGBUS = (7, 10)  # Linux, macOS
_CRASH_NAMES = {4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 8: "SIGFPE", 11: "SIGSEGV", 12: "SIGSYS"}
_SILENCE = re.compile(r"sent nothing for|timed out|timeout", re.IGNORECASE)
_DMESG = "Look into `dmesg` for oom_kill and for faults of the GPU (Xid); then try once more."


@dataclass(frozen=True, slots=True)
class _Told:
    """What a behaviour means."""

    kind: FailureKind
    blame: Blame
    confidence: float
    why: str
    cure: str = ""


_KILLED = _Told(
    FailureKind.HOST_OOM,
    Blame.UNKNOWN,
    0.5,
    "the server was killed from outside (signal 9) without a word of its own: nearly always the kernel, "
    "because the machine or the container ran out of memory",
    "Look into `dmesg` or the cgroup's memory.events for oom_kill; then less memory on the host: a smaller "
    "cpu_offload_gb or KV cache on the CPU, or a higher limit for the container.",
)
_BUS_ERROR = _Told(
    FailureKind.HOST_OOM,
    Blame.ENVIRONMENT,
    0.7,
    "the server ended with a bus error: memory it shares with its workers could not be provided",
    "Start the container with --ipc=host or a larger --shm-size.",
)
_STOPPED = _Told(
    FailureKind.ENVIRONMENT,
    Blame.ENVIRONMENT,
    0.7,
    "somebody or something else told the server to stop",
    "Find out what stops it (a supervisor, a job scheduler, a user), and try again.",
)


def name_behaviour(evidence: Evidence, log: LogFinding) -> Failure:
    """The failure that `evidence` shows beside its log, which names none."""
    phase = log.phase
    if evidence.ready:
        phase = Phase.SERVING if evidence.served else later(phase, Phase.FIRST_REQUEST)
    told = (
        _by_deadline(evidence) or _by_exit(evidence, log) or _by_client(evidence) or _nothing_known(evidence)
    )
    return Failure(
        kind=told.kind,
        phase=phase,
        blame=told.blame,
        why=without_secrets(told.why),
        cure=told.cure,
        confidence=told.confidence,
    )


def _by_deadline(evidence: Evidence) -> _Told | None:
    silent = evidence.exit_code is None and _SILENCE.search(evidence.client_error or "")
    if not evidence.timed_out and not silent:
        return None
    what = "stopped answering" if evidence.ready else "did not become ready in time"
    why = f"the server {what}, and its log shows no error"
    cure = "A longer time limit if it was still at work (loading, compiling); else undo what is new."
    return _Told(FailureKind.STALL, Blame.UNKNOWN, 0.6, why, cure)


def _by_exit(evidence: Evidence, log: LogFinding) -> _Told | None:
    code = evidence.exit_code
    if code is None or evidence.stop_requested:
        return None
    number = code - 128 if code in _SHELL_SIGNALS else -code
    if number > 0:
        return _by_signal(number)
    if log.stopped:
        return _STOPPED
    if code in (126, 127):
        why = f"the program could not be started at all (exit code {code})"
        return _Told(FailureKind.ENVIRONMENT, Blame.ENVIRONMENT, 0.8, why, "Check the path of vLLM.")
    if code == 2 and log.phase is Phase.ARGS:  # what argparse ends a program with
        why = "the command line was refused (exit code 2), and the log does not say why"
        return _Told(FailureKind.BAD_FLAG, Blame.CONFIGURATION, 0.5, why)
    if evidence.ready:
        why = f"the server ended by itself (exit code {code}), as vLLM does when its engine has died"
        return _Told(FailureKind.ENGINE_CRASH, Blame.UNKNOWN, 0.4, why, _DMESG)
    return None


def _by_signal(number: int) -> _Told:
    if number == _SIGKILL:
        return _KILLED
    if number in _SIGBUS:
        return _BUS_ERROR
    if number in (_SIGHUP, _SIGINT, _SIGTERM):
        return _STOPPED
    why = f"compiled code crashed the server ({_CRASH_NAMES.get(number, f'signal {number}')})"
    cure = (
        "Drop one at a time: speculation, quantization, CUDA graphs (enforce_eager); or another vLLM version."
    )
    return _Told(FailureKind.ENGINE_CRASH, Blame.CONFIGURATION, 0.6, why, cure)


def _by_client(evidence: Evidence) -> _Told | None:
    error = evidence.client_error
    if error is None:
        return None
    if re.match(r"HTTP 4\d\d\b", error):
        why = f"the server refused a request: {error}"
        return _Told(FailureKind.CLIENT, Blame.USER, 0.5, why, "Change what is asked for, not the server.")
    return _Told(
        FailureKind.UNKNOWN, Blame.UNKNOWN, 0.2, f"a request failed ({error}), and the log shows no error"
    )


def _nothing_known(evidence: Evidence) -> _Told:
    how = "" if evidence.exit_code is None else f" (exit code {evidence.exit_code})"
    return _Told(
        FailureKind.UNKNOWN, Blame.UNKNOWN, 0.1, f"the server ended{how}, and its log shows no error"
    )
