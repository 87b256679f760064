"""All that is shown of a study, read once: what a report, a notebook and their figures are made from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from autotune.decide.ablation.findings import Ablation
from autotune.decide.ranking import Candidate, baseline
from autotune.decide.verdict import Verdict
from autotune.domain.importance import Importance
from autotune.domain.invocation import Invocation
from autotune.domain.lesson import Lesson, Standing
from autotune.domain.space import SearchSpace
from autotune.domain.study import StudyInfo
from autotune.domain.trial import TrialRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyView:
    """A study as it was at `seen_at`, with what follows from its trials."""

    info: StudyInfo
    space: SearchSpace
    records: tuple[TrialRecord, ...]
    seen_at: datetime
    invocations: tuple[Invocation, ...] = ()
    lessons: tuple[tuple[Lesson, Standing], ...] = ()
    candidates: tuple[Candidate, ...] = ()
    """Every configuration that was measured, once, in the order of their first measured trials."""
    front: tuple[Candidate, ...] = ()
    """Those of them that keep the limits and no other such one beats: those of `autotune best --json`."""
    verdict: Verdict | None = None
    """None where nothing was measured that keeps the limits."""
    ablation: Ablation | None = None
    """Of what is held against the baseline; None where there was none."""
    importance: Mapping[str, Importance] = field(default_factory=dict)
    """By the name of the objective."""

    @property
    def budgets_s(self) -> tuple[float, ...]:
        """The budget of each invocation."""
        return tuple(invocation.budget_s for invocation in self.invocations)

    @property
    def baseline(self) -> TrialRecord | None:
        """The measured trial of vLLM's own defaults; None when they did not work here."""
        return self.verdict.baseline if self.verdict else baseline(self.records)

    @property
    def best(self) -> TrialRecord | None:
        """What to deploy; None where nothing was measured that keeps the limits."""
        return self.verdict.chosen if self.verdict else None

    @property
    def may_be_running(self) -> bool:
        """Whether its last invocation has not ended and still has time: it runs, unless it was killed."""
        if not self.invocations or self.invocations[-1].spent_s is not None:
            return False
        last = self.invocations[-1]
        return (self.seen_at - last.began_at).total_seconds() <= last.budget_s
