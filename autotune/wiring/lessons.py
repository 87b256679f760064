"""What a study may learn from, and what it takes over from the studies beside it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from autotune.decide.lessons.gate import measured_settings, scope_of, standing
from autotune.decide.lessons.plan import Learner
from autotune.domain.lesson import Lesson, Standing
from autotune.domain.machine import Environment
from autotune.domain.study import StudyInfo, StudySpec
from autotune.domain.trial import TrialRecord
from autotune.errors import AutotuneError
from autotune.files.lessons import read_lessons
from autotune.files.space_document import read_document
from autotune.store.connection import database_path
from autotune.store.evidence import EvidenceStore
from autotune.wiring.open import open_store


def learner_of(spec: StudySpec, environment: Environment) -> Learner:
    """What learns in a study."""
    return Learner(
        study=spec.name,
        space=spec.space,
        scope=scope_of(environment, spec.model, spec.architecture),
        book=read_lessons(),
        limits=spec.limits,
    )


def standings(
    info: StudyInfo, records: Sequence[TrialRecord], lessons: Sequence[Lesson]
) -> list[tuple[Lesson, Standing]]:
    """Each lesson with whether it counts in the study that `info` is about."""
    scope = scope_of(info.environment, info.model, info.architecture)
    measured = measured_settings(read_document(info.space, info.name), records)
    return [(lesson, standing(lesson, scope, measured)) for lesson in lessons]


def take_over(store: EvidenceStore, learner: Learner, url: str, note: Callable[[str], None]) -> None:
    """Add to a study that is about to begin what the studies in the same folder have learned.

    That is what they found out themselves on the same device with the same model, or where it is no question
    of memory with its architecture. What another version of vLLM taught is taken over too, and does not
    count. A file that cannot be read is named in a note.
    """
    path = database_path(url)
    if path is None:
        return
    kept = store.lessons.all()
    known = {(lesson.study, lesson.trial, lesson.finding.forbids.source) for lesson in kept}
    number = len(kept)
    for file in sorted(path.parent.glob("*.db")):
        if file.resolve() == path.resolve():
            continue
        try:
            found = list(_own_lessons(file, learner))
        except (AutotuneError, ValueError) as error:
            note(f"its lessons are not known here: {error}")
            continue
        for lesson in found:
            if (lesson.study, lesson.trial, lesson.finding.forbids.source) not in known:
                number += 1
                store.lessons.add(replace(lesson, number=number))
        if found:
            note(f"lessons taken over from study {found[0].study}: {len(found)} (see: autotune lessons)")


def _own_lessons(file: Path, learner: Learner) -> Iterator[Lesson]:
    """The lessons that the study in `file` found out itself and that are worth keeping here."""
    with open_store(str(file)) as other:
        info = other.info()
        if info is None:
            return
        judged = standings(info, other.records(), other.lessons.all())
    name = info.name if info.name != learner.study else f"{info.name} ({file.name})"
    for lesson, its_standing in judged:
        own = lesson.study == info.name and its_standing is Standing.APPLIES
        if own and lesson.holds_in(learner.scope):
            yield replace(lesson, study=name)
