"""From a study and a vLLM to what of it is worth another try."""

from dataclasses import dataclass, field
from pathlib import Path

from autotune.decide.recheck import to_recheck
from autotune.domain.machine import VllmInstall
from autotune.domain.space import SearchSpace
from autotune.domain.study import Limits, StudyInfo
from autotune.domain.trial import TrialRecord
from autotune.errors import UserError
from autotune.files.space_document import read_document
from autotune.host.vllm import find_vllm
from autotune.store.connection import database_path, database_url
from autotune.wiring.open import open_store, study_database


@dataclass(frozen=True, slots=True, kw_only=True)
class RecheckPlan:
    """What is to be run again, with what; nothing is launched or written yet."""

    url: str
    info: StudyInfo
    space: SearchSpace
    vllm: VllmInstall
    trials: tuple[TrialRecord, ...]
    """The failed ones, one of each failure first."""
    limits: Limits = field(default_factory=Limits)

    @property
    def logs_dir(self) -> Path:
        """Where the servers' logs go: beside those of the trials."""
        path = database_path(self.url)
        logs = path.with_suffix(".logs") if path else Path("studies") / f"{self.info.name}.logs"
        return logs / "recheck"


def plan_recheck(database: str | None, vllm: str | None) -> RecheckPlan:
    """What of the study in `database` is worth another try with `vllm`; None is the study's own.

    Raises UserError, EnvironmentFault when no vLLM is there, StoreError.
    """
    url = database_url(study_database(database))
    with open_store(url) as store:
        info, records = store.info(), store.records()
    if info is None:
        raise UserError("this file has no study in it yet")
    trials = to_recheck(records)
    kept = info.environment.vllm
    # Nothing is asked of a vLLM for which there is nothing to do: a first look takes 20 s.
    install = find_vllm(vllm or kept.command[0]) if trials or vllm else kept
    return RecheckPlan(url=url, info=info, space=read_document(info.space, url), vllm=install, trials=trials)
