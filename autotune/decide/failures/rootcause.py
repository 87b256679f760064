"""Which of the many things a dying server says is the cause.

The last line never is. Processes that work come before those that wait for them, an out-of-memory event comes
before whatever it caused, and of one process the first failure counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.decide.failures.signatures import Rule, Weight
from autotune.decide.failures.template import Value
from autotune.domain.failure import FailureKind, Phase

_MEMORY_KINDS = (FailureKind.GPU_OOM, FailureKind.HOST_OOM)
VAGUE = 0.3
"""Up to this confidence a consequence says no more than that the server is gone."""
ENGINE_RANK = 1.0
"""Up to this rank a process exists only while the engine does."""
_LOGGER_RANKS = {
    "multiproc_worker_utils": 0.0,
    "multiproc_executor": 0.0,
    "worker_base": 0.0,
    "core": 1.0,
    "engine": 1.0,
    "async_llm_engine": 1.0,
    "async_llm": 2.0,
}
_KEPT = 8
"""Events of one sort: only the first can ever be chosen, the others show that it was no single case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A line that may be the cause; `rule` is None for an exception that no rule knows."""

    line_number: int
    line: str
    message: str
    """The exception with the lines that belong to it; `line` is what stands at `line_number`."""
    process: str
    rank: float
    chain: tuple[str, int]
    """The tracebacks of one chain share it: of these the rules decide, not the order."""
    exception: tuple[str, int]
    """The lines of one exception's message share it."""
    fatal: bool
    phase: Phase
    """How far the server had come."""
    frame_phase: Phase | None
    frames: tuple[str, ...]
    source_line: str
    """The code of the innermost frame."""
    rule: Rule | None
    numbers: Mapping[str, Value]
    """Those that the rule found."""
    values: Mapping[str, Value]
    """These and the facts and settings told before, for the texts."""

    @property
    def weight(self) -> Weight:
        """What it proves."""
        return self.rule.weight if self.rule else Weight.ROOT

    @property
    def out_of_memory(self) -> bool:
        """Whether it is an exhausted memory itself, not the guess that there was one."""
        if self.rule is None or self.weight is not Weight.ROOT:
            return False
        return self.rule.kind in _MEMORY_KINDS or "out of memory" in self.message.lower()


def process_rank(process: str, origin: str) -> float:
    """0 for a worker, 1 for the engine, 2 for the API server; between these two where a line names none."""
    if "worker" in process.lower():
        return 0.0
    if process.startswith("Engine"):
        return 1.0
    if process.lower().startswith("apiserver"):
        return 2.0
    # Before 0.10 only workers had a prefix; the logging module tells the other two apart.
    name = origin.rpartition("/")[2].partition(".py")[0]
    return _LOGGER_RANKS.get(name, 1.5)


class Events:
    """The events of one run, in memory that does not grow with the log."""

    def __init__(self) -> None:
        self._by_sort: dict[tuple[object, ...], list[Event]] = {}

    def add(self, event: Event) -> None:
        """Keep it, unless enough of its sort came before."""
        sort = (event.rule.id if event.rule else None, event.rank, event.fatal, event.weight)
        same = self._by_sort.setdefault(sort, [])
        if len(same) < _KEPT:
            same.append(event)

    def all(self) -> list[Event]:
        """Those kept, in the order of their lines."""
        return sorted((e for same in self._by_sort.values() for e in same), key=lambda e: e.line_number)


def root_of(events: list[Event], order: Mapping[str, int], *, proven: bool) -> Event | None:
    """The cause among `events`; None when they show no failure.

    `order` gives each rule its precedence. `proven` says that there was a failure for sure, so that a fault
    the server might have survived, or a hint, may explain it.
    """
    if not proven and not any(
        e.weight is Weight.CONSEQUENCE or (e.weight is Weight.ROOT and e.fatal) for e in events
    ):
        return None
    # In one chain of tracebacks an exception without a rule is the technical side of the one that has one.
    known = {e.chain for e in events if e.rule and e.weight is Weight.ROOT} | {
        e.exception for e in events if e.rule
    }
    candidates = [e for e in events if e.rule or known.isdisjoint((e.chain, e.exception))]
    first = min(candidates, key=lambda e: (_tier(e), *_place(e, order)), default=None)
    if first is None or first.rule is None or first.weight is not Weight.ROOT:
        return first
    chain = [e for e in candidates if e.chain == first.chain and _tier(e) == _tier(first)]
    return min(chain, key=lambda e: (_order(e, order), e.line_number))


def _tier(event: Event) -> int:
    """How good an explanation an event is; lower is better."""
    match event.weight:
        case Weight.ROOT if event.out_of_memory:
            return 0
        case Weight.ROOT if event.fatal:
            return 1
        case Weight.ROOT if event.rule and event.rule.kind is not FailureKind.CLIENT:
            return 2
        case Weight.CONSEQUENCE if event.rule and event.rule.confidence > VAGUE:
            return 3
        case Weight.ROOT if event.rule is None:
            return 4
        case Weight.CONSEQUENCE:
            return 5
        case Weight.ROOT:  # a request the client should not have sent
            return 6
        case _:
            return 7


def _place(event: Event, order: Mapping[str, int]) -> tuple[float, int]:
    """Among roots the process and the line decide; consequences say the same thing more or less exactly."""
    if event.weight is Weight.ROOT:
        return (event.rank, event.line_number)
    return (float(_order(event, order)), event.line_number)


def _order(event: Event, order: Mapping[str, int]) -> int:
    return order[event.rule.id] if event.rule else 0
