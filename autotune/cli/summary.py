"""The verdict of a study, as `run` and `best` print it."""

from autotune.cli.console import out
from autotune.decide.ranking import baseline, gain, incumbent, values_of
from autotune.domain.study import StudyInfo
from autotune.domain.trial import TrialRecord
from autotune.report import tables, words
from autotune.store.evidence import EvidenceStore


def print_summary(store: EvidenceStore, database: str) -> None:
    """Baseline against winner, or why there is none."""
    info, records = store.info(), store.records()
    if info is None:
        return
    best = incumbent(records, info.objectives)
    if best is None:
        out.print(f"No configuration has been measured in {len(records)} trials.", highlight=False)
        if records:
            out.print("Reasons:  autotune show", highlight=False)
        return
    print_verdict(info, list(records), best)


def print_verdict(info: StudyInfo, records: list[TrialRecord], best: TrialRecord) -> None:
    """The chosen trial in one sentence, and the ladder beside the baseline's."""
    base = baseline(records)
    failed = sum(record.failure is not None for record in records)
    rejected = f" {info.rejected} draws rejected by lessons." if info.rejected else ""
    out.print(f"{len(records)} trials, {failed} failed.{rejected}", highlight=False)
    out.print(_sentence(info, best, base), markup=False, highlight=False, soft_wrap=True)
    out.print(tables.ladder(base, best))
    out.print(
        "Rates are sums over all streams; total time is the median time of one request.\n"
        "Each trial is measured once, so small differences are noise.",
        style="dim",
    )


def _sentence(info: StudyInfo, best: TrialRecord, base: TrialRecord | None) -> str:
    what = f"Winner: trial {best.number}, {words.configuration(best.configuration)}"
    values, base_values = values_of(best, info.objectives), base and values_of(base, info.objectives)
    if base is None or not values or not base_values:
        return f"{what}. vLLM's defaults could not be measured here, so there is nothing to compare it with."
    if best.number == base.number:
        return "Nothing measured beats vLLM's defaults: deploy those."
    objectives = " and ".join(map(str, info.objectives))
    times = gain(values, base_values, info.objectives)
    return f"{what}: {times:.2f} times vLLM's defaults (geometric mean of {objectives})."
