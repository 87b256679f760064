"""Everything that is data about vLLM's logs: the signatures, and how its phases, facts and stops are told."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.decide.failures.signatures import RuleIndex
from autotune.domain.failure import Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseSigns:
    """How a phase is recognised: by functions in a traceback, by texts that say it has begun."""

    phase: Phase
    functions: frozenset[str] = frozenset()
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FactSign:
    """A line of information that holds values worth knowing; the last one counts."""

    contains: str
    pattern: re.Pattern[str] | None = None
    """Must be found in the line; its named groups become values."""
    sets: Mapping[str, bool | str] = field(default_factory=dict)
    """Values the line stands for."""
    warning: bool = False
    """The line can be a warning too."""

    @property
    def names(self) -> frozenset[str]:
        """The values that it can give."""
        return frozenset(self.pattern.groupindex if self.pattern else ()).union(self.sets)

    def read(self, body: str) -> Mapping[str, bool | str] | None:
        """The values of the line as they are written; None when it is another line."""
        if self.contains not in body:
            return None
        match = self.pattern.search(body) if self.pattern else None
        if self.pattern and match is None:
            return None
        groups = match.groupdict() if match else {}
        return {**{name: text for name, text in groups.items() if text is not None}, **self.sets}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSigns:
    """Texts that say what a line is, whatever failed."""

    run_starts: tuple[str, ...]
    """The server has been started (again)."""
    stops: tuple[str, ...]
    """It was told to stop: what follows is its own cleaning up."""
    fatal: tuple[str, ...]
    """The traceback that follows ended a process."""
    survived: tuple[str, ...]
    """The traceback that follows did not."""
    chained: tuple[str, ...]
    """The next traceback belongs to the one before."""
    no_failures: tuple[str, ...]
    """Exceptions that are how a program is stopped, or that only hold others."""
    settings: frozenset[str]
    """Arguments whose values are kept; any other, above all a key or a token, is not."""

    def starts_run(self, body: str) -> bool:
        """Whether the line says that the server is being started."""
        return any(text in body for text in self.run_starts)

    def stops_run(self, body: str) -> bool:
        """Whether the line says that the server was told to stop."""
        return any(text in body for text in self.stops)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """One rule file. `phases` are in the order in which functions of a traceback are asked for."""

    index: RuleIndex
    phases: tuple[PhaseSigns, ...]
    facts: tuple[FactSign, ...]
    signs: LogSigns
