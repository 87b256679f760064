"""All that the page says in words and tables, gathered from a view; the template only lays it out."""

from dataclasses import dataclass
from datetime import datetime

from autotune import __version__
from autotune.decide.failure_groups import FailureGroup, failure_groups
from autotune.decide.timeline import timeline
from autotune.decide.verdict import Certainty
from autotune.domain.launch import shell_lines
from autotune.domain.measurement import FlagKind
from autotune.report import words
from autotune.report.ablation import conclusion
from autotune.report.definitions import Definition, definitions
from autotune.report.failure import plain
from autotune.report.figures import Nothing, Plot
from autotune.report.limits import nothing_to_deploy
from autotune.report.page.comparison import Comparison, comparison
from autotune.report.page.environment import FLAGS, facts, workload_facts
from autotune.report.page.settings import Setting, changed_settings
from autotune.report.verdict import drift, sentences
from autotune.report.view import StudyView
from autotune.units import format_duration

_CERTAINTIES = {
    Certainty.CONFIRMED: "confirmed by finals",
    Certainty.TIED: "a tie, by finals",
    Certainty.UNCONFIRMED: "not confirmed: no finals",
    Certainty.NO_BASELINE: "the defaults do not work here",
}
_FEW = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The verdict. `command` is None where nothing was measured."""

    sentence: str
    figures: tuple[tuple[str, str], ...]
    chosen: int | None = None
    command: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One cause of failures; `more` trials are not named."""

    kind: str
    count: int
    trials: tuple[int, ...]
    more: int
    lost: str
    why: str
    cure: str
    learned: tuple[str, ...]
    root_line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """All of it. Text from outside has nothing in it that cannot be seen, but may hold any markup."""

    name: str
    model: str
    vllm_version: str
    place: str
    made_at: datetime
    autotune_version: str
    running: bool
    headline: Headline
    comparison: Comparison | None
    settings: tuple[Setting, ...]
    ablation: str | None
    """What an ablation has shown of them together; None where there was none."""
    causes: tuple[Cause, ...]
    plots: dict[str, Plot | Nothing]
    facts: list[tuple[str, str]]
    workload: list[tuple[str, str]]
    definitions: tuple[Definition, ...]
    flags: tuple[tuple[FlagKind, str], ...]
    trials: int


def content(view: StudyView, plots: dict[str, Plot | Nothing]) -> Content:
    """What the page says of `view`; `plots` by their keys."""
    info = view.info
    lessons = [lesson for lesson, _ in view.lessons]
    return Content(
        name=plain(info.name),
        model=plain(info.model),
        vllm_version=plain(info.environment.vllm.version),
        place=plain(_place(view)),
        made_at=view.seen_at,
        autotune_version=__version__,
        running=view.may_be_running,
        headline=_headline(view),
        comparison=comparison(view),
        settings=changed_settings(view),
        ablation=plain(conclusion(view.ablation)) if view.ablation else None,
        causes=tuple(_cause(group) for group in failure_groups(view.records, lessons, info.name)),
        plots=plots,
        facts=facts(view),
        workload=workload_facts(info),
        definitions=tuple(definitions()),
        flags=tuple(FLAGS.items()),
        trials=len(view.records),
    )


def _place(view: StudyView) -> str:
    machine = view.info.environment.machine
    gpus = [gpu.name for gpu in machine.gpus]
    if not gpus:
        return f"{machine.hostname}, {machine.cpu_model}"
    named = ", ".join(f"{gpus.count(name)} \u00d7 {name}" for name in dict.fromkeys(gpus))
    return f"{machine.hostname}, {named}"


def _headline(view: StudyView) -> Headline:
    failed = sum(record.failure is not None for record in view.records)
    counts = (
        ("Trials", f"{len(view.records):,}"),
        ("Failed", f"{failed:,}"),
        ("Time used", format_duration(timeline(view.records, view.invocations, view.seen_at).total_s)),
    )
    verdict = view.verdict
    if verdict is None:
        why = nothing_to_deploy(view.records, view.info.objectives, view.info.metric_limits)
        return Headline(sentence=plain(why), figures=counts)
    found: list[tuple[str, str]] = []
    if verdict.difference is not None:
        low, high = verdict.difference.interval.low, verdict.difference.interval.high
        found.append(("Against the defaults", f"{verdict.difference.ratio:.2f}\u00d7"))
        found.append(("95 % interval", f"{low:.2f} to {high:.2f}"))
    elif verdict.looks is not None:
        found.append(("Looks like", f"{verdict.looks:.2f}\u00d7"))
    found.append(("Certainty", _CERTAINTIES[verdict.certainty]))
    return Headline(
        sentence=plain(sentences(verdict, view.info.objectives, brief=True)),
        figures=(*found, *counts),
        chosen=verdict.chosen.number,
        command=shell_lines(verdict.chosen.argv, verdict.chosen.env) or None,
    )


def _cause(group: FailureGroup) -> Cause:
    failure = group.example
    return Cause(
        kind=f"{failure.kind} at {failure.phase}",
        count=len(group.trials),
        trials=group.trials[:_FEW],
        more=len(group.trials[_FEW:]),
        lost=format_duration(group.lost_s),
        why=plain(failure.why),
        cure=plain(failure.cure),
        learned=tuple(dict.fromkeys(plain(str(lesson.finding)) for lesson in group.lessons)),
        root_line=plain(failure.root_line or ""),
    )


def notes(view: StudyView) -> tuple[str, ...]:
    """What else has to be known of the verdict."""
    verdict = view.verdict
    said = [drift(verdict.variation)] if verdict and verdict.variation else []
    if view.info.refused:
        said.append(words.refused(view.info.refused))
    return tuple(said)
