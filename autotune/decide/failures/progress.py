"""How far a server came, told by its lines of information; its settings, and which requests it answered."""

import re
from collections.abc import Collection, Iterable

from autotune.decide.failures.rulebook import FactSign, Rules
from autotune.decide.failures.template import Value, read_value
from autotune.domain.failure import Phase

_ORDER = {phase: position for position, phase in enumerate(Phase)}
_ACCESS = re.compile(r'"(?P<method>[A-Z]{3,7}) (?P<path>/\S{0,200}) HTTP/\d(?:\.\d)?" (?P<status>\d{3})')
_COMPLETIONS = ("completions", "/responses", "/messages", "/generate", "/embeddings", "/invocations")
_SETTING = re.compile(
    r"'?\b(?P<name>[a-z_]{3,40})'?[:=] ?(?P<value>\d{1,15}(?:\.\d{1,9})?|True|False|'[^']{1,200}')"
)

_TEXTS = ("version", "_ids", "_sizes", "_bind")
"""Ends of the names whose values stay texts, a single number too."""


def later(one: Phase, other: Phase) -> Phase:
    """The phase that comes later in a server's life."""
    return one if _ORDER[one] >= _ORDER[other] else other


def phase_of(functions: Collection[str], rules: Rules) -> Phase | None:
    """The phase that the functions of a traceback belong to; None when they do not tell."""
    return next((signs.phase for signs in rules.phases if not signs.functions.isdisjoint(functions)), None)


class Progress:
    """What the quiet lines of one run said; `phase` only goes forward."""

    def __init__(self, rules: Rules) -> None:
        self.phase = Phase.ARGS
        self.values: dict[str, Value] = {}
        self.answered = 0
        """Completions with status 200."""
        self.refused = 0
        """Completions with status 4xx."""
        self.failed = 0
        """Completions with status 5xx."""
        self._settings = rules.signs.settings
        self._texts = [(text, signs.phase) for signs in rules.phases for text in signs.texts]
        self._facts = rules.facts
        self._warned = [fact for fact in rules.facts if fact.warning]

    @property
    def ready(self) -> bool:
        """It said that it accepts requests."""
        return _ORDER[self.phase] >= _ORDER[Phase.FIRST_REQUEST]

    @property
    def version(self) -> str | None:
        """Of vLLM, when a line named it."""
        version = self.values.get("version")
        return str(version) if version is not None else None

    def read(self, body: str) -> None:
        """Take in one line of information."""
        if " HTTP/" in body and (access := _ACCESS.search(body)):
            self._request(access)
            return
        for text, phase in self._texts:
            if text in body:
                self.phase = later(self.phase, phase)
        self._learn(body, self._facts)
        if "args: " in body:
            self._arguments(body)

    def read_warning(self, body: str) -> None:
        """Take in the facts of a warning: how far the server came is told by quiet lines alone."""
        self._learn(body, self._warned)

    def _learn(self, body: str, facts: Iterable[FactSign]) -> None:
        for fact in facts:
            for name, value in (fact.read(body) or {}).items():
                plain = isinstance(value, bool) or name.endswith(_TEXTS)
                self.values[name] = value if plain else read_value(name, str(value))

    def _request(self, access: re.Match[str]) -> None:
        if access["method"] != "POST" or not any(part in access["path"] for part in _COMPLETIONS):
            return
        match access["status"][0]:
            case "2":
                self.answered += 1
                self.phase = later(self.phase, Phase.SERVING)
            case "4":
                self.refused += 1
            case "5":
                self.failed += 1

    def _arguments(self, body: str) -> None:
        """Keep those of `non-default args: {...}` or `args: Namespace(...)` that the rules name."""
        for match in _SETTING.finditer(body):
            name, value = match["name"], match["value"].strip("'")
            if name in self._settings and name not in self.values and value != "False":
                self.values[name] = read_value(name, value)
