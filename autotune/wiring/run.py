"""Puts the adapters together and runs the loop."""

import time
from collections.abc import Iterable
from dataclasses import fields
from datetime import UTC, datetime

from autotune.bench.load import LoadBench
from autotune.domain.interrupt import Interrupt
from autotune.domain.objective import wanted_requests
from autotune.domain.study import StudyInfo
from autotune.domain.workload import Workload
from autotune.errors import StudyMismatch
from autotune.files.space_document import space_document
from autotune.host.cache import cache_dir
from autotune.search.study import OptunaSearch
from autotune.server.gpu_memory import NvidiaSmi
from autotune.server.launcher import LocalLauncher
from autotune.server.settling import SettlingMemory
from autotune.store.connection import writer_lock
from autotune.store.evidence import EvidenceStore
from autotune.tune.course import Course
from autotune.tune.ports import Observer, Validator
from autotune.tune.study import StudyEnd, StudyLoop
from autotune.tune.trial import TrialRunner
from autotune.wiring.check import validator_of
from autotune.wiring.lessons import learner_of, take_over
from autotune.wiring.open import open_store
from autotune.wiring.prepare import PreparedStudy
from autotune.wiring.read_back import judges_of
from autotune.wiring.recheck import end_killed_rechecks


def run_study(prepared: PreparedStudy, observer: Observer, interrupt: Interrupt) -> StudyEnd:
    """Run the study until its end, and keep how long it took.

    Raises StudyMismatch when the file holds a study of something else.
    """
    with writer_lock(prepared.url), open_store(prepared.url, create=True) as store:
        begin_or_continue(store, prepared)
        if renewed := store.reestimate():
            observer.note(f"points computed anew from their requests, by new definitions: {renewed}")
        if not store.budgets_s():
            learner = learner_of(prepared.spec, prepared.environment)
            take_over(store, learner, prepared.url, observer.note)
        store.begin_run(prepared.budget_s, _now())
        ended = "error"
        try:
            vllm, spec = prepared.environment.vllm, prepared.spec
            with validator_of(vllm, spec.model, spec.space, interrupt) as validator:
                end = loop_of(prepared, store, observer, interrupt, validator).run()
            ended = end.ending.value
        finally:
            store.end_run(time.monotonic() - prepared.request.begun_s, ended)
    return end


def make_interrupt(prepared: PreparedStudy) -> Interrupt:
    """The deadline leaves time to stop the last server within the budget."""
    end_s = prepared.request.begun_s + prepared.budget_s
    return Interrupt(time.monotonic, end_s - prepared.spec.limits.stop_reserve_s)


def loop_of(
    prepared: PreparedStudy,
    store: EvidenceStore,
    observer: Observer,
    interrupt: Interrupt,
    validator: Validator | None = None,
) -> StudyLoop:
    """The loop of one invocation, with all it works with; what a killed recheck left running is ended.

    Without a `validator` vLLM is not asked about configurations before they are launched.
    """
    spec = prepared.spec
    launcher = LocalLauncher(
        command=prepared.environment.vllm.command,
        model=spec.model,
        logs_dir=prepared.logs_dir,
        cache_dir=cache_dir(),
        ports=prepared.request.ports,
        memory_floor_bytes=spec.limits.memory_floor_bytes,
    )
    end_killed_rechecks(store.rechecks, launcher, spec.limits, observer.note)
    learner = learner_of(spec, prepared.environment)
    search = OptunaSearch(spec, prepared.url)
    return StudyLoop(
        spec=spec,
        launcher=launcher,
        memory=SettlingMemory(NvidiaSmi([gpu.index for gpu in prepared.environment.machine.gpus])),
        store=store,
        search=search,
        course=Course(
            learner=learner,
            shelf=store.lessons,
            store=store,
            search=search,
            observer=observer,
            validator=validator,
            memory=prepared.memory,
        ),
        runner=_runner_of(prepared, store, launcher, observer, interrupt),
        observer=observer,
        interrupt=interrupt,
        now=_now,
    )


def _runner_of(
    prepared: PreparedStudy,
    store: EvidenceStore,
    launcher: LocalLauncher,
    observer: Observer,
    interrupt: Interrupt,
) -> TrialRunner:
    spec = prepared.spec
    diagnose, read_back = judges_of(prepared.environment)
    return TrialRunner(
        launcher=launcher,
        bench=LoadBench(
            spec.model,
            spec.workload,
            texts=prepared.texts,
            note=observer.note,
            counters=read_back.book.counters,
            wanted_requests=wanted_requests(
                [*spec.objectives, *(limit.measured for limit in spec.metric_limits)]
            ),
        ),
        store=store,
        diagnose=diagnose,
        read_back=read_back,
        observer=observer,
        interrupt=interrupt,
        pause=time.sleep,
        limits=spec.limits,
        streams=spec.workload.streams,
    )


def begin_or_continue(store: EvidenceStore, prepared: PreparedStudy) -> None:
    """Keep what a new study is about. Raises StudyMismatch when the file holds a study of something else."""
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
        ("objectives", _listed(info.objectives), _listed(spec.objectives)),
        ("limits", _listed(info.metric_limits), _listed(spec.metric_limits)),
        *_workload_identity(info.workload, spec.workload),
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


def _workload_identity(stored: Workload, given: Workload) -> list[tuple[str, object, object]]:
    """Field by field, those that decide what is sent and looked at."""
    return [
        (f"a workload whose {field.name} is", _as_written(stored, field.name), _as_written(given, field.name))
        for field in fields(Workload)
        if field.compare
    ]


def _as_written(workload: Workload, field: str) -> object:
    value: object = getattr(workload, field)
    return _listed(value) if isinstance(value, tuple) else value


def _listed(values: Iterable[object]) -> str:
    return " ".join(map(str, values)) or "none"


def _now() -> datetime:
    return datetime.now(UTC)
