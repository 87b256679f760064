"""Keeps the lessons of one study, its own and those taken over from others."""

from collections.abc import Sequence

from sqlalchemy import Engine, RowMapping, insert, select, update

from autotune.domain.expression import Expression
from autotune.domain.failure import FailureKind
from autotune.domain.lesson import Finding, Lesson, LessonForm, Scope
from autotune.store.connection import transaction
from autotune.store.schema import lesson as table


class LessonStore:
    """The lessons of one study. Each method is one transaction. Raises StoreError."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def all(self) -> Sequence[Lesson]:
        """All of them, in the order of their numbers."""
        with transaction(self._engine) as connection:
            rows = connection.execute(select(table).order_by(table.c.number)).mappings().all()
        return [_lesson_of(row) for row in rows]

    def add(self, lesson: Lesson) -> None:
        """Keep a lesson; its number is on no other, nor has its trial taught the same before."""
        with transaction(self._engine) as connection:
            connection.execute(insert(table).values(_columns(lesson)))

    def forget(self, number: int) -> bool:
        """Mark lesson `number` as forgotten, for good; False when there is none."""
        query = update(table).where(table.c.number == number).values(forgotten=True)
        with transaction(self._engine) as connection:
            return connection.execute(query).rowcount == 1


def _columns(lesson: Lesson) -> dict[str, object]:
    return {
        "number": lesson.number,
        "form": lesson.finding.form.value,
        "forbids": lesson.finding.forbids.source,
        "while_unset": sorted(lesson.finding.while_unset),
        "why": lesson.why,
        "kind": lesson.kind.value,
        "trial": lesson.trial,
        "study": lesson.study,
        "vllm_version": lesson.scope.vllm_version,
        "model": lesson.scope.model,
        "architecture": lesson.scope.architecture,
        "device": lesson.scope.device,
        "forgotten": lesson.forgotten,
    }


def _lesson_of(row: RowMapping) -> Lesson:
    return Lesson(
        number=row["number"],
        finding=Finding(
            form=LessonForm(row["form"]),
            forbids=Expression.parse(row["forbids"]),
            while_unset=frozenset(row["while_unset"]),
        ),
        why=row["why"],
        kind=FailureKind(row["kind"]),
        trial=row["trial"],
        study=row["study"],
        scope=Scope(
            vllm_version=row["vllm_version"],
            model=row["model"],
            architecture=row["architecture"],
            device=row["device"],
        ),
        forgotten=row["forgotten"],
    )
