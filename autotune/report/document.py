"""The JSON that `--json` prints. Its keys are part of the command's interface: added to, never renamed."""

from collections.abc import Mapping, Sequence

import msgspec

from autotune.decide.ablation.findings import Ablation
from autotune.decide.noise import noise_of, variation
from autotune.decide.ranking import front, score, values_of
from autotune.decide.verdict import Verdict
from autotune.domain.lesson import Lesson, Standing
from autotune.domain.machine import Environment
from autotune.domain.measurement import Point
from autotune.domain.study import StudyInfo
from autotune.domain.trial import Abandoned, Interrupted, TrialRecord
from autotune.report import words
from autotune.report.ablation import ablation_document
from autotune.report.limits import broken_limits
from autotune.report.verdict import verdict_document


def study_document(
    info: StudyInfo, budgets_s: Sequence[float], records: Sequence[TrialRecord]
) -> Mapping[str, object]:
    """`study` and all `trials`: what `autotune show --json` prints."""
    return {
        "study": _study(info, budgets_s, records),
        "trials": [trial_document(record, info) for record in records],
        "front": [record.number for record in front(records, info.objectives, info.metric_limits)],
    }


def best_document(
    info: StudyInfo,
    budgets_s: Sequence[float],
    records: Sequence[TrialRecord],
    found: Verdict,
    ablation: Ablation | None = None,
) -> Mapping[str, object]:
    """The chosen trial beside the baseline: what `autotune best --json` prints.

    `gain` is that of best against baseline in the objectives (geometric mean), null without a baseline; what
    it rests on is in `verdict`.
    """
    if found.keeps_baseline:
        times: float | None = 1.0
    else:
        times = found.difference.ratio if found.difference else found.looks
    return {
        "study": _study(info, budgets_s, records),
        "best": trial_document(found.chosen, info),
        "baseline": found.baseline and trial_document(found.baseline, info),
        "gain": times,
        "verdict": verdict_document(found),
        "ablation": ablation and ablation_document(ablation),
        "front": [record.number for record in front(records, info.objectives, info.metric_limits)],
    }


def trial_document(record: TrialRecord, info: StudyInfo) -> Mapping[str, object]:
    """One trial. `values` are null unless it was measured; `failure` is null unless it failed.

    `breaks` has the limits that it breaks by itself, with its values.
    """
    values = values_of(record, info.objectives)
    interrupted = record.outcome if isinstance(record.outcome, Interrupted) else None
    abandoned = record.outcome if isinstance(record.outcome, Abandoned) else None
    return {
        "number": record.number,
        "state": words.state(record),
        "origin": record.origin.value,
        "block": record.block,
        "parameters": dict(record.configuration.values),
        "argv": list(record.argv),
        "env": dict(record.env),
        "values": values and {str(o): v for o, v in zip(info.objectives, values, strict=True)},
        "breaks": broken_limits(record, info.metric_limits),
        "failure": msgspec.to_builtins(record.failure),
        "interruption": interrupted and interrupted.reason.value,
        "abandoned": abandoned and abandoned.why,
        "points": [point_document(point) for point in record.points],
        "effective": msgspec.to_builtins(record.effective),
        "times": {
            "started_at": record.started_at.isoformat(),
            "finished_at": record.finished_at and record.finished_at.isoformat(),
            **{f"{step}_s": seconds for step, seconds in record.step_s.items()},
        },
        "log_path": record.log_path,
    }


def point_document(point: Point) -> Mapping[str, object]:
    """One point. `server` is null without metrics; its rates are null where there was nothing to share."""
    plain: dict[str, object] = {**msgspec.to_builtins(point), "suspect": point.is_suspect}
    if point.slo is not None:
        plain["slo"] = {**msgspec.to_builtins(point.slo), "share": point.slo.share}
    if point.server is not None:
        rates = ("prefix_hit_rate", "acceptance_rate", "mean_accepted_length")
        derived = {name: getattr(point.server, name) for name in rates}
        plain["server"] = {**msgspec.to_builtins(point.server), **derived}
    return plain


def lessons_document(info: StudyInfo, judged: Sequence[tuple[Lesson, Standing]]) -> Mapping[str, object]:
    """What `autotune lessons --json` prints."""
    return {
        "study": info.name,
        "refused": {grounds.value: count for grounds, count in info.refused.items()},
        "lessons": [_lesson(lesson, standing) for lesson, standing in judged],
    }


def _lesson(lesson: Lesson, standing: Standing) -> Mapping[str, object]:
    return {
        "number": lesson.number,
        "form": lesson.finding.form.value,
        "forbids": lesson.finding.forbids.source,
        "while_unset": sorted(lesson.finding.while_unset),
        "why": lesson.why,
        "kind": lesson.kind.value,
        "trial": lesson.trial,
        "study": lesson.study,
        "scope": msgspec.to_builtins(lesson.scope),
        "standing": standing.value,
    }


def environment_document(environment: Environment) -> Mapping[str, object]:
    """Machine and vLLM, without the list of flags."""
    plain: dict[str, dict[str, object]] = msgspec.to_builtins(environment)
    plain["vllm"].pop("flags", None)
    return plain


def _study(
    info: StudyInfo, budgets_s: Sequence[float], records: Sequence[TrialRecord]
) -> Mapping[str, object]:
    """`noise` is that of repeats in the objectives: the standard deviation of the logarithm."""

    def read(record: TrialRecord) -> float | None:
        return score(record, info.objectives)

    return {
        "name": info.name,
        "model": info.model,
        "search_space": info.space_name,
        "objectives": [str(objective) for objective in info.objectives],
        "limits": [str(limit) for limit in info.metric_limits],
        "workload": msgspec.to_builtins(info.workload),
        "seed": info.seed,
        "vllm_version": info.environment.vllm.version,
        "environment": environment_document(info.environment),
        "budget": {"invocations_s": list(budgets_s), "spent_s": info.spent_s},
        "refused": {grounds.value: count for grounds, count in info.refused.items()},
        "noise": msgspec.to_builtins(noise_of(records, read)),
        "baseline_variation": msgspec.to_builtins(variation(records, read)),
    }
