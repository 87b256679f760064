"""What vLLM made of a trial's settings: facts out of log and metrics, held against what was asked for."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from autotune.decide.asked import asked, cpu_ids, flag_values
from autotune.decide.failures.logscan import last_run, lines_of
from autotune.decide.failures.progress import later
from autotune.decide.failures.rulebook import FactSign, Rules
from autotune.decide.failures.signatures import Versions
from autotune.decide.failures.template import fill
from autotune.decide.space.effects import no_effect
from autotune.domain.effective import Difference, DifferenceKind, Effective, Observed
from autotune.domain.expression import Expression
from autotune.domain.failure import Phase
from autotune.domain.machine import Device, Environment
from autotune.domain.space import Value
from autotune.errors import ExpressionError

ASKED = "asked_"
"""Before the name of a setting: what was asked for, as against what is."""
DERIVED = frozenset({"omp_threads", "absent_cpu_ids", "draft_tokens"})
"""Facts that no line holds, but that follow from what lines, machine and points say together."""
CACHE_INFO = "vllm:cache_config_info"
_NONE = "None"
"""How Python writes that a setting has no value, which is no fact."""
_WORDS: Mapping[str, bool] = {"True": True, "False": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """How it shows that a setting is not what was asked for. `why` is a template over facts and `asked_*`."""

    setting: str
    kind: DifferenceKind
    when: Expression
    why: str
    source: str
    fact: str | None = None
    """The fact that is the effective value."""
    given: tuple[str, ...] = ()
    """Names that must have a value."""
    missing: tuple[str, ...] = ()
    """Names that must have none."""
    after: Phase | None = None
    """How far the server must have come at least, for the missing to mean something."""
    device: Device | None = None
    versions: Versions = field(default_factory=Versions)

    def difference(self, names: Mapping[str, Value], facts: Mapping[str, Value]) -> Difference | None:
        """The difference when the condition holds; `names` has the facts and what was asked for."""
        if any(name not in names for name in self.given) or any(name in names for name in self.missing):
            return None
        requested = names.get(ASKED + self.setting)
        try:
            if requested is None or not self.when.holds(names, absent=False):
                return None
        except ExpressionError:  # a text where the condition compares numbers, `auto` for example
            return None
        return Difference(
            setting=self.setting,
            requested=requested,
            effective=facts.get(self.fact) if self.fact else None,
            kind=self.kind,
            sentence=fill(self.why, {name: _shown(value) for name, value in names.items()}),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveBook:
    """Everything that is data about reading a server back."""

    facts: tuple[FactSign, ...]
    labels: Mapping[str, str]
    """Facts by the label of `vllm:cache_config_info` that holds them."""
    counters: Mapping[str, tuple[str, ...]]
    """Names of metrics by the field of `ServerCounts`, the newest name first."""
    checks: tuple[Check, ...]


def effective(observed: Observed, book: EffectiveBook, rules: Rules, environment: Environment) -> Effective:
    """Facts and differences of one trial; `rules` say how a log is cut into runs and phases.

    Nothing is guessed: a fact is absent when nothing told it, and a check that needs it says nothing.
    """
    # The settings that a log repeats are what was asked for, not what became of it.
    reading = replace(rules, facts=book.facts, signs=replace(rules.signs, settings=frozenset()))
    progress = last_run(lines_of(observed.log), reading)[0].progress
    known = frozenset().union(*(fact.names for fact in book.facts))
    facts = {
        name: _plain(value) for name, value in progress.values.items() if name in known and value != _NONE
    }
    labels = observed.metrics.labels.get(CACHE_INFO, {}) if observed.metrics else {}
    for label, name in book.labels.items():
        if label in labels and labels[label] != _NONE:
            facts[name] = _plain(_number(labels[label]))
    requests = asked(observed.argv, observed.env)
    device = environment.vllm.device
    derived = _derived(facts, requests, observed, frozenset(environment.machine.cpu_ids))
    names = {**facts, **derived, **{ASKED + name: value for name, value in requests.items()}}
    version = str(facts.get("vllm_version", environment.vllm.version))
    found = [*_without_effect(observed, requests, device)]
    for check in book.checks:
        reached = check.after is None or later(progress.phase, check.after) is progress.phase
        if reached and check.device in (None, device) and check.versions.hold(version):
            found.append(check.difference(names, {**facts, **derived}))
    return Effective(facts=facts, differences=_first_of_each(d for d in found if d))


def _without_effect(
    observed: Observed, requests: Mapping[str, Value], device: Device
) -> Iterable[Difference | None]:
    """Settings that can change nothing on this device, whatever the log says."""
    for name in (*flag_values(observed.argv), *observed.env):
        setting = name.removeprefix("--").replace("-", "_")
        reason = no_effect(name, device)
        if reason is not None and setting in requests and requests[setting] not in (False, 0):
            yield Difference(
                setting=setting,
                requested=requests[setting],
                effective=None,
                kind=DifferenceKind.NO_EFFECT,
                sentence=reason,
            )


def _derived(
    facts: Mapping[str, Value], requests: Mapping[str, Value], observed: Observed, machine: frozenset[int]
) -> Mapping[str, Value]:
    """Values of the names in `DERIVED`, those that have one."""
    values: dict[str, Value] = {}
    if "omp_cpu_ids" in facts:
        values["omp_threads"] = len(cpu_ids(str(facts["omp_cpu_ids"])))
    absent = cpu_ids(str(requests.get("VLLM_CPU_OMP_THREADS_BIND", ""))) - machine
    if absent:
        values["absent_cpu_ids"] = ", ".join(map(str, sorted(absent)))
    drafted = [
        p.server.draft_tokens for p in observed.points if p.server and p.server.draft_tokens is not None
    ]
    if drafted:
        values["draft_tokens"] = sum(drafted)
    return values


def _first_of_each(differences: Iterable[Difference]) -> tuple[Difference, ...]:
    """Of each setting the first, those without effect before the changed ones."""
    by_setting: dict[str, Difference] = {}
    for difference in differences:
        by_setting.setdefault(difference.setting, difference)
    return tuple(sorted(by_setting.values(), key=lambda d: d.kind is not DifferenceKind.NO_EFFECT))


def _number(text: str) -> Value:
    try:
        return float(text)
    except ValueError:
        return text


def _plain(value: Value) -> Value:
    """Whole numbers as such, and Python's words for true and false as what they mean."""
    if isinstance(value, str):
        return _WORDS.get(value, value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _shown(value: Value) -> float | str:
    return str(value).lower() if isinstance(value, bool) else value
