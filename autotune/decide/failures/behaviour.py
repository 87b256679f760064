"""Names a failure by how the process behaved, where its log does not: signal, exit code, deadline, client.

These are conclusions, not quotations, so each says how sure it is; a signature in the log always comes first.
"""

import re
from dataclasses import replace

from autotune.decide.failures.naming import without_secrets
from autotune.decide.failures.outside import Conclusion, by_group, by_kernel, by_shortage, stuck_in
from autotune.decide.failures.progress import later
from autotune.domain.failure import Blame, Evidence, Failure, FailureKind, LogFinding, Phase

_SHELL_SIGNALS = range(129, 160)
"""A shell reports a program that signal N ended as 128 + N."""
_SIGHUP, _SIGINT, _SIGKILL, _SIGTERM = 1, 2, 9, 15
_SIGBUS = (7, 10)  # Linux, macOS
_CRASH_NAMES = {4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 8: "SIGFPE", 11: "SIGSEGV", 12: "SIGSYS"}
_SILENCE = re.compile(
    r"sent nothing for|no (?:completion came back|connection) within|timed out|timeout", re.IGNORECASE
)
_DMESG = "Look into `dmesg` for oom_kill and for faults of the GPU (Xid); then try once more."


def _told(kind: FailureKind, blame: Blame, confidence: float, why: str, cure: str = "") -> Conclusion:
    return Conclusion(kind=kind, blame=blame, confidence=confidence, why=why, cure=cure)


_KILLED = _told(
    FailureKind.HOST_OOM,
    Blame.UNKNOWN,
    0.5,
    "the server was killed from outside (signal 9) without a word of its own: nearly always the kernel, "
    "because the machine or the container ran out of memory",
    "Look into `dmesg` or the cgroup's memory.events for oom_kill; then less memory on the host: a smaller "
    "cpu_offload_gb or KV cache on the CPU, or a higher limit for the container.",
)
_BUS_ERROR = _told(
    FailureKind.HOST_OOM,
    Blame.ENVIRONMENT,
    0.7,
    "the server ended with a bus error: memory it shares with its workers could not be provided",
    "Start the container with --ipc=host or a larger --shm-size.",
)
_STOPPED = _told(
    FailureKind.ENVIRONMENT,
    Blame.ENVIRONMENT,
    0.7,
    "somebody or something else told the server to stop",
    "Find out what stops it (a supervisor, a job scheduler, a user), and try again.",
)


def name_behaviour(evidence: Evidence, log: LogFinding) -> Failure:
    """The failure that `evidence` shows beside its log, which names none."""
    told = (
        _by_deadline(evidence) or _by_exit(evidence, log) or _by_client(evidence) or _nothing_known(evidence)
    )
    return _failure(told, evidence, log)


def name_exhaustion(evidence: Evidence, log: LogFinding) -> Failure | None:
    """The failure of a server that certainly ended because memory ran out, whatever its log says."""
    told = by_shortage(evidence.aftermath) or by_kernel(evidence.aftermath)
    return _failure(told, evidence, log) if told else None


def with_activity(failure: Failure, evidence: Evidence) -> Failure:
    """`failure`, named from the log, with what the processes of a hung server were doing."""
    doing, frames = stuck_in(evidence.aftermath.activity)
    if failure.kind is not FailureKind.STALL or not doing:
        return failure
    return replace(failure, why=f"{failure.why.rstrip('.')}; {doing}", frames=failure.frames or frames)


def is_silence(client_error: str) -> bool:
    """Whether a client means by it that the server does not answer, rather than that it answers wrongly."""
    return _SILENCE.search(client_error) is not None


def _failure(told: Conclusion, evidence: Evidence, log: LogFinding) -> Failure:
    phase = log.phase
    if evidence.ready:
        phase = Phase.SERVING if evidence.served else later(phase, Phase.FIRST_REQUEST)
    return Failure(
        kind=told.kind,
        phase=phase,
        blame=told.blame,
        why=without_secrets(told.why),
        cure=told.cure,
        numbers=told.numbers,
        confidence=told.confidence,
        frames=told.frames,
    )


def _by_deadline(evidence: Evidence) -> Conclusion | None:
    silent = evidence.exit_code is None and is_silence(evidence.client_error or "")
    if not evidence.timed_out and not silent:
        return None
    if killed := by_group(evidence.aftermath):
        return killed
    what = "stopped answering" if evidence.ready else "did not become ready in time"
    doing, frames = stuck_in(evidence.aftermath.activity)
    why = f"the server {what}, and its log shows no error" + (f"; {doing}" if doing else "")
    cure = "A longer time limit if it was still at work (loading, compiling); else undo what is new."
    if evidence.aftermath.stacks_path:
        cure += f" What all its threads were doing is in {evidence.aftermath.stacks_path}."
    return Conclusion(
        kind=FailureKind.STALL, blame=Blame.UNKNOWN, confidence=0.6, why=why, cure=cure, frames=frames
    )


def _by_exit(evidence: Evidence, log: LogFinding) -> Conclusion | None:
    code = evidence.exit_code
    if code is None or evidence.stop_requested:
        return None
    if killed := by_group(evidence.aftermath):
        return killed
    number = code - 128 if code in _SHELL_SIGNALS else -code
    if number > 0:
        return _by_signal(number)
    if log.stopped:
        return _STOPPED
    if code in (126, 127):
        why = f"the program could not be started at all (exit code {code})"
        return _told(FailureKind.ENVIRONMENT, Blame.ENVIRONMENT, 0.8, why, "Check the path of vLLM.")
    if code == 2 and log.phase is Phase.ARGS:  # what argparse ends a program with
        why = "the command line was refused (exit code 2), and the log does not say why"
        return _told(FailureKind.BAD_FLAG, Blame.CONFIGURATION, 0.5, why)
    if evidence.ready:
        when = "while it served" if evidence.served else "at its first request"
        why = f"the server ended by itself {when} (exit code {code}), as vLLM does when its engine has died"
        return _told(FailureKind.ENGINE_CRASH, Blame.UNKNOWN, 0.4, why, _DMESG)
    return None


def _by_signal(number: int) -> Conclusion:
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
    return _told(FailureKind.ENGINE_CRASH, Blame.CONFIGURATION, 0.6, why, cure)


def _by_client(evidence: Evidence) -> Conclusion | None:
    error = evidence.client_error
    if error is None:
        return None
    if re.match(r"HTTP 4\d\d\b", error):
        why = f"the server refused a request: {error}"
        return _told(FailureKind.CLIENT, Blame.USER, 0.5, why, "Change what is asked for, not the server.")
    return _told(
        FailureKind.UNKNOWN, Blame.UNKNOWN, 0.2, f"a request failed ({error}), and the log shows no error"
    )


def _nothing_known(evidence: Evidence) -> Conclusion:
    how = "" if evidence.exit_code is None else f" (exit code {evidence.exit_code})"
    return _told(
        FailureKind.UNKNOWN, Blame.UNKNOWN, 0.1, f"the server ended{how}, and its log shows no error"
    )
