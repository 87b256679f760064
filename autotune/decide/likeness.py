"""What makes two sides of a comparison less than like with like, as sentences."""

from collections.abc import Iterator
from dataclasses import fields

from autotune.domain.comparison import Side
from autotune.domain.workload import Workload

_SAME_REQUESTS = {"streams", "min_window_s", "max_window_s", "slos"}
"""Settings of a workload that leave each request as it is."""
MAX_FAILED_SHARE = 0.01
"""Share of failed requests above which a point says little: a request that fails at once frees its place."""


def unlikeness(first: Side, second: Side) -> tuple[str, ...]:
    """What makes the two less than like with like, and what is doubtful about one of them."""
    found = (
        *_unlike("models", first.model, second.model),
        *_unlike("workloads", *_unlike_workloads(first.workload, second.workload)),
        *_unlike("versions of vLLM", first.version or "not known", second.version or "not known"),
        *_unlike("machines", first.machine, second.machine),
        *_unlike("GPUs", _gpus(first, second), _gpus(second, first)),
        *_doubts(first),
        *_doubts(second),
    )
    return tuple(dict.fromkeys(found))


def _gpus(side: Side, other: Side) -> str:
    """Its GPUs as text; empty where those of one side are not known."""
    return ", ".join(side.gpus) if side.gpus and other.gpus is not None else ""


def _unlike(what: str, first: str, second: str) -> tuple[str, ...]:
    return () if first == second else (f"The {what} differ: {first}; and {second}.",)


def _unlike_workloads(first: Workload, second: Workload) -> tuple[str, str]:
    """The settings that make other requests of the two, as text."""
    names = [
        field.name
        for field in fields(Workload)
        if field.compare
        and field.name not in _SAME_REQUESTS
        and getattr(first, field.name) != getattr(second, field.name)
    ]
    sides = [", ".join(f"{name} {getattr(w, name)}" for name in names) for w in (first, second)]
    return sides[0], sides[1]


def _doubts(side: Side) -> Iterator[str]:
    yield from (f"{side.name}: {note}" for note in side.notes)
    if len(side.runs) > 1 and not side.restarted:
        yield f"{side.name}: its repeats are of one launch; how much launches differ is not in the intervals."
    for point in (point for run in side.runs for point in run):
        at = f"{side.name}, {point.streams} streams"
        if point.failed > MAX_FAILED_SHARE * (point.done + point.failed):
            yield f"{at}: {point.failed} of {point.done + point.failed} requests failed."
        yield from (f"{at}: in doubt, {flag.text}." for flag in point.flags if flag.kind.is_suspect)
