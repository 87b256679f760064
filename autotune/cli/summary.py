"""The verdict of a study, as `run` and `best` print it."""

from autotune.cli.console import out
from autotune.decide.ranking import CLEAR_GAIN, baseline, gain, incumbent, values_of, winner
from autotune.domain.objective import Objective
from autotune.domain.study import StudyInfo
from autotune.domain.trial import TrialRecord
from autotune.report import tables, words
from autotune.store.evidence import EvidenceStore


def print_summary(store: EvidenceStore, database: str) -> None:
    """Baseline against winner, or why there is none."""
    info, records = store.info(), store.records()
    if info is None:
        return
    best = winner(records, info.objectives)
    if best is None:
        out.print(f"No configuration has been measured in {len(records)} trials.", highlight=False)
        if records:
            out.print("Reasons:  autotune show", highlight=False)
        return
    print_verdict(info, list(records), best)


def print_verdict(
    info: StudyInfo, records: list[TrialRecord], best: TrialRecord, prefer: Objective | None = None
) -> None:
    """The chosen trial in one sentence, and the ladder beside the baseline's."""
    base = baseline(records)
    failed = sum(record.failure is not None for record in records)
    rejected = f" {words.counted(info.rejected, 'draw')} rejected by lessons." if info.rejected else ""
    out.print(f"{words.counted(len(records), 'trial')}, {failed} failed.{rejected}", highlight=False)
    wanted = [prefer] if prefer else list(info.objectives)
    rival = incumbent(records, info.objectives, prefer) if base and best.number == base.number else best
    out.print(_sentence(wanted, best, base, rival), markup=False, highlight=False, soft_wrap=True)
    out.print(tables.ladder(base, best))
    out.print(
        "Rates are sums over all streams; total time is the median time of one request.\n"
        "Each trial is measured once, so small differences are noise.",
        style="dim",
    )


def _sentence(
    objectives: list[Objective], best: TrialRecord, base: TrialRecord | None, rival: TrialRecord | None
) -> str:
    """The verdict; `rival` is the best of all, which is not `best` where it is no clear gain."""
    names = " and ".join(map(str, objectives)) + (" (geometric mean)" if len(objectives) > 1 else "")
    if base is None or rival is None:
        what = f"Winner: trial {best.number}, {words.configuration(best.configuration)}"
        return f"{what}. vLLM's defaults could not be measured here, so there is nothing to compare it with."
    what = f"trial {rival.number}, {words.configuration(rival.configuration)}"
    values, base_values = values_of(rival, objectives), values_of(base, objectives)
    times = gain(values, base_values, objectives) if values and base_values else 1.0
    if best.number != base.number:
        return f"Winner: {what}: {times:.2f} times vLLM's defaults in {names}."
    sentence = "Nothing measured is clearly faster than vLLM's defaults: deploy those."
    if rival.number == base.number:
        return sentence
    return (
        f"{sentence} The best of the others, {what}, is {times:.2f} times as fast in {names}; "
        f"below {CLEAR_GAIN} a single measurement proves nothing."
    )
