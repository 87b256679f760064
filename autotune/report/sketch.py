"""Pictures of plain characters for a terminal: the Pareto plot of a study, and a ladder as one word.

They are for people at a terminal that is wide enough. In a pipe, and on a terminal that cannot say how wide
it is (`TERM=dumb`), there are none, so that what programs read stays what it is.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from autotune.decide.ladder import ladder, launches_by_configuration
from autotune.decide.ranking import Candidate
from autotune.domain.measurement import Point
from autotune.domain.trial import TrialRecord
from autotune.report import words

NARROWEST = 50
"""Columns below which there is no plot: too few are left beside the labels."""
_WIDEST = 80
_ROWS = 12
_DECADES = 8.0
"""An axis is logarithmic where its largest value is so many times its smallest."""
_BARS = {True: "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588", False: ".:-=+*#@"}
_MARKS = ".*o@"
_OTHER, _FRONT, _DEFAULTS, _BEST = range(len(_MARKS))
"""What is drawn later hides what is below it."""


def draws(console: Console) -> bool:
    """Whether pictures can be shown there."""
    return console.is_terminal and not console.is_dumb_terminal


def sparkline(points: Sequence[Point], highest: float, console: Console) -> str:
    """The output rates of a ladder, a character for each stream count; a full one is the rate `highest`."""
    bars = _BARS[_knows_blocks(console)]
    if highest <= 0:
        return ""
    places = (math.ceil(point.out_tok_s / highest * len(bars)) - 1 for point in points)
    return "".join(bars[min(len(bars) - 1, max(0, place))] for place in places)


def highest_rate(records: Sequence[TrialRecord]) -> float:
    """The largest output rate of all points."""
    return max((point.out_tok_s for record in records for point in record.points), default=0.0)


def _knows_blocks(console: Console) -> bool:
    try:
        _BARS[True].encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoSketch:
    """Throughput against the speed each stream sees, of every configuration at every stream count."""

    records: Sequence[TrialRecord]
    among: Sequence[Candidate]
    """The configurations that are shown."""
    front: Sequence[TrialRecord]
    best: TrialRecord | None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        spots = self._spots()
        if not draws(console) or options.max_width < NARROWEST or not spots:
            return
        rows = (*_drawn(spots, min(_WIDEST, options.max_width)), self._legend(spots))
        yield Text("\n".join(("", *rows)), no_wrap=True)

    def _spots(self) -> list[tuple[float, float, int]]:
        """Tokens a second of each stream and of all, and the mark."""
        launches = launches_by_configuration(self.records)
        marks = self._marks()
        spots: list[tuple[float, float, int]] = []
        for candidate in self.among:
            digest = candidate.record.configuration.digest
            for level in ladder(launches.get(digest, ())):
                if level.out_tok_s is not None:
                    total = level.out_tok_s.value
                    spots.append((total / level.streams, total, marks.get(digest, _OTHER)))
        return sorted(spots, key=lambda spot: spot[2])

    def _marks(self) -> Mapping[str, int]:
        marks = {record.configuration.digest: _FRONT for record in self.front}
        marks |= {
            c.record.configuration.digest: _DEFAULTS for c in self.among if not c.record.configuration.values
        }
        return marks | ({self.best.configuration.digest: _BEST} if self.best else {})

    def _legend(self, spots: Sequence[tuple[float, float, int]]) -> str:
        """What the marks mean that are there."""
        best = ""
        if self.best:
            is_default = not self.best.configuration.values
            best = "best: the defaults" if is_default else f"best: trial {self.best.number}"
        names = {_OTHER: "other", _FRONT: "front", _DEFAULTS: "defaults", _BEST: best}
        there = {mark for _, _, mark in spots}
        return "  ".join(f"{_MARKS[mark]} {names[mark]}" for mark in sorted(there, reverse=True))


def _drawn(spots: Sequence[tuple[float, float, int]], width: int) -> Iterator[str]:
    """The rows of the plot, with labels at the ends and in the middle of both axes."""
    across, up = _Axis.of([x for x, _, _ in spots]), _Axis.of([y for _, y, _ in spots])
    labels = {row: words.number(up.value(1 - row / (_ROWS - 1))) for row in (0, _ROWS // 2, _ROWS - 1)}
    margin = max(map(len, labels.values()))
    columns = width - margin - 2
    rows = [[" "] * columns for _ in range(_ROWS)]
    yield f"output of all streams, tok/s{up.scale}"
    for x, y, mark in spots:
        rows[round((1 - up.place(y)) * (_ROWS - 1))][round(across.place(x) * (columns - 1))] = _MARKS[mark]
    for number, row in enumerate(rows):
        yield f"{labels.get(number, ''):>{margin}} |{''.join(row)}".rstrip()
    yield f"{'':>{margin}} +{'-' * columns}"
    left, middle, right = (words.number(across.value(share)) for share in (0.0, 0.5, 1.0))
    half = columns // 2
    yield f"{'':>{margin}}  {left:<{half - len(middle) // 2}}{middle}".ljust(width - len(right)) + right
    yield f"{f'tok/s for each stream{across.scale}':>{width}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    """From the smallest value to the largest, logarithmic where they lie far apart."""

    low: float
    high: float
    is_log: bool

    @classmethod
    def of(cls, values: Sequence[float]) -> "_Axis":
        low, high = min(values), max(values)
        return cls(low=low, high=high, is_log=low > 0 and high / low >= _DECADES)

    @property
    def scale(self) -> str:
        """What its label adds."""
        return " (logarithmic)" if self.is_log else ""

    def place(self, value: float) -> float:
        """From 0 to 1; the middle where all values are the same."""
        if self.high == self.low:
            return 0.5
        if self.is_log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def value(self, share: float) -> float:
        """The inverse of `place`."""
        if self.is_log:
            return self.low * math.exp(share * math.log(self.high / self.low))
        return self.low + share * (self.high - self.low)
