"""Answers that are more than a frame: the verdict, and what fits a need."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import pandas as pd

from autotune.api.frames import configurations
from autotune.decide.verdict import Verdict
from autotune.decide.what_if import WhatIf
from autotune.domain.launch import shell_words
from autotune.domain.objective import Objective
from autotune.domain.space import Value
from autotune.report import words
from autotune.report.failure import plain
from autotune.report.verdict import sentences


def html_paragraph(text: str) -> str:
    """`text` as it is: no markup of its own, no characters that steer."""
    return f"<p>{escape(plain(text))}</p>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """What to deploy. Trials are the first measured ones of their configurations.

    `gain` is how many times better than vLLM's defaults it is in the objectives (geometric mean), 1 where the
    defaults are to be deployed, None where those do not work here. Only finals give it an interval, `low` to
    `high` (95 %).
    """

    trial: int
    baseline: int | None
    certainty: str
    """`confirmed` by finals, `tied` with the defaults, `unconfirmed`, or `no_baseline`."""
    gain: float | None
    low: float | None
    high: float | None
    parameters: Mapping[str, Value]
    command: str
    """Starts the server, but for host and port; `autotune best --export` writes a complete script."""
    says: str
    """The verdict in words."""

    @classmethod
    def of(cls, verdict: Verdict, objectives: Sequence[Objective]) -> "Best":
        """The public face of a verdict."""
        chosen, difference = verdict.chosen, None if verdict.keeps_baseline else verdict.difference
        gain = difference.ratio if difference else (1.0 if verdict.keeps_baseline else verdict.looks)
        return cls(
            trial=chosen.number,
            baseline=verdict.baseline.number if verdict.baseline else None,
            certainty=verdict.certainty.value,
            gain=gain,
            low=difference.interval.low if difference else None,
            high=difference.interval.high if difference else None,
            parameters=dict(chosen.configuration.values),
            command=shell_words(chosen.argv, chosen.env),
            says=sentences(verdict, objectives),
        )

    def _repr_html_(self) -> str:
        return f"{html_paragraph(self.says)}<pre>{escape(plain(self.command))}</pre>"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fitting:
    """The measured configurations that fit a need, the best first.

    `best` is the trial of the first that has not also failed by its own fault; None where nothing fits.
    """

    rows: pd.DataFrame
    best: int | None
    says: str
    """The answer in words; where nothing fits, what stands in the way."""

    @classmethod
    def of(cls, found: WhatIf) -> "Fitting":
        """The public face of what was found."""
        return cls(
            rows=configurations(found.fitting, found.chosen_by, found.limits),
            best=found.best.record.number if found.best else None,
            says=_answer(found),
        )

    def _repr_html_(self) -> str:
        table = self.rows.to_html(index=False, max_rows=20) if len(self.rows) else ""
        return html_paragraph(self.says) + table


def _answer(found: WhatIf) -> str:
    asked = _asked(found)
    count = words.counted(found.measured, "measured configuration")
    if found.best is not None:
        record, by = found.best.record, " and ".join(map(str, found.chosen_by))
        text = (
            f"{len(found.fitting)} of {count} fit {asked}; the best in {by} is trial {record.number}: "
            f"{words.configuration(record.configuration)}."
        )
    elif found.fitting:
        text = f"What fits {asked} has also failed by its own fault: it works only sometimes."
    else:
        text = f"None of {count} fits {asked}."
        if found.broken_by:
            text += f" Missed: {', '.join(f'{name} by {n}' for name, n in found.broken_by.items())}."
    if found.unknown:
        text += f" Of {found.unknown} too little was measured to tell."
    return text


def _asked(found: WhatIf) -> str:
    parts = [f"context >= {found.context_tokens}"] if found.context_tokens is not None else []
    return " and ".join([*parts, *map(str, found.limits)]) or "(nothing was asked for)"
