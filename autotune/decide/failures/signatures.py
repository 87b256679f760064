"""What a rule is, and how the rules that fit a line are found without trying all of them.

Rules are data (`autotune/rules/vllm.toml`). Each names literal texts of which a line must hold one; the
longest word of each literal is its key in an index, so a line is cut into words once and only the rules whose
key it has are looked at: the work for a line does not grow with the number of rules.
"""

import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from autotune.decide.failures.template import Value, read_value
from autotune.domain.expression import Expression
from autotune.domain.failure import Blame, FailureKind, Phase
from autotune.errors import ExpressionError

_WORD = re.compile(r"\w+")


class Weight(StrEnum):
    """What a rule's line proves."""

    ROOT = "root"
    """A failure, and its cause."""
    CONSEQUENCE = "consequence"
    """A failure, whose cause is elsewhere: it names the failure only when no root is found."""
    HINT = "hint"
    """Nothing alone, healthy logs have it too: it names a failure that something else proves."""
    NOTICE = "notice"
    """Never a failure: something to tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """Releases of vLLM between two, `since` included and `before` not; None is open."""

    since: tuple[int, ...] | None = None
    before: tuple[int, ...] | None = None

    def hold(self, version: str | None) -> bool:
        """Whether `version` is among them; an unknown version is."""
        if self.since is None and self.before is None:
            return True
        release = release_of(version or "")
        if not release:
            return True
        return (self.since is None or release >= self.since) and (
            self.before is None or release < self.before
        )


def release_of(version: str) -> tuple[int, ...]:
    """`0.11.1rc2.dev3+g12` -> (0, 11, 1); empty when it does not begin with a number."""
    match = re.match(r"v?(\d{1,4}(?:\.\d{1,4}){0,3})", version)
    return tuple(int(part) for part in match[1].split(".")) if match else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One signature: when it fits and what it says. Texts are templates, see `failures.template`."""

    id: str
    kind: FailureKind
    blame: Blame
    why: str
    cure: str
    source: str
    weight: Weight = Weight.ROOT
    phase: Phase | None = None
    """Where the traceback does not tell."""
    contains: tuple[str, ...] = ()
    """A line must hold one of these; empty for a rule that is judged at the end, by facts alone."""
    patterns: tuple[re.Pattern[str], ...] = ()
    """Of which one must be found; its named groups become numbers."""
    any_frames: frozenset[str] = frozenset()
    """Functions of which one must be in the traceback."""
    given: tuple[str, ...] = ()
    """Facts and settings that the log must have told."""
    missing: tuple[str, ...] = ()
    """Facts and settings that it must not have told."""
    when: Expression | None = None
    """A condition over the numbers, facts and settings; not fulfilled when one of them is unknown."""
    shares: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Further numbers: one divided by another, rounded down to hundredths."""
    reached: Phase | None = None
    """How far the server must have come, neither less nor further."""
    versions: Versions = Versions()
    min_level: str = "ERROR"
    """Lines below this level are not looked at."""
    fatal: bool | None = None
    """Whether its line alone proves that the server died; None: by where the line stands."""
    confidence: float = 1.0

    def fits(self, seen: "Seen") -> bool:
        """Whether everything but the text of the line fits."""
        return (
            self.versions.hold(seen.version)
            and (not self.any_frames or not self.any_frames.isdisjoint(seen.functions))
            and all(name in seen.values for name in self.given)
            and not any(name in seen.values for name in self.missing)
            and (self.reached is None or seen.phase == self.reached)
        )

    def read(self, text: str, context: str) -> dict[str, Value] | None:
        """The values of the first pattern in `context`; None without one, or without a literal in `text`."""
        if not any(literal in text for literal in self.contains):
            return None
        if not self.patterns:
            return {}
        for pattern in self.patterns:
            if match := pattern.search(context):
                groups = match.groupdict()
                return {name: read_value(name, value) for name, value in groups.items() if value is not None}
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What is known beside the line itself when a rule is tried."""

    functions: Collection[str] = ()
    values: Mapping[str, Value] = field(default_factory=dict)
    version: str | None = None
    phase: Phase = Phase.ARGS


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A rule that fits, with its numbers."""

    rule: Rule
    numbers: Mapping[str, Value]


class RuleIndex:
    """The rules in their order of precedence: the first that fits names a line."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        self.order = {rule.id: position for position, rule in enumerate(self.rules)}
        self._by_word: dict[str, list[int]] = {}
        self._mild = tuple(
            literal
            for rule in self.rules
            if level_rank(rule.min_level) < level_rank("ERROR")
            for literal in rule.contains
        )
        for position, rule in enumerate(self.rules):
            for literal in rule.contains:
                self._by_word.setdefault(_key(literal), []).append(position)

    def knows_mild(self, text: str) -> bool:
        """Whether a rule that looks at lines below an error may know `text`: a quick test for the many."""
        return any(literal in text for literal in self._mild)

    def candidates(self, text: str) -> list[Rule]:
        """The rules that may know `text`, by its words alone, in their order."""
        words = self._by_word.keys() & _WORD.findall(text)
        return [self.rules[i] for i in sorted({i for word in words for i in self._by_word[word]})]

    def match(self, text: str, context: str, level: str, seen: Seen) -> Match | None:
        """The first rule that fits `text`; its patterns are searched in `context`, which ends with `text`."""
        for rule in self.candidates(text):
            if level_rank(level) < level_rank(rule.min_level):
                continue
            numbers = rule.read(text, context)
            if numbers is not None and rule.fits(seen) and (found := conclude(rule, numbers, seen)):
                return found
        return None

    def at_end(self, seen: Seen) -> list[Match]:
        """The rules that need no line and fit what the whole log told."""
        silent = (rule for rule in self.rules if not rule.contains and rule.fits(seen))
        return [found for rule in silent if (found := conclude(rule, {}, seen))]


def conclude(rule: Rule, numbers: Mapping[str, Value], seen: Seen) -> Match | None:
    """The match with its shares; None when the rule's condition does not hold."""
    values = {**seen.values, **numbers}
    try:
        if rule.when is not None and not rule.when.holds(values, absent=False):
            return None
    except ExpressionError:  # the log gave a word where a number was meant
        return None
    shares = {
        name: math.floor(100 * part / whole) / 100
        for name, (part_name, whole_name) in rule.shares.items()
        if isinstance(part := values.get(part_name), float)
        and isinstance(whole := values.get(whole_name), float)
        and whole > 0
    }
    return Match(rule=rule, numbers={**numbers, **shares})


_LEVELS = {"DEBUG": 0, "INFO": 1, "WARNING": 2, "ERROR": 3, "CRITICAL": 4}


def level_rank(level: str) -> int:
    """Order of the levels; a line without one came from no logger and counts as an error."""
    return _LEVELS.get(level, _LEVELS["ERROR"])


def _key(literal: str) -> str:
    """The longest word of `literal` that is whole in a line: one at its edge may be part of a longer."""
    words = list(_WORD.finditer(literal))
    inner = [word[0] for word in words if word.start() > 0 and word.end() < len(literal)]
    return max(inner or [word[0] for word in words], key=len)
