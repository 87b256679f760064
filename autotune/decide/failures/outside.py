"""What follows from what was seen of a server from outside: memory that ran out, processes that hang."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autotune.domain.aftermath import Aftermath, MemoryShortage, ProcessActivity
from autotune.domain.failure import Blame, FailureKind
from autotune.units import format_bytes

_LITTLE_SHARE = 0.1
"""A server that holds less of the memory than this has not exhausted it."""
_LESS = (
    "Less memory on the host: a smaller KV cache on the CPU or cpu_offload_gb, or, where GPU and CPU share "
    "memory, a smaller gpu_memory_utilization"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """What a behaviour means."""

    kind: FailureKind
    blame: Blame
    confidence: float
    why: str
    cure: str = ""
    numbers: Mapping[str, float | str] = field(default_factory=dict)
    frames: tuple[str, ...] = ()


def by_shortage(seen: Aftermath) -> Conclusion | None:
    """autotune ended the server to save the machine."""
    short = seen.shortage
    if short is None:
        return None
    others = _others_did_it(short)
    available, total, floor = (
        format_bytes(size) for size in (max(0, short.available_bytes), short.total_bytes, short.floor_bytes)
    )
    held = _what_others_held(short) if others else _what_it_held(short)
    why = (
        f"autotune ended the server, because only {available} of {total} memory were available, less than "
        f"the {floor} that keep the machine answering; {held}"
    )
    numbers: dict[str, float | str] = {
        "available_bytes": short.available_bytes,
        "floor_bytes": short.floor_bytes,
        "total_bytes": short.total_bytes,
        "available_at_launch_bytes": short.available_at_launch_bytes,
        "server_bytes": short.server_bytes,
        "others_bytes": short.others_bytes,
    }
    if others and short.other:
        numbers |= {"other": short.other.name, "other_pid": short.other.pid}
        numbers["other_bytes"] = short.other.memory_bytes
    return Conclusion(
        kind=FailureKind.HOST_OOM,
        blame=Blame.ENVIRONMENT if others else Blame.CONFIGURATION,
        confidence=0.9 if others else 0.95,
        why=why,
        cure="End the other process, or wait until it has ended." if others else f"{_LESS}.",
        numbers=numbers,
    )


def by_kernel(seen: Aftermath) -> Conclusion | None:
    """The kernel's log names a process of the server that it ended for want of memory."""
    if not seen.oom_killed:
        return None
    largest = max(seen.oom_killed, key=lambda process: process.memory_bytes)
    held = format_bytes(largest.memory_bytes)
    return Conclusion(
        kind=FailureKind.HOST_OOM,
        blame=Blame.CONFIGURATION,
        confidence=0.95,
        why=f"the kernel ended {largest.name} (pid {largest.pid}), which held {held}, because the machine or "
        "the container ran out of memory",
        cure=f"{_LESS}; or a higher limit for the container.",
        numbers={"victim": largest.name, "victim_pid": largest.pid, "victim_bytes": largest.memory_bytes},
    )


def by_group(seen: Aftermath) -> Conclusion | None:
    """The control group counts processes that the kernel ended while the server ran, whichever they were."""
    if not seen.oom_kills:
        return None
    what = "a process" if seen.oom_kills == 1 else f"{seen.oom_kills} processes"
    return Conclusion(
        kind=FailureKind.HOST_OOM,
        blame=Blame.CONFIGURATION,
        confidence=0.85,
        why=f"the machine or the container ran out of memory: the kernel ended {what} of autotune's control "
        "group while this server ran",
        cure=f"{_LESS}; or a higher limit for the container.",
        numbers={"oom_kills": seen.oom_kills},
    )


def stuck_in(activity: Sequence[ProcessActivity]) -> tuple[str, tuple[str, ...]]:
    """In words what a hung server was doing, and the functions that show it; empty when nothing is known.

    The API server waits for the engine, which waits for the workers: the last one that computes, else the
    last whose stack is known, is where it hangs.
    """
    if not activity:
        return "", ()
    readable = [process for process in activity if process.frames] or activity
    culprit = next((p for p in reversed(readable) if p.busy), readable[-1])
    busy = [process.name for process in activity if process.busy]
    if culprit.frames:
        where = f" in {' -> '.join(culprit.frames[-2:])}"  # vLLM's own, and what it called
    elif culprit.waits_in and not culprit.busy:
        where = f" in the kernel's {culprit.waits_in}"
    else:
        where = ""
    waits = "waits for a device or a disk" if culprit.state == "D" else "waits"
    doing = "computes" if culprit.busy else waits
    rest = "" if busy else f"; none of its {len(activity)} processes used the processor"
    return f"{culprit.name} {doing}{where}{rest}", culprit.frames


def _others_did_it(short: MemoryShortage) -> bool:
    """Whether other processes, rather than the server, exhausted the memory.

    What went since the launch and was not taken by others is the server's, in whatever count it appears:
    pinned and GPU memory of a unified machine are in no process's.
    """
    gone_bytes = short.available_at_launch_bytes - short.available_bytes
    server_bytes = max(short.server_bytes, gone_bytes - short.others_grew_bytes)
    if short.others_grew_bytes > server_bytes:
        return True
    return server_bytes < _LITTLE_SHARE * short.total_bytes and short.others_bytes > server_bytes


def _what_it_held(short: MemoryShortage) -> str:
    return (
        f"its processes held {format_bytes(short.server_bytes)}, and "
        f"{format_bytes(short.available_at_launch_bytes)} had been available at its launch"
    )


def _what_others_held(short: MemoryShortage) -> str:
    server, others = format_bytes(short.server_bytes), format_bytes(short.others_bytes)
    told = f"its processes held {server}, others {others}"
    if short.other is None:
        return told
    size = format_bytes(short.other.memory_bytes)
    return f"{told}, among them {short.other.name} (pid {short.other.pid}) {size}"
