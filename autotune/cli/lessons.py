"""`autotune lessons`: what the failures of a study have taught it."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from autotune.cli.console import errors_as_sentences, out, print_json
from autotune.cli.options import AsJson, Database
from autotune.domain.lesson import Lesson, Standing
from autotune.domain.refusal import Grounds
from autotune.domain.study import StudyInfo
from autotune.errors import UserError
from autotune.report import words
from autotune.report.document import lessons_document
from autotune.wiring.lessons import standings
from autotune.wiring.open import open_store, study_database


def lessons(
    db: Database = None,
    as_json: AsJson = False,
    forget: Annotated[
        int | None, typer.Option(min=1, help="Forget lesson N: what it forbids may be tried again.")
    ] = None,
) -> None:
    """List what the failures of a study forbid, which trial taught it, and whether it counts.

    Example:  autotune lessons      autotune lessons --forget 3
    """
    with errors_as_sentences(), open_store(study_database(db)) as store:
        info = store.info()
        if info is None:
            raise UserError("this file has no study in it yet")
        if forget is not None and not store.lessons.forget(forget):
            raise UserError(f"there is no lesson {forget}; `autotune lessons` lists those there are")
        judged = standings(info, store.records(), store.lessons.all())
    if as_json:
        print_json(msgspec.json.encode(lessons_document(info, judged)).decode())
    else:
        _print(info, judged)


def _print(info: StudyInfo, judged: Sequence[tuple[Lesson, Standing]]) -> None:
    counting = sum(standing is Standing.APPLIES for _, standing in judged)
    forbidden = words.counted(info.refused.get(Grounds.LESSON, 0), "configuration")
    lessons = words.counted(len(judged), "lesson")
    _line(f"{info.name}: {lessons}, {counting} in force; {forbidden} not launched for them")
    for lesson, standing in judged:
        finding = lesson.finding
        _line(f"\n{lesson.number:>3}  {finding}", bold=True)
        if finding.while_unset:
            _line(f"     while left to vLLM: {', '.join(sorted(finding.while_unset))}")
        _line(f"     {lesson.why}")
        where = "" if lesson.study == info.name else f" of study {lesson.study}"
        _line(f"     {finding.form.value}, {lesson.kind}, taught by trial {lesson.trial}{where}")
        _line(f"     {words.lesson_standing(lesson, standing)}")


def _line(text: str, *, bold: bool = False) -> None:
    out.print(Text(text, style="bold" if bold else ""), soft_wrap=True)
