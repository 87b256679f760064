"""What the chosen configuration sets that the baseline does not, and what is known of each setting alone."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from autotune.domain.effective import DifferenceKind
from autotune.domain.launch import setting_name, settings
from autotune.domain.space import Value
from autotune.domain.trial import TrialRecord
from autotune.report.ablation import worth_sentence
from autotune.report.failure import plain
from autotune.report.figures.text import shown
from autotune.report.view import StudyView


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting by the name vLLM has for it; `worth` is empty where nothing is known of it alone."""

    name: str
    baseline: str
    chosen: str
    worth: str


def changed_settings(view: StudyView) -> tuple[Setting, ...]:
    """Of `view.verdict.other` against the baseline, in the order of the command line; none without either."""
    other = view.verdict.other if view.verdict else None
    if other is None or view.baseline is None:
        return ()
    before, after = (settings(view.space, record.configuration) for record in (view.baseline, other))
    known = _read_back(view.baseline)
    return tuple(
        Setting(
            name=name,
            baseline=_text(before.get(name), known.get(name)),
            chosen=_text(after.get(name), None),
            worth=" ".join(_worth(view, other, name)),
        )
        for name in dict.fromkeys((*after, *before))
        if after.get(name) != before.get(name)
    )


def _read_back(record: TrialRecord) -> Mapping[str, Value]:
    return record.effective.facts if record.effective else {}


def _text(value: Value | None, read_back: Value | None) -> str:
    """A value as vLLM was told it; where it was told none, what it chose by itself if that is known."""
    if value is not None:
        return plain(shown(value))
    return "vLLM's choice" if read_back is None else f"{plain(shown(read_back))} (vLLM's choice)"


def _worth(view: StudyView, record: TrialRecord, name: str) -> Iterator[str]:
    """What an ablation has measured, and what vLLM itself said."""
    for worth in view.ablation.worths if view.ablation else ():
        if setting_name(view.space.parameter(worth.variant.setting).target) == name:
            yield f"{plain(worth_sentence(worth))}."
    for difference in record.effective.differences if record.effective else ():
        if difference.setting == name:
            nothing = difference.kind is DifferenceKind.NO_EFFECT
            yield f"{'Nothing' if nothing else 'Changed by vLLM'}: {plain(difference.sentence)}"
