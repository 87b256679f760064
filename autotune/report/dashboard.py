"""What optuna-dashboard shows beside the numbers: attributes, and notes in Markdown, their texts escaped."""

import re
from collections.abc import Mapping

from autotune.decide.ranking import Candidate, gain, values_of
from autotune.domain.launch import shell_words
from autotune.domain.trial import Measured, TrialRecord
from autotune.report import words
from autotune.report.failure import plain
from autotune.report.limits import nothing_to_deploy, standings
from autotune.report.verdict import sentences
from autotune.report.view import StudyView


def study_note(view: StudyView) -> str:
    """The verdict, and how to read the dashboard."""
    verdict, info = view.verdict, view.info
    if verdict is None:
        said = nothing_to_deploy(view.records, info.objectives, info.metric_limits)
    else:
        said = sentences(verdict, info.objectives)
    return (
        f"{escaped(said)}\n\n"
        "A configuration that was launched several times is *Complete* at its first measured trial, with the "
        "geometric means of all its launches; the others are *Pruned*, and so is what did not work or breaks "
        "a limit: none of these can look best. This is a copy to look at: nothing can be changed in it."
    )


def trial_note(view: StudyView, record: TrialRecord, candidate: Candidate | None) -> str:
    """What was launched, what came of it, why and what to do; `candidate` is its configuration's."""
    parts = [f"**{escaped(words.configuration(record.configuration))}**"]
    parts.append(
        escaped(f"{record.origin}{words.purpose(record.origin, record.block)}: {words.state(record)}")
    )
    if text := words.outcome(record, view.info.objectives, view.info.metric_limits):
        parts.append(escaped(text))
    if candidate is not None and candidate.held:
        parts.append(escaped(f"Limits: the configuration {standings(candidate.held)}."))
    if record.failure is not None and record.failure.cure:
        parts.append(f"What to do: {escaped(record.failure.cure)}")
    if record.failure is not None and record.failure.root_line:
        parts.append(f"Root cause: {escaped(record.failure.root_line)}")
    if candidate is not None and candidate.launches > 1:
        parts.append(_launches(record, candidate))
    if record.argv:
        parts.append(f"Command: {escaped(shell_words(record.argv, record.env))}")
    return "\n\n".join(parts)


def _launches(record: TrialRecord, candidate: Candidate) -> str:
    if candidate.record.number == record.number:
        return f"The values are geometric means over {candidate.launches} launches."
    return f"Counted in trial {candidate.record.number}, with {candidate.launches} launches in all."


def attributes(
    view: StudyView, record: TrialRecord, candidate: Candidate | None
) -> Mapping[str, str | int | float]:
    """What can be sorted and filtered by: state, origin, gain over the defaults, what it measured itself."""
    known: dict[str, str | int | float | None] = {
        "state": words.state(record),
        "origin": record.origin.value,
        "failure": record.failure.kind.value if record.failure else None,
        "gain": _gain(view, candidate),
        "launches": candidate.launches if candidate else None,
        "breaks": " and ".join(str(each.limit) for each in candidate.broken) or None if candidate else None,
        "counted in trial": candidate.record.number if candidate else None,
        "context tokens": record.context_tokens,
    }
    if isinstance(record.outcome, Measured):
        own = values_of(record, view.info.objectives) or ()
        known |= {f"measured {o}": value for o, value in zip(view.info.objectives, own, strict=False)}
    return {name: value for name, value in known.items() if value is not None}


def _gain(view: StudyView, candidate: Candidate | None) -> float | None:
    """Of the configuration over vLLM's defaults, in the objectives (geometric mean)."""
    base = next((c for c in view.candidates if not c.record.configuration.values), None)
    if base is None or candidate is None:
        return None
    return round(gain(candidate.values, base.values, view.info.objectives), 4)


def escaped(text: str) -> str:
    """`text` so that Markdown shows it as it is: no HTML, link or formula; control characters as pictures."""
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", plain(text))
