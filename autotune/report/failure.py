"""Renders a failure so that it fits one screen together with what ran, and as JSON.

Log lines come from outside: they are shown as plain text, never as markup, and what would steer a terminal is
made visible.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from autotune.decide.failures.template import show
from autotune.domain.failure import Failure, LogFinding, Notice, Phase

_LABEL_WIDTH = 15
_ROWS = {"Why": 4, "What to do": 4, "Root cause": 4, "Numbers": 2, "Source": 2}
_SCREEN_ROWS = 21
"""Of a screen's 40, so that 19 are left for what ran, what vLLM made of it and what was learned."""
_FRAMES, _FEW_FRAMES = 5, 2
_MAX_NOTICES = 5
_THREAD = re.compile(r"\b(?:(?P<owner>[\w.-]+)/)?(?P<repository>[\w.-]+)#(?P<number>\d+)")


@dataclass(frozen=True, slots=True)
class FailureBlock:
    """What happened, why, what to do, the root cause with its place, its numbers, and how sure that is.

    Renders in at most 21 rows of 80 columns; longer texts end in an ellipsis, and where there is much to say
    only the innermost functions are shown.
    """

    failure: Failure

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield one text for each row."""
        shown = self._rows(console, options, _FRAMES)
        yield from shown if len(shown) <= _SCREEN_ROWS else self._rows(console, options, _FEW_FRAMES)

    def _rows(self, console: Console, options: ConsoleOptions, frames: int) -> list[Text]:
        return [
            row
            for label, text in _entries(self.failure, frames)
            for row in rows(console, options.max_width, label, text, _ROWS.get(label, 1))
        ]


@dataclass(frozen=True, slots=True)
class FindingBlock:
    """What a log says beside the failure it shows, or that it shows none."""

    finding: LogFinding

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield one text for each row."""
        if self.finding.failure is None:
            yield from rows(console, options.max_width, "No failure", _progress(self.finding), 4)
        for notice in self.finding.notices[:_MAX_NOTICES]:
            yield from rows(console, options.max_width, "Notice", _notice(notice), 3)


def log_line(finding: LogFinding, name: str) -> Text:
    """What was read, on one line that can be copied; `name` is what it is called."""
    version = f", vLLM {finding.version}" if finding.version else ""
    which = f"; start {finding.run} of the {finding.runs} in it" if finding.runs > 1 else ""
    return Text(f"{'Log':<{_LABEL_WIDTH}}{plain(name)}: {finding.lines} lines{plain(version)}{which}")


def failure_document(failure: Failure | None) -> Mapping[str, object]:
    """The JSON object that `autotune explain --json` prints: null everywhere when nothing failed."""
    names = ("kind", "phase", "blame", "rule", "root_line", "line_number")
    last = ("cure", "confidence", "why", "process", "source")
    if failure is None:
        return {**dict.fromkeys(names), "numbers": {}, **dict.fromkeys(last)}
    return {
        **{name: getattr(failure, name) for name in names},
        "numbers": dict(failure.numbers),
        **{name: getattr(failure, name) for name in last},
    }


def plain(text: str) -> str:
    """`text` on one line, without characters that steer a terminal or turn the direction of the text.

    Control characters become their pictures, so that what was there can be seen.
    """
    return "".join(_visible(character) for character in text)


def _visible(character: str) -> str:
    code = ord(character)
    if character in "\t\n\r":
        return " "
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    return "\ufffd" if unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp") else character


def _entries(failure: Failure, frames: int) -> Iterator[tuple[str, str]]:
    """Labels and texts in the order in which a person needs them."""
    yield "Failure", f"{failure.kind} at {failure.phase}, blame: {failure.blame}"
    yield "Why", failure.why
    if failure.cure:
        yield "What to do", failure.cure
    if failure.root_line:
        yield "Root cause", failure.root_line
    if failure.line_number or failure.process:
        places = (failure.line_number and f"line {failure.line_number} of the log", failure.process)
        yield "", f"({', '.join(place for place in places if place)})"
    if failure.numbers:
        yield "Numbers", ", ".join(f"{name} = {show(value)}" for name, value in failure.numbers.items())
    for position, frame in enumerate(failure.frames[-frames:]):
        yield "" if position else "Stack", frame
    yield "How sure", _certainty(failure)
    if failure.source:
        yield "Source", _linked(failure.source)


def _certainty(failure: Failure) -> str:
    share = f"{failure.confidence:.0%}".replace("%", " %")
    if failure.rule:
        return f"{share}, by rule {failure.rule}"
    if failure.root_line:
        return f"{share}: no rule knows this error"
    return f"{share}: the log does not say it, it follows from how the server ended"


def _linked(source: str) -> str:
    """`source` with public threads as addresses; `vllm#7` is one of vLLM's own."""

    def address(thread: re.Match[str]) -> str:
        owner, repository = thread["owner"], thread["repository"]
        if owner is None and repository == "vllm":
            owner = "vllm-project"
        if owner is None:
            return thread[0]
        return f"https://github.com/{owner}/{repository}/issues/{thread['number']}"

    return _THREAD.sub(address, source)


def _progress(finding: LogFinding) -> str:
    """How far a server came of which nothing is known to have failed."""
    if finding.lines == 0:
        return "the log is empty"
    if finding.served:
        came = "the server became ready and answered requests"
    elif finding.ready:
        came = "the server became ready; the log shows no answered request"
    elif finding.phase is Phase.ARGS and finding.version is None:
        return "nothing in it looks like a log of vLLM"
    else:
        came = f"the log ends while the server was starting, at {finding.phase}, and shows no error"
    return f"{came}; it was told to stop" if finding.stopped else came


def _notice(notice: Notice) -> str:
    place = f" (line {notice.line_number})" if notice.line_number else ""
    return f"{notice.why}{place}"


def rows(console: Console, width: int, label: str, text: str, most: int) -> Iterator[Text]:
    """`text` beside its label in at most `most` rows, long words folded."""
    available = max(width - _LABEL_WIDTH, 20)
    lines = list(Text(plain(text)).wrap(console, available, overflow="fold"))
    cut = len(lines) > most
    lines = lines[:most]
    if cut:
        lines[-1].truncate(available - 1)
        lines[-1].append("…")
    for position, line in enumerate(lines):
        line.rstrip()
        yield Text(f"{'' if position else label:<{_LABEL_WIDTH}}").append_text(line)
