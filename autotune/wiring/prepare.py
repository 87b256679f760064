"""From the words of a request to a study whose every part is read and checked."""

from dataclasses import dataclass, replace
from pathlib import Path

from autotune.decide.memory.estimate import MemoryModel, draft_names, memory_model
from autotune.decide.space.check import Finding, Severity, check_space
from autotune.decide.space.default_space import MIN_CONTEXT_TOKENS, default_space
from autotune.decide.space.site import Site
from autotune.decide.starts import start_points
from autotune.domain.machine import Environment, Model
from autotune.domain.metric_limit import MetricLimit
from autotune.domain.objective import Objective, check_slos, check_streams, default_objectives
from autotune.domain.prompt_text import PromptText
from autotune.domain.slo import Slo
from autotune.domain.space import SearchSpace
from autotune.domain.start import StartPoint
from autotune.domain.study import Limits, StudySpec
from autotune.domain.workload import Lengths, Workload
from autotune.errors import UserError
from autotune.files.prompt_lines import source_texts
from autotune.files.space_document import read_document
from autotune.files.spaces import load_space
from autotune.files.starts import read_starts
from autotune.files.studies import StudyFile, load_study
from autotune.files.workloads import load_workload
from autotune.host.machine import read_machine
from autotune.host.model import read_model
from autotune.host.vllm import find_vllm
from autotune.server.ports import PortRange
from autotune.store.connection import database_path, database_url
from autotune.wiring.open import open_store

DEFAULT_BUDGET_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What `autotune run` was asked for; None where the study file or a default decides."""

    model: str
    begun_s: float
    """When the command began, on the monotonic clock: the budget covers all of it."""
    budget_s: float | None = None
    study: str | None = None
    space: str | None = None
    database: str | None = None
    vllm: str | None = None
    workload: str | None = None
    """A name or a file, see `load_workload`; instead of the study file's. What follows is put into it."""
    streams: tuple[int, ...] | None = None
    prompt_tokens: Lengths | None = None
    output_tokens: Lengths | None = None
    rate_per_stream: float | None = None
    context_tokens: int | None = None
    """The context every configuration must allow; for the derived search space."""
    objectives: tuple[Objective, ...] = ()
    metric_limits: tuple[MetricLimit, ...] = ()
    slos: tuple[Slo, ...] = ()
    seed: int | None = None
    no_finals: bool = False
    patience: int | None = None
    startup_s: float | None = None
    ports: PortRange | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedStudy:
    """A request with everything it refers to read and checked; nothing is launched or written yet."""

    request: RunRequest
    budget_s: float
    spec: StudySpec
    environment: Environment
    url: str
    texts: tuple[PromptText, ...]
    """The prompts of a workload that has them from a file of the user."""
    findings: tuple[Finding, ...]
    """What the check of the search space has to say, none of it an error."""
    memory: MemoryModel | None = None
    """What memory is estimated with; None where too little is known of the model or the device."""

    @property
    def logs_dir(self) -> Path:
        """Where the servers' logs go: beside the study file, or below the working directory."""
        path = database_path(self.url)
        return path.with_suffix(".logs") if path else Path("studies") / f"{self.spec.name}.logs"


def prepare_study(request: RunRequest) -> PreparedStudy:
    """Read study, space, model, machine and vLLM, and check them against each other.

    Raises UserError or EnvironmentFault with the one thing to change.
    """
    model = read_model(request.model)
    file = load_study(request.study, Path.cwd()) if request.study else _no_file(model)
    base = load_workload(request.workload, Path.cwd()) if request.workload else file.workload
    workload = adjusted(
        base,
        streams=request.streams,
        prompt_tokens=request.prompt_tokens,
        output_tokens=request.output_tokens,
        rate_per_stream=request.rate_per_stream,
        slos=request.slos,
    )
    texts = source_texts(workload)
    of_file = file.objectives if workload.streams == file.workload.streams else ()
    objectives = _objectives(request, of_file, workload)
    metric_limits = _metric_limits(request, file, workload)
    space_ref = request.space or file.search_space
    space = load_space(space_ref, Path.cwd()) if space_ref else None
    # What the user wrote is read first: a look at vLLM can take 20 s.
    environment = Environment(machine=read_machine(), vllm=find_vllm(request.vllm))
    url = database_url(request.database or str(Path("studies") / f"{file.name}.db"))
    context_tokens = request.context_tokens or MIN_CONTEXT_TOKENS
    if space is None:
        space = _kept_space(url) or default_space(
            environment.machine, environment.vllm, model, workload, context_tokens
        )
    findings = checked(space, environment)
    spec = StudySpec(
        name=file.name,
        model=model.name,
        space=space,
        workload=workload,
        objectives=objectives,
        seed=file.seed if request.seed is None else request.seed,
        limits=_limits(request, file.limits),
        metric_limits=metric_limits,
        starts=_starts(space, environment, model, workload, context_tokens),
        architecture=model.architecture,
    )
    return PreparedStudy(
        request=request,
        budget_s=request.budget_s or file.budget_s or DEFAULT_BUDGET_S,
        spec=spec,
        environment=environment,
        url=url,
        texts=texts,
        findings=findings,
        memory=memory_model(environment, model, _draft(space)),
    )


