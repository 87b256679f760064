"""Reads all that is shown of a study."""

from dataclasses import replace
from datetime import UTC, datetime

from autotune.decide.ablation.examine import ablation_of
from autotune.decide.ranking import candidates, pareto
from autotune.decide.verdict import verdict
from autotune.errors import UserError
from autotune.files.space_document import read_document
from autotune.report.view import StudyView
from autotune.search.importance import importances
from autotune.store.evidence import EvidenceStore
from autotune.wiring.lessons import standings


def read_view(store: EvidenceStore) -> StudyView:
    """The study as it is now. Writes nothing: it may be running. Raises UserError when there is none yet."""
    return with_importance(read_quickly(store))


def with_importance(view: StudyView) -> StudyView:
    """The view with how much each parameter mattered, which takes seconds in a study of 2,000 trials."""
    found = importances(view.candidates, view.info.objectives, view.space)
    return replace(view, importance=found)


def read_quickly(store: EvidenceStore) -> StudyView:
    """The same without importance."""
    info = store.info()
    if info is None:
        raise UserError("this file has no study in it yet")
    records = tuple(store.records())
    space = read_document(info.space, info.name)
    measured = candidates(records, info.objectives, info.metric_limits)
    found = verdict(records, info.objectives, limits=info.metric_limits)
    other = found.other if found else None
    return StudyView(
        info=info,
        space=space,
        records=records,
        seen_at=datetime.now(UTC),
        invocations=tuple(store.invocations()),
        lessons=tuple(standings(info, records, store.lessons.all())),
        candidates=tuple(measured),
        front=tuple(pareto(measured, info.objectives)),
        verdict=found,
        ablation=ablation_of(space, info.objectives, info.metric_limits, records, other),
    )
