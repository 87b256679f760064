"""The verdict of a study, as `run` and `best` print it."""

from autotune.cli.console import out
from autotune.decide.verdict import Verdict, verdict
from autotune.domain.objective import Objective
from autotune.domain.study import StudyInfo
from autotune.domain.trial import TrialRecord
from autotune.report import words
from autotune.report.limits import nothing_to_deploy
from autotune.report.verdict import ladder, notes, sentences
from autotune.store.evidence import EvidenceStore


def print_summary(store: EvidenceStore) -> None:
    """Baseline against winner, or why there is none."""
    info, records = store.info(), list(store.records())
    if info is None:
        return
    found = verdict(records, info.objectives, limits=info.metric_limits)
    if found is None:
        why = nothing_to_deploy(records, info.objectives, info.metric_limits)
        counted = words.counted(len(records), "trial")
        out.print(f"{counted}. {why}", markup=False, highlight=False, soft_wrap=True)
        if records:
            out.print("Reasons:  autotune show", highlight=False)
        return
    print_verdict(info, records, found)


def print_verdict(
    info: StudyInfo, records: list[TrialRecord], found: Verdict, prefer: Objective | None = None
) -> None:
    """What to deploy in a few sentences, and the ladder of it beside the baseline's."""
    failed = sum(record.failure is not None for record in records)
    refused = f" {words.refused(info.refused)}" if info.refused else ""
    out.print(f"{words.counted(len(records), 'trial')}, {failed} failed.{refused}", highlight=False)
    wanted = [prefer] if prefer else list(info.objectives)
    out.print(sentences(found, wanted), markup=False, highlight=False, soft_wrap=True)
    out.print(ladder(found))
    for note in notes(found):
        out.print(note, style="dim", highlight=False, soft_wrap=True)
