"""`autotune show`: all trials, or one of them on one screen."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from autotune.cli.console import errors_as_sentences, out, print_json
from autotune.cli.options import AsJson, Database
from autotune.decide.ranking import front
from autotune.domain.launch import shell_words
from autotune.domain.lesson import Lesson
from autotune.domain.study import StudyInfo
from autotune.domain.trial import TrialRecord
from autotune.errors import UserError
from autotune.report import tables, words
from autotune.report.document import study_document, trial_document
from autotune.report.effective import EffectiveBlock
from autotune.report.failure import FailureBlock
from autotune.units import format_duration
from autotune.wiring.open import open_store, study_database


def show(
    trial: Annotated[int | None, typer.Argument(help="A trial's number. Without it: all trials.")] = None,
    db: Database = None,
    as_json: AsJson = False,
) -> None:
    """Show all trials of a study, or one trial: what ran, what happened, why, and what to change.

    Example:  autotune show      autotune show 17      autotune show --json
    """
    with errors_as_sentences(), open_store(study_database(db)) as store:
        info, records, budgets_s = store.info(), store.records(), store.budgets_s()
        if info is None:
            raise UserError("this file has no study in it yet")
        if trial is None:
            if as_json:
                print_json(msgspec.json.encode(study_document(info, budgets_s, records)).decode())
            else:
                _show_all(info, records)
            return
        record = next((r for r in records if r.number == trial), None)
        if record is None:
            raise UserError(f"there is no trial {trial}; the study has {len(records)}, numbered from 0")
        if as_json:
            print_json(msgspec.json.encode(trial_document(record, info.objectives)).decode())
        else:
            taught = [n for n in store.lessons.all() if (n.study, n.trial) == (info.name, record.number)]
            _show_one(info, record, taught)


def _show_all(info: StudyInfo, records: Sequence[TrialRecord]) -> None:
    environment = info.environment
    _line(f"{info.name}: {info.model}, vLLM {environment.vllm.version} on {environment.machine.hostname}")
    _line(f"{len(records)} trials in {format_duration(info.spent_s)}; * is on the Pareto front")
    if info.rejected:
        _line(f"{words.counted(info.rejected, 'draw')} rejected by lessons (see: autotune lessons)")
    best = {record.number for record in front(records, info.objectives)}
    out.print(tables.trials(records, info.objectives, best))


def _show_one(info: StudyInfo, record: TrialRecord, taught: Sequence[Lesson]) -> None:
    steps = ", ".join(f"{step} {format_duration(seconds)}" for step, seconds in record.step_s.items())
    _line(f"Trial {record.number} ({record.origin}): {words.state(record)}")
    _line(f"Configuration  {words.configuration(record.configuration)}")
    _line(f"Command        {shell_words(record.argv, record.env) or '(never launched)'}")
    _line(f"Time           {record.started_at:%Y-%m-%d %H:%M:%S} UTC; {steps or 'no step finished'}")
    _line(f"Log            {record.log_path or '(none)'}")
    if record.failure is not None:
        out.print(FailureBlock(record.failure))
        for lesson in taught:
            _line(f"Learned        lesson {lesson.number}, never again: {lesson.finding}")
    elif record.outcome is not None:
        _line(f"Outcome        {words.outcome(record, info.objectives)}")
    if record.points:
        out.print(tables.points(record))
    out.print(EffectiveBlock(record))


def _line(text: str) -> None:
    """Plain text: names, paths and log lines are never read as markup."""
    out.print(Text(text), soft_wrap=True)
