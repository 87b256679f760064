"""Text from outside, made fit for Plotly, which reads a kind of HTML and TeX in every label it draws."""

from collections.abc import Iterable, Mapping, Sequence

from autotune.domain.space import Value
from autotune.domain.trial import TrialRecord
from autotune.report import words
from autotune.report.failure import plain

HOVER_CHARS = 44
"""A line of this length is just narrower than a phone is wide."""
_HOVER_SETTINGS = 16
_ENTITIES: Mapping[str, str] = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "$": "&#36;"}


def escaped(text: str) -> str:
    """`text` so that Plotly shows it as it is: no markup, link or formula; control characters as pictures."""
    return "".join(_ENTITIES.get(character, character) for character in plain(text))


def clipped(text: str, chars: int) -> str:
    """At most so many characters of `text`, with a sign where it was cut. Not escaped."""
    return text if len(text) <= chars else text[: chars - 1] + "…"


def lines(texts: Iterable[str], chars: int = HOVER_CHARS) -> str:
    """The label with each of `texts` on a line of its own, cut to `chars` and escaped."""
    return "<br>".join(escaped(clipped(text, chars)) for text in texts)


def folded(text: str, chars: int, most: int = 2) -> str:
    """A label of at most `most` lines, broken after blanks and underscores, cut and escaped."""
    rows = [""]
    for piece in text.replace("_", "_\0").replace(" ", " \0").split("\0"):
        if len(rows[-1]) + len(piece.rstrip()) > chars and rows[-1]:
            rows.append("")
        rows[-1] += piece
    kept = rows[:most] if len(rows) <= most else [*rows[: most - 1], "".join(rows[most - 1 :])]
    return lines((row.rstrip() for row in kept), chars)


def shown(value: Value) -> str:
    """A setting's value as a person writes it."""
    match value:
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case _:
            return str(value)


def trial_hover(record: TrialRecord, told: Sequence[str]) -> str:
    """The label of a marker: the trial, what is `told` of it, and its whole configuration."""
    values = record.configuration.values
    settings = [f"{name} = {shown(value)}" for name, value in values.items()][:_HOVER_SETTINGS]
    more = len(values) - len(settings)
    rest = [f"and {words.counted(more, 'setting')} more"] if more else []
    heading = f"<b>{lines([named(record)])}</b>"
    return "<br>".join(
        [heading, *([lines(told)] if told else []), lines([*(settings or ["no settings"]), *rest])]
    )


def named(record: TrialRecord) -> str:
    """`trial 17`; of the baseline also that it is that."""
    return (
        f"trial {record.number}" if record.configuration.values else f"trial {record.number}, vLLM's defaults"
    )
