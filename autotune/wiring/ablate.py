"""From a study and the trial that it is about to an ablation of it, in the same file."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from autotune.decide.ablation.examine import Examiner
from autotune.decide.ablation.findings import Ablation
from autotune.decide.ablation.plan import Planner
from autotune.decide.ablation.variants import variants
from autotune.decide.ranking import candidates
from autotune.decide.verdict import verdict
from autotune.domain.interrupt import Interrupt
from autotune.domain.machine import Environment
from autotune.domain.refusal import Grounds, Refusal
from autotune.domain.space import Configuration
from autotune.domain.study import Limits, StudyInfo, StudySpec
from autotune.domain.trial import Measured, TrialRecord
from autotune.errors import UserError
from autotune.files.prompt_lines import source_texts
from autotune.files.space_document import read_document
from autotune.host.machine import read_machine
from autotune.host.vllm import find_vllm
from autotune.search.importance import importances
from autotune.store.connection import database_url, writer_lock
from autotune.tune.ablation import AblationLoop
from autotune.tune.ports import Observer
from autotune.tune.study import StudyEnd, StudyLoop
from autotune.wiring.check import validator_of
from autotune.wiring.open import open_store, study_database
from autotune.wiring.prepare import PreparedStudy, RunRequest
from autotune.wiring.run import begin_or_continue, loop_of


@dataclass(frozen=True, slots=True, kw_only=True)
class AblateRequest:
    """What `autotune ablate` was asked for; None where the study decides."""

    begun_s: float
    """When the command began, on the monotonic clock: the budget covers all of it."""
    budget_s: float
    database: str | None = None
    trial: int | None = None
    vllm: str | None = None
    startup_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedAblation:
    """The study, ready to go on, and the trial that the ablation is about; nothing is launched yet."""

    study: PreparedStudy
    winner: TrialRecord
    importance: Mapping[str, float]
    """The largest share of each parameter in any objective; empty where that cannot be told."""

    @property
    def examiner(self) -> Examiner:
        """What reads it from the trials."""
        spec = self.study.spec
        return Examiner(space=spec.space, objectives=spec.objectives, limits=spec.metric_limits)


def prepare_ablation(request: AblateRequest) -> PreparedAblation:
    """Read the study, and look at machine and vLLM.

    Raises UserError when there is no such trial or nothing to put back, EnvironmentFault without a vLLM,
    FileError when the study's prompts are a file that is gone or was changed, StoreError.
    """
    url = database_url(study_database(request.database))
    with open_store(url) as store:
        info, records = store.info(), tuple(store.records())
    if info is None:
        raise UserError("this file has no study in it yet")
    winner = _winner(info, records, request.trial)
    space = read_document(info.space, url)
    if not variants(space, winner.configuration):
        raise UserError(f"trial {winner.number} says nothing to vLLM that the baseline does not say as well")
    spec = StudySpec(
        name=info.name,
        model=info.model,
        space=space,
        workload=info.workload,
        objectives=info.objectives,
        seed=info.seed,
        limits=Limits() if request.startup_s is None else Limits(startup_s=request.startup_s),
        metric_limits=info.metric_limits,
        architecture=info.architecture,
    )
    vllm = find_vllm(request.vllm or info.environment.vllm.command[0])
    study = PreparedStudy(
        request=RunRequest(model=info.model, begun_s=request.begun_s),
        budget_s=request.budget_s,
        spec=spec,
        environment=Environment(machine=read_machine(), vllm=vllm),
        url=url,
        texts=source_texts(info.workload),
        findings=(),
        memory=None,  # beside one that works a launch tells more than an estimate
    )
    among = candidates(records, info.objectives)
    found = importances(among, info.objectives, space).values()
    return PreparedAblation(study=study, winner=winner, importance=_largest([each.shares for each in found]))


def run_ablation(
    prepared: PreparedAblation, observer: Observer, interrupt: Interrupt
) -> tuple[StudyEnd, Ablation]:
    """Go on with the ablation until all is decided or `interrupt` says stop; and what is known then.

    Raises StudyMismatch when machine or vLLM are not those of the study, what `AblationLoop.run` raises, and
    StoreError when another autotune runs the study.
    """
    study = prepared.study
    with writer_lock(study.url), open_store(study.url) as store:
        begin_or_continue(store, study)
        store.begin_run(study.budget_s, datetime.now(UTC))
        ended = "error"
        try:
            vllm, spec = study.environment.vllm, study.spec
            with validator_of(vllm, spec.model, spec.space, interrupt) as validator:
                ablation = _loop(prepared, loop_of(study, store, observer, interrupt, validator))
                end = ablation.run()
            ended = end.ending.value
        finally:
            store.end_run(time.monotonic() - study.request.begun_s, ended)
        return end, ablation.examine()


def _loop(prepared: PreparedAblation, loop: StudyLoop) -> AblationLoop:
    refuses = loop.course.refuses(loop.store.records(), loop.course.shelf.all())

    def fails(configuration: Configuration) -> Refusal | None:
        # What vLLM makes the same of as of another trial works, and is to be measured in a block.
        refusal = refuses(configuration)
        return refusal if refusal and refusal.grounds is not Grounds.TWIN else None

    return AblationLoop(
        loop=loop,
        examiner=prepared.examiner,
        planner=Planner(seed=loop.spec.seed, importance=prepared.importance),
        winner=prepared.winner,
        variants=variants(loop.spec.space, prepared.winner.configuration, fails),
    )


def _winner(info: StudyInfo, records: Sequence[TrialRecord], number: int | None) -> TrialRecord:
    """The first measured trial of the configuration that is meant."""
    if number is None:
        found = verdict(records, info.objectives, limits=info.metric_limits)
        if found is None:
            raise UserError("no trial of this study has been measured, so there is no winner to look into")
        if found.keeps_baseline:
            other = f", for example --trial {found.rival.number}" if found.rival else ""
            raise UserError(
                f"vLLM's defaults are the best of this study: no setting can be put back; name a trial{other}"
            )
        return found.chosen
    named = next((record for record in records if record.number == number), None)
    if named is None:
        raise UserError(f"there is no trial {number}; the study has {len(records)}, numbered from 0")
    of_it = (r for r in records if r.configuration.digest == named.configuration.digest)
    first = next((record for record in of_it if isinstance(record.outcome, Measured)), None)
    if first is None:
        raise UserError(f"trial {number} was not measured to its end; see: autotune show {number}")
    return first


def _largest(shares: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
    return {name: max(each.get(name, 0.0) for each in shares) for each in shares for name in each}
