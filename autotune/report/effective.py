"""What vLLM made of a trial's settings, in a few rows: the differences first."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from autotune.domain.effective import Difference, DifferenceKind
from autotune.domain.measurement import Point, ServerCounts
from autotune.domain.space import Value
from autotune.domain.trial import TrialRecord
from autotune.report.failure import rows

_LABELS: Mapping[DifferenceKind, str] = {
    DifferenceKind.NO_EFFECT: "No effect",
    DifferenceKind.CHANGED: "Changed",
}
_FLAGGED = {True: "Suspect", False: "Note"}
# Rows of 80 columns. A failure takes up to 21 of a screen's 40, what ran about 9; a measured trial has its
# table instead.
_MOST_OF_FAILED = 7
_MOST = 16
Facts = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class EffectiveBlock:
    """What vLLM made of it: differences, cache, engine, memory, start, and what the server counted.

    Renders in at most 16 rows of 80 columns, or 7 for a failed trial; nothing for one that was not read back.
    """

    record: TrialRecord

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield one text for each row."""
        most, each = (_MOST_OF_FAILED, 1) if self.record.failure else (_MOST, 2)
        found = [
            row
            for label, text in _lines(self.record)
            for row in rows(console, options.max_width, label, text, each)
        ]
        if not found:
            return
        yield Text("What vLLM made of it")
        yield from found[: most - 1]


def _lines(record: TrialRecord) -> Iterator[tuple[str, str]]:
    """Labels and texts. What is not known has no line."""
    if record.effective is not None:
        facts = record.effective.facts
        for difference in record.effective.differences:
            yield _LABELS[difference.kind], _difference(difference)
        for label, text in (
            ("KV cache", _cache(facts)),
            ("Engine", _engine(facts)),
            ("Memory", _memory(facts)),
            ("Start", _start(facts)),
        ):
            if text:
                yield label, text
    yield from _counted(record)


def _difference(difference: Difference) -> str:
    is_now = "" if difference.effective is None else f", is {_value(difference.effective)}"
    return f"{difference.setting} = {_value(difference.requested)}{is_now}: {difference.sentence}"


def _cache(facts: Facts) -> str:
    tokens, gib = facts.get("kv_cache_tokens"), facts.get("kv_cache_gib")
    size = f"{_value(tokens)} tokens" if tokens is not None else ""
    if gib is not None:
        size += f" ({_value(gib)} GiB)" if size else f"{_value(gib)} GiB"
    requests, length = facts.get("max_concurrency"), facts.get("concurrency_tokens")
    if requests is not None and length is not None:
        size += f", {_value(requests)} requests of {_value(length)} tokens"
    return size


def _engine(facts: Facts) -> str:
    parts = [str(facts[name]) for name in ("attention_backend", "linear_kernel") if name in facts]
    parts += [f"runner {facts['runner']}"] if "runner" in facts else []
    if facts.get("speculation", "off") != "off":
        parts.append(f"speculation {facts['speculation']}")
    if facts.get("prefix_caching") is not None:
        parts.append(f"prefix caching {'on' if facts['prefix_caching'] else 'off'}")
    if facts.get("async_scheduling") is not None:
        parts.append(f"async {'on' if facts['async_scheduling'] else 'off'}")
    if "max_num_batched_tokens" in facts:
        parts.append(f"{_value(facts['max_num_batched_tokens'])} tokens a step")
    if facts.get("omp_cpu_ids") is not None:
        parts.append(f"CPU {facts['omp_cpu_ids']}")
    return ", ".join(parts)


def _memory(facts: Facts) -> str:
    names = {
        "weights_gib": "weights",
        "offloaded_gib": "offloaded",
        "activation_gib": "activation",
        "graphs_gib": "graphs",
    }
    parts = [f"{word} {_value(facts[name])}" for name, word in names.items() if name in facts]
    return f"{', '.join(parts)} GiB" if parts else ""


def _start(facts: Facts) -> str:
    names = {
        "weights_load_s": "weights",
        "compile_s": "compilation",
        "graph_capture_s": "graphs",
        "init_s": "engine in all",
    }
    parts = [f"{word} {_value(facts[name])} s" for name, word in names.items() if name in facts]
    if "compile_cache" in facts:
        parts.append(f"compile cache {facts['compile_cache']}")
    return ", ".join(parts)


def _counted(record: TrialRecord) -> Iterator[tuple[str, str]]:
    """What the server counted at each stream count, where there is something to say."""
    if drafts := _by_streams(record.points, _accepted):
        yield "Drafts", f"accepted {drafts}"
    if preempted := _by_streams(record.points, lambda c: f"{c.preemptions:,}" if c.preemptions else None):
        yield "Preemptions", preempted
    for point in record.points:
        for flag in point.flags:
            yield _FLAGGED[flag.kind.is_suspect], f"at {_streams(point.streams)}: {flag.text}"


def _by_streams(points: tuple[Point, ...], say: Callable[[ServerCounts], str | None]) -> str:
    told = [(say(point.server), point.streams) for point in points if point.server is not None]
    parts = [(text, streams) for text, streams in told if text is not None]
    return ", ".join(
        f"{text} at {_streams(streams) if position == len(parts) else streams}"
        for position, (text, streams) in enumerate(parts, start=1)
    )


def _accepted(counts: ServerCounts) -> str | None:
    rate, length = counts.acceptance_rate, counts.mean_accepted_length
    return None if rate is None or length is None else f"{100 * rate:.0f} % ({length:.1f} tokens a draft)"


def _streams(count: int) -> str:
    return "1 stream" if count == 1 else f"{count} streams"


def _value(value: Value) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.4g}" if isinstance(value, float) else value
