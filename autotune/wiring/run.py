"""Puts the adapters together and runs the loop."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

from autotune.bench.load import LoadBench
from autotune.decide.classify import classify
from autotune.domain.failure import Evidence, Failure
from autotune.domain.interrupt import Interrupt
from autotune.domain.study import StudyInfo
from autotune.errors import StudyMismatch
from autotune.files.rules import VLLM_RULES, read_rules
from autotune.files.space_document import space_document
from autotune.host.cache import cache_dir
from autotune.search.study import OptunaSearch
from autotune.server.launcher import LocalLauncher
from autotune.store.connection import writer_lock
from autotune.store.evidence import EvidenceStore
from autotune.tune.ports import Observer
from autotune.tune.study import StudyEnd, StudyLoop
from autotune.tune.trial import TrialRunner
from autotune.wiring.open import open_store
from autotune.wiring.prepare import PreparedStudy

STOP_RESERVE_S = 5.0
"""Kept of the budget beyond the stop grace: SIGKILL, the proof that all is gone, the last write."""


def run_study(prepared: PreparedStudy, observer: Observer, interrupt: Interrupt) -> StudyEnd:
    """Run the study until its end, and keep how long it took.

    Raises StudyMismatch when the file holds a study of something else.
    """
    with writer_lock(prepared.url), open_store(prepared.url, create=True) as store:
        _begin_or_continue(store, prepared)
        store.begin_run(prepared.budget_s, _now())
        ended = "error"
        try:
            end = _loop(prepared, store, observer, interrupt).run()
            ended = end.ending.value
        finally:
            store.end_run(time.monotonic() - prepared.request.begun_s, ended)
    return end


def make_interrupt(prepared: PreparedStudy) -> Interrupt:
    """The deadline leaves time to stop the last server within the budget."""
    reserve_s = prepared.spec.limits.stop_grace_s + STOP_RESERVE_S
    return Interrupt(time.monotonic, prepared.request.begun_s + prepared.budget_s - reserve_s)


def _loop(
    prepared: PreparedStudy, store: EvidenceStore, observer: Observer, interrupt: Interrupt
) -> StudyLoop:
    spec = prepared.spec
    launcher = LocalLauncher(
        command=prepared.environment.vllm.command,
        model=spec.model,
        logs_dir=prepared.logs_dir,
        cache_dir=cache_dir(),
        ports=prepared.request.ports,
    )
    runner = TrialRunner(
        launcher=launcher,
        bench=LoadBench(spec.model, spec.workload),
        store=store,
        diagnose=_diagnose(),
        observer=observer,
        interrupt=interrupt,
        pause=time.sleep,
        limits=spec.limits,
        streams=spec.workload.streams,
    )
    return StudyLoop(
        spec=spec,
        launcher=launcher,
        store=store,
        search=OptunaSearch(spec, prepared.url),
        runner=runner,
        observer=observer,
        interrupt=interrupt,
        now=_now,
    )


def _diagnose() -> Callable[[Evidence], Failure]:
    rules = read_rules(VLLM_RULES)
    return lambda evidence: classify(evidence, rules)


def _begin_or_continue(store: EvidenceStore, prepared: PreparedStudy) -> None:
    info = store.info()
    if info is None:
        store.create(prepared.spec, space_document(prepared.spec.space), prepared.environment, _now())
        return
    for what, stored, given in _identity(info, prepared):
        if stored != given:
            raise StudyMismatch(
                f"{prepared.url}: this study was begun with {what} {stored}, not {given}; "
                "continue it as it was begun, or name another file with --db"
            )


def _identity(info: StudyInfo, prepared: PreparedStudy) -> list[tuple[str, object, object]]:
    """What must not change within a study, as begun and as asked for now."""
    spec, environment = prepared.spec, prepared.environment
    machine, stored_machine = environment.machine, info.environment.machine
    return [
        ("model", info.model, spec.model),
        ("name", info.name, spec.name),
        ("objectives", " ".join(map(str, info.objectives)), " ".join(map(str, spec.objectives))),
        ("workload", info.workload, spec.workload),
        ("seed", info.seed, spec.seed),
        ("vLLM", info.environment.vllm.version, environment.vllm.version),
        ("machine", stored_machine.hostname, machine.hostname),
        ("GPUs", [gpu.name for gpu in stored_machine.gpus], [gpu.name for gpu in machine.gpus]),
        (
            "search space",
            f"{info.space_name} ({info.space_digest})",
            f"{spec.space.name} ({spec.space.digest})",
        ),
    ]


def _now() -> datetime:
    return datetime.now(UTC)
