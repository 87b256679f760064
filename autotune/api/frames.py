"""The frames: rows become pandas columns of known types, also where there is no row."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from autotune.api.columns import (
    FAILURES,
    FRONT,
    LESSONS,
    POINTS,
    REQUESTS,
    SETTING,
    TRIALS,
    Columns,
    column_of,
    dtypes,
)
from autotune.decide.ranking import Candidate, values_of
from autotune.domain.launch import shell_words
from autotune.domain.machine import Machine
from autotune.domain.metric_limit import MetricLimit
from autotune.domain.objective import Objective
from autotune.domain.study import StudyInfo
from autotune.domain.trial import Step, TrialRecord
from autotune.report import words
from autotune.report.limits import keeps_limits
from autotune.report.spreadsheet import point_rows
from autotune.report.view import StudyView
from autotune.store.request_columns import Columns as RequestColumns


def about(view: StudyView) -> pd.Series:
    """What a study is about and how it went."""
    info, verdict = view.info, view.verdict
    states = Counter(words.state(record) for record in view.records)
    values = {
        "model": info.model,
        "vllm_version": info.environment.vllm.version,
        "device": device(info.environment.machine),
        "driver": info.environment.machine.driver,
        "cpu_model": info.environment.machine.cpu_model,
        "search_space": info.space_name,
        "objectives": ", ".join(map(str, info.objectives)),
        "limits": ", ".join(map(str, info.metric_limits)),
        "streams": ", ".join(map(str, info.workload.streams)),
        "prompt_tokens": str(info.workload.prompt_tokens),
        "output_tokens": str(info.workload.output_tokens),
        "trials": len(view.records),
        "measured": states["measured"],
        "failed": states["failed"],
        "spent_s": info.spent_s,
        "verdict": verdict.certainty.value if verdict else None,
    }
    return pd.Series(values, name=info.name, dtype="object")


def device(machine: Machine) -> str:
    """The GPUs, else the processor."""
    gpus = Counter(gpu.name for gpu in machine.gpus)
    named = (name if count == 1 else f"{count} x {name}" for name, count in gpus.items())
    return ", ".join(named) or machine.cpu_model


def trials(view: StudyView) -> pd.DataFrame:
    """One row for each trial."""
    members = {candidate.record.number for candidate in view.front}
    rows = [_trial(record, view.info, record.number in members) for record in view.records]
    return _frame(rows, TRIALS, view.info.objectives, _settings(view.records))


def _trial(record: TrialRecord, info: StudyInfo, on_front: bool) -> Mapping[str, object]:
    objectives, limits = info.objectives, info.metric_limits
    values = values_of(record, objectives)
    return {
        "trial": record.number,
        "state": words.state(record),
        "origin": record.origin.value,
        "block": record.block,
        "on_front": on_front,
        "keeps_limits": keeps_limits(record, limits),
        "context_tokens": record.context_tokens,
        "started_at": record.started_at,
        "finished_at": record.finished_at,
        **{f"{step}_s": record.step_s.get(step) for step in Step},
        "outcome": words.outcome(record, objectives, limits),
        "failure_kind": record.failure.kind.value if record.failure else None,
        "configuration": words.configuration(record.configuration),
        "command": shell_words(record.argv, record.env),
        "log_path": record.log_path,
        **({column_of(o): v for o, v in zip(objectives, values, strict=True)} if values else {}),
        **_set(record),
    }


def points(view: StudyView) -> pd.DataFrame:
    """One row for each point of each trial."""
    return _frame(point_rows(view.records), POINTS, (), _settings(view.records))


def requests(parts: Iterable[RequestColumns], *, gaps: bool) -> pd.DataFrame:
    """One row for each request; at least one of `parts` is needed."""
    types = dtypes(REQUESTS) | ({"chunk_gaps_s": "object"} if gaps else {})
    frames = [pd.DataFrame({name: part[name] for name in types}).astype(types) for part in parts]
    return pd.concat(frames, ignore_index=True)


def failures(view: StudyView) -> pd.DataFrame:
    """One row for each trial that failed."""
    taught = {lesson.trial: lesson.number for lesson, _ in view.lessons if lesson.study == view.info.name}
    rows = [row for record in view.records for row in _failure(record, taught)]
    return _frame(rows, FAILURES, (), _settings(view.records))


def _failure(record: TrialRecord, taught: Mapping[int, int]) -> Iterable[Mapping[str, object]]:
    failure = record.failure
    if failure is not None:
        same = ("why", "cure", "root_line", "line_number", "process", "rule", "source", "confidence")
        yield {
            "trial": record.number,
            "origin": record.origin.value,
            "kind": failure.kind.value,
            "phase": failure.phase.value,
            "blame": failure.blame.value,
            **{name: getattr(failure, name) for name in same},
            "spent_s": sum(record.step_s.values()),
            "lesson": taught.get(record.number),
            "configuration": words.configuration(record.configuration),
            **_set(record),
        }


def lessons(view: StudyView) -> pd.DataFrame:
    """One row for each lesson."""
    rows = [
        {
            "lesson": lesson.number,
            "form": lesson.finding.form.value,
            "forbids": str(lesson.finding),
            "why": lesson.why,
            "kind": lesson.kind.value,
            "trial": lesson.trial,
            "study": lesson.study,
            "standing": standing.value,
            "vllm_version": lesson.scope.vllm_version,
            "model": lesson.scope.model,
            "architecture": lesson.scope.architecture,
            "device": lesson.scope.device,
        }
        for lesson, standing in view.lessons
    ]
    return _frame(rows, LESSONS, (), ())


def configurations(
    found: Sequence[Candidate], objectives: Sequence[Objective], limits: Sequence[MetricLimit]
) -> pd.DataFrame:
    """One row for each of `found`, whose values are those of `objectives`; all stand to the `limits`."""
    rows = [
        {
            "trial": candidate.record.number,
            "launches": candidate.launches,
            "context_tokens": candidate.record.context_tokens,
            "configuration": words.configuration(candidate.record.configuration),
            **{column_of(each.limit.measured): each.value for each in candidate.held},
            **{column_of(o): v for o, v in zip(objectives, candidate.values, strict=True)},
            **_set(candidate.record),
        }
        for candidate in found
    ]
    valued = list(dict.fromkeys([*(limit.measured for limit in limits), *objectives]))
    return _frame(rows, FRONT, valued, _settings([candidate.record for candidate in found]))


def _set(record: TrialRecord) -> Mapping[str, object]:
    return {f"{SETTING}{name}": value for name, value in record.configuration.values.items()}


def _settings(records: Sequence[TrialRecord]) -> list[str]:
    return list(dict.fromkeys(name for record in records for name in _set(record)))


def _frame(
    rows: Sequence[Mapping[str, object]],
    table: Sequence[Columns],
    objectives: Sequence[Objective],
    settings: Sequence[str],
) -> pd.DataFrame:
    """The columns of `table`, with those of the objectives after the first, and the parameters last."""
    first, *others = dtypes(table).items()
    types = dict([first, *((column_of(objective), "float64") for objective in objectives), *others])
    columns = {name: pd.Series([row.get(name) for row in rows], dtype=kind) for name, kind in types.items()}
    # Of a parameter any type can be: the narrowest that holds its values, and that some trials lack it.
    told = {name: pd.Series([row.get(name) for row in rows], dtype="object") for name in settings}
    return pd.DataFrame(columns | {name: series.convert_dtypes() for name, series in told.items()})
