"""A service-level objective of single requests, written `ttft_p95=2s`: 95 % get their first token in 2 s."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from autotune.errors import UserError
from autotune.units import format_exact_time, parse_time


class Latency(StrEnum):
    """The times of one request that can have a limit; `autotune.domain.metric` has their definitions."""

    TTFT = "ttft"
    TPOT = "tpot"
    E2E = "e2e"


PERCENTILES = (50, 90, 95, 99)
FORM = (
    f"LATENCY_pPERCENTILE=TIME, for example ttft_p95=2s or tpot_p99=50ms; latencies are "
    f"{', '.join(Latency)}, percentiles {', '.join(map(str, PERCENTILES))}"
)
"""How one is written, as words for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """At least `percentile` % of the requests have a `latency` of at most `limit_s` seconds."""

    latency: Latency
    percentile: int
    limit_s: float

    def __post_init__(self) -> None:
        if self.percentile not in PERCENTILES:
            raise ValueError(f"the percentile must be one of {PERCENTILES}, but is {self.percentile}")
        if not 0 < self.limit_s < math.inf:
            raise ValueError(f"the limit must be above 0 and finite, but is {self.limit_s}")

    @classmethod
    def parse(cls, text: str) -> "Slo":
        """Read `ttft_p95=2s`. Raises UserError naming what is allowed."""
        match = re.fullmatch(r"\s*([a-z0-9]+)_p([0-9]{2})\s*(?:=|<=)\s*(.+?)\s*", text)
        if match is None or match[1] not in set(Latency) or int(match[2]) not in PERCENTILES:
            raise UserError(f"SLO {text!r}: write {FORM}")
        try:
            return cls(latency=Latency(match[1]), percentile=int(match[2]), limit_s=parse_time(match[3]))
        except ValueError as error:
            raise UserError(f"SLO {text!r}: {error}") from None

    @property
    def name(self) -> str:
        """What it is about: `ttft_p95`."""
        return f"{self.latency}_p{self.percentile}"

    def __str__(self) -> str:
        """As `parse` reads it, to the last digit."""
        return f"{self.name}={format_exact_time(self.limit_s)}"


def parse_slos(texts: Iterable[str]) -> tuple[Slo, ...]:
    """All of them. Raises UserError for one that cannot be read, and when two are about the same."""
    slos: list[Slo] = []
    for text in texts:
        slo = Slo.parse(text)
        if any(slo.name == other.name for other in slos):
            raise UserError(f"SLO {text!r}: there is a second limit for {slo.name}; keep one of them")
        slos.append(slo)
    return tuple(slos)