def _draft(space: SearchSpace) -> Model | None:
    """The model that drafts in configurations of `space`, where they name one and it is on this machine."""
    names = draft_names(space)
    if len(names) != 1:
        return None
    name = names.pop()
    try:
        return replace(read_model(name), name=name)
    except UserError:  # what vLLM makes of that name is for the trials to show
        return None


def _starts(
    space: SearchSpace, environment: Environment, model: Model, workload: Workload, context_tokens: int
) -> tuple[StartPoint, ...]:
    site = Site(
        machine=environment.machine,
        vllm=environment.vllm,
        model=model,
        workload=workload,
        context_tokens=context_tokens,
    )
    return start_points(space, site, read_starts())


def _limits(request: RunRequest, base: Limits) -> Limits:
    return replace(
        base,
        startup_s=request.startup_s or base.startup_s,
        finalists=0 if request.no_finals else base.finalists,
        patience=base.patience if request.patience is None else request.patience,
    )


def _kept_space(url: str) -> SearchSpace | None:
    """The space that the study at `url` was begun with; None when there is no such study yet."""
    path = database_path(url)
    if path is not None and not path.is_file():
        return None
    with open_store(url, create=True) as store:
        info = store.info()
    return read_document(info.space, url) if info else None


def _no_file(model: Model) -> StudyFile:
    """The settings of a study without a file: named after the model, everything else by default."""
    workload = Workload()
    return StudyFile(
        name=_slug(model.name),
        search_space=None,
        workload=workload,
        objectives=default_objectives(workload.streams),
        seed=0,
        limits=Limits(),
        budget_s=None,
    )


def checked(space: SearchSpace, environment: Environment) -> tuple[Finding, ...]:
    """The findings on `space`. Raises UserError with all errors when there are any."""
    findings = tuple(check_space(space, environment.vllm))
    errors = [f"{f.key}: {f.text}" for f in findings if f.severity is Severity.ERROR]
    if errors:
        raise UserError(f"search space {space.name}: " + "; ".join(errors))
    return findings


def adjusted(
    base: Workload,
    *,
    streams: tuple[int, ...] | None = None,
    prompt_tokens: Lengths | None = None,
    output_tokens: Lengths | None = None,
    rate_per_stream: float | None = None,
    slos: tuple[Slo, ...] = (),
) -> Workload:
    """`base` with what the command line says instead. Raises UserError where that does not fit the rest."""
    try:
        return replace(
            base,
            streams=streams or base.streams,
            prompt_tokens=prompt_tokens or base.prompt_tokens,
            output_tokens=output_tokens or base.output_tokens,
            rate_per_stream=base.rate_per_stream if rate_per_stream is None else rate_per_stream,
            slos=slos or base.slos,
        )
    except ValueError as error:
        raise UserError(f"workload {base.name}: {error}") from None


def _objectives(
    request: RunRequest, of_file: tuple[Objective, ...], workload: Workload
) -> tuple[Objective, ...]:
    """Those asked for, else those of the study file, none where other stream counts than its are measured."""
    chosen = request.objectives or of_file or default_objectives(workload.streams)
    check_streams(chosen, workload.streams)
    check_slos(chosen, workload.slos)
    return chosen


def _metric_limits(request: RunRequest, file: StudyFile, workload: Workload) -> tuple[MetricLimit, ...]:
    """Those asked for, else those of the study file. None is ever dropped because it is not measured."""
    chosen = request.metric_limits or file.metric_limits
    measured = [limit.measured for limit in chosen]
    check_streams(measured, workload.streams, "limit")
    check_slos(measured, workload.slos, "limit")
    return chosen


def _slug(model: str) -> str:
    name = model.rstrip("/").rsplit("/", 1)[-1].lower()
    return "".join(c if c.isalnum() or c in "._-" else "-" for c in name) or "study"
