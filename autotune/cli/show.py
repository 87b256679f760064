"""`autotune show`: all trials, or one of them on one screen; points and requests as tables, CSV or JSON."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from autotune.cli.console import errors_as_sentences, out, print_json
from autotune.cli.options import AsJson, Database
from autotune.decide.limits import Held
from autotune.decide.ranking import candidates, pareto
from autotune.decide.timeline import timeline
from autotune.decide.verdict import verdict
from autotune.domain.launch import shell_words
from autotune.domain.lesson import Lesson
from autotune.domain.study import StudyInfo
from autotune.domain.trial import Measured, TrialRecord
from autotune.errors import UserError
from autotune.report import tables, words
from autotune.report.document import point_document, study_document, trial_document
from autotune.report.effective import EffectiveBlock
from autotune.report.failure import FailureBlock
from autotune.report.limits import standings
from autotune.report.points import points_block, requests_table
from autotune.report.sketch import ParetoSketch, draws, highest_rate, sparkline
from autotune.report.spreadsheet import csv_text, point_rows, request_rows, requests_document
from autotune.store.evidence import EvidenceStore
from autotune.units import format_duration
from autotune.wiring.open import open_store, study_database


def show(
    trial: Annotated[int | None, typer.Argument(help="A trial's number. Without it: all trials.")] = None,
    db: Database = None,
    points: Annotated[
        bool, typer.Option("--points", help="All that was measured at each stream count.")
    ] = False,
    requests: Annotated[
        bool, typer.Option("--requests", help="Every request of the trial, with --json all its gaps.")
    ] = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print the points, or with --requests those, as CSV.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show all trials of a study, or one trial: what ran, what happened, why, and what to change.

    Example:  autotune show      autotune show 17      autotune show 17 --points      autotune show --csv
    """
    with errors_as_sentences(), open_store(study_database(db)) as store:
        if as_csv and as_json:
            raise UserError("--csv and --json are two forms of the same: choose one")
        if points and requests:
            raise UserError("--points and --requests are two questions: choose one")
        if requests and trial is None:
            raise UserError("--requests shows those of one trial: name its number")
        info, records = store.info(), store.records()
        if info is None:
            raise UserError("this file has no study in it yet")
        chosen = records if trial is None else [_find(records, trial)]
        if requests:
            _show_requests(store, chosen[0].number, as_csv=as_csv, as_json=as_json)
        elif points or as_csv:
            _show_points(info, chosen, as_csv=as_csv, as_json=as_json)
        elif trial is None:
            _show_all(store, info, records, as_json=as_json)
        else:
            _show_one(store, info, chosen[0], as_json=as_json)


def _find(records: Sequence[TrialRecord], number: int) -> TrialRecord:
    record = next((r for r in records if r.number == number), None)
    if record is None:
        raise UserError(f"there is no trial {number}; the study has {len(records)}, numbered from 0")
    return record


def _show_points(info: StudyInfo, records: Sequence[TrialRecord], *, as_csv: bool, as_json: bool) -> None:
    if as_csv:
        sys.stdout.write(csv_text(point_rows(records)))
        return
    if as_json:
        found = [{"trial": r.number, **point_document(point)} for r in records for point in r.points]
        _json({"points": found})
        return
    for record in records:
        # Of all trials those that were measured; of one that was asked for, whatever there is.
        if len(records) == 1 or isinstance(record.outcome, Measured):
            _line(f"Trial {record.number} ({record.origin}): {words.configuration(record.configuration)}")
            out.print(points_block(record.points, info.workload.slos) if record.points else "  no point")


def _show_requests(store: EvidenceStore, number: int, *, as_csv: bool, as_json: bool) -> None:
    measured = store.measured_points(number)
    if as_csv:
        sys.stdout.write(csv_text(request_rows(number, measured)))
    elif as_json:
        _json(requests_document(number, measured))
    else:
        out.print(requests_table(measured))


def _show_all(
    store: EvidenceStore, info: StudyInfo, records: Sequence[TrialRecord], *, as_json: bool
) -> None:
    if as_json:
        _json(study_document(info, store.budgets_s(), records))
        return
    environment = info.environment
    _line(f"{info.name}: {info.model}, vLLM {environment.vllm.version} on {environment.machine.hostname}")
    _line(f"{len(records)} trials in {format_duration(info.spent_s)}; {_marks(info)}")
    if info.refused:
        _line(words.refused(info.refused))
    if records:
        spent = words.time_spent(timeline(records, store.invocations(), datetime.now(UTC)))
        out.print(spent, markup=False, highlight=False)
    known = candidates(records, info.objectives, info.metric_limits)
    best = [candidate.record for candidate in pareto(known, info.objectives)]
    out.print(tables.trials(records, info.objectives, {record.number for record in best}, info.metric_limits))
    if draws(out):
        found = verdict(records, info.objectives, limits=info.metric_limits)
        chosen = found.chosen if found else None
        out.print(ParetoSketch(records=records, among=known, front=best, best=chosen))


def _marks(info: StudyInfo) -> str:
    """What the signs beside the numbers of trials mean."""
    limits = " and ".join(map(str, info.metric_limits))
    return "* is on the Pareto front" + (f", ! breaks a limit ({limits})" if limits else "")


def _show_one(store: EvidenceStore, info: StudyInfo, record: TrialRecord, *, as_json: bool) -> None:
    if as_json:
        _json(trial_document(record, info))
        return
    steps = ", ".join(f"{step} {format_duration(seconds)}" for step, seconds in record.step_s.items())
    _line(f"Trial {record.number} ({record.origin}): {words.state(record)}")
    _line(f"Configuration  {words.configuration(record.configuration)}")
    _line(f"Command        {shell_words(record.argv, record.env) or '(never launched)'}")
    _line(f"Time           {record.started_at:%Y-%m-%d %H:%M:%S} UTC; {steps or 'no step finished'}")
    _line(f"Log            {record.log_path or '(none)'}")
    if record.failure is not None:
        out.print(FailureBlock(record.failure))
        for lesson in _taught(store.lessons.all(), info, record):
            _line(f"Learned        lesson {lesson.number}, never again: {lesson.finding}")
    elif record.outcome is not None:
        _line(f"Outcome        {words.outcome(record, info.objectives, info.metric_limits)}")
        if held := _held(store.records(), info, record):
            _line(f"Limits         {standings(held)}")
    if record.points:
        if draws(out):
            bars = sparkline(record.points, highest_rate([record]), out)
            counts = ", ".join(str(point.streams) for point in record.points)
            _line(f"Ladder         {bars}  output tok/s at {counts} streams")
        out.print(tables.points(record))
    out.print(EffectiveBlock(record))


def _held(records: Sequence[TrialRecord], info: StudyInfo, record: TrialRecord) -> Sequence[Held]:
    """How the configuration of a trial stands to the limits, by all its launches that count."""
    known = candidates(records, info.objectives, info.metric_limits)
    digest = record.configuration.digest
    return next((each.held for each in known if each.record.configuration.digest == digest), ())


def _taught(lessons: Sequence[Lesson], info: StudyInfo, record: TrialRecord) -> list[Lesson]:
    return [lesson for lesson in lessons if (lesson.study, lesson.trial) == (info.name, record.number)]


def _json(document: object) -> None:
    print_json(msgspec.json.encode(document).decode())


def _line(text: str) -> None:
    """Plain text: names, paths and log lines are never read as markup."""
    out.print(Text(text), soft_wrap=True)
