"""Renders what became of failures that were run again, for the terminal and as JSON."""

from collections.abc import Mapping, Sequence

import msgspec
from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from autotune.domain.failure import Failure
from autotune.domain.recheck import Recheck, Verdict
from autotune.domain.study import StudyInfo
from autotune.domain.trial import TrialRecord
from autotune.report import words
from autotune.report.failure import plain
from autotune.units import format_duration

_STYLES = {
    Verdict.WORKS: "green",
    Verdict.STILL_FAILS: "red",
    Verdict.FAILS_OTHERWISE: "red",
    Verdict.UNDECIDED: "yellow",
}


def recheck_lines(record: TrialRecord, result: Recheck, study_version: str) -> Group:
    """One trial that was run again: what became of it, what it was, and with which settings."""
    head = Text(f"trial {record.number:>3}  ")
    head.append(_verdict(result, study_version), style=_STYLES[result.verdict])
    head.append(f"  [took {format_duration(_took_s(result))}]", style="dim")
    story = []
    if result.failure is not None and result.verdict is not Verdict.STILL_FAILS:
        story.append(Text(f"now: {_reason(result.failure)}"))
    if record.failure is not None:
        story.append(Text(f"was: {_reason(record.failure)}"))
    story.append(Text(words.configuration(record.configuration), style="dim"))
    return Group(head, *(Padding(text, (0, 0, 0, 11)) for text in story))


def recheck_summary(results: Sequence[Recheck], left: int, version: str) -> str:
    """One sentence over all of them; `left` were not run for want of time."""
    works = sum(result.verdict is Verdict.WORKS for result in results)
    looked = f"{works} of {len(results)} failed configurations work now with vLLM {version}"
    return f"{looked}; {left} were not tried" if left else looked


def recheck_document(
    info: StudyInfo, version: str, results: Sequence[tuple[TrialRecord, Recheck]], left: Sequence[TrialRecord]
) -> Mapping[str, object]:
    """What `autotune recheck --json` prints."""
    return {
        "study": info.name,
        "study_vllm_version": info.environment.vllm.version,
        "vllm_version": version,
        "rechecks": [
            {
                "trial": record.number,
                "parameters": dict(record.configuration.values),
                "before": msgspec.to_builtins(record.failure),
                "verdict": result.verdict.value,
                "fixed_in": _fixed_in(result, info.environment.vllm.version),
                "failure": msgspec.to_builtins(result.failure),
                "took_s": _took_s(result),
                "log_path": result.log_path,
            }
            for record, result in results
        ],
        "left": [record.number for record in left],
    }


def _verdict(result: Recheck, study_version: str) -> str:
    match result.verdict:
        case Verdict.WORKS:
            fixed = _fixed_in(result, study_version)
            return f"works now: fixed in {fixed}" if fixed else "works now, with the same vLLM"
        case Verdict.STILL_FAILS:
            return "still fails in the same way"
        case Verdict.FAILS_OTHERWISE:
            return "fails, but otherwise than before"
        case Verdict.UNDECIDED:
            return "could not be tried"


def _fixed_in(result: Recheck, study_version: str) -> str | None:
    """The version that cured it; None where it fails, or works with the version it failed with."""
    other = result.vllm_version != study_version
    return result.vllm_version if result.verdict is Verdict.WORKS and other else None


def _reason(failure: Failure) -> str:
    return plain(f"{failure.kind} at {failure.phase}: {failure.why}")


def _took_s(result: Recheck) -> float:
    return max(0.0, (result.finished_at - result.started_at).total_seconds())
