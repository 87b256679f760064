"""Reads what is to be compared: a trial, a study's best configuration, or a bench result."""

from pathlib import Path

from autotune.decide.compare import runs_of, side_of
from autotune.decide.verdict import verdict
from autotune.domain.comparison import Side
from autotune.domain.study import StudyInfo
from autotune.domain.trial import TrialRecord
from autotune.errors import UserError
from autotune.files.bench_result import load_bench_result
from autotune.report.limits import nothing_to_deploy
from autotune.store.connection import database_path, database_url
from autotune.wiring.open import open_store, study_database


def read_side(ref: str, database: str | None) -> Side:
    """What `ref` means: `17` (of `database`), `study.db:17`, `study.db`, or a bench result `x.json`.

    Raises UserError when there is nothing measured under it, FileError and StoreError when it cannot be read.
    """
    if ref.endswith(".json"):
        return _of_bench(ref)
    place, _, number = ref.rpartition(":")
    if ref.isdecimal():
        return _of_study(study_database(database), int(ref))
    if place and number.isdecimal():
        return _of_study(place, int(number))
    return _of_study(ref, None)


def _of_bench(ref: str) -> Side:
    result = load_bench_result(Path(ref))
    runs = tuple(points for points in result.ladders if points)
    if not runs:
        raise UserError(f"{ref}: nothing was measured in it")
    return Side(
        name=ref,
        model=result.model,
        workload=result.workload,
        version=result.server_version,
        machine=result.host,
        runs=runs,
        url=result.url,
        restarted=False,
        notes=result.dialect.notes,
    )


def _of_study(database: str, number: int | None) -> Side:
    """Trial `number` of a study, or its best where that is None."""
    url = database_url(database)
    with open_store(url) as store:
        info, records = store.info(), tuple(store.records())
    if info is None:
        raise UserError(f"{database}: this file has no study in it yet")
    chosen = _trial(database, records, number) if number is not None else _best(database, info, records)
    if not runs_of(records, chosen):
        raise UserError(f"{database}: trial {chosen.number} was not measured to its end; see: autotune show")
    best = " (its best)" if number is None else ""
    path = database_path(url)
    name = f"{database}, trial {chosen.number}{best}"
    return side_of(name, str(path.resolve()) if path else url, info, records, chosen)


def _trial(database: str, records: tuple[TrialRecord, ...], number: int) -> TrialRecord:
    for record in records:
        if record.number == number:
            return record
    raise UserError(f"{database}: there is no trial {number}; the study has {len(records)}, numbered from 0")


def _best(database: str, info: StudyInfo, records: tuple[TrialRecord, ...]) -> TrialRecord:
    found = verdict(records, info.objectives, limits=info.metric_limits)
    if found is None:
        why = nothing_to_deploy(records, info.objectives, info.metric_limits)
        raise UserError(f"{database}: {why}")
    return found.chosen
