"""A service-level objective of single requests, written `ttft_p95=2s`: 95 % get their first token in 2 s."""

import re
from dataclasses import dataclass
from enum import StrEnum

from autotune.errors import UserError
from autotune.units import format_duration, parse_duration


class Latency(StrEnum):
    """The times of one request; `autotune.decide.estimators` has their definitions."""

    TTFT = "ttft"
    TPOT = "tpot"
    E2E = "e2e"


PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """At least `percentile` % of the requests have a `latency` of at most `limit_s` seconds."""

    latency: Latency
    percentile: int
    limit_s: float

    @classmethod
    def parse(cls, text: str) -> "Slo":
        """Read `ttft_p95=2s`. Raises UserError naming what is allowed."""
        match = re.fullmatch(r"\s*([a-z0-9]+)_p([0-9]+)\s*(?:=|<=)\s*(.+?)\s*", text)
        names = ", ".join(Latency)
        if match is None or match[1] not in set(Latency) or int(match[2]) not in PERCENTILES:
            wanted = ", ".join(f"p{p}" for p in PERCENTILES)
            raise UserError(
                f"SLO {text!r}: write LATENCY_PERCENTILE=TIME, for example ttft_p95=2s; "
                f"latencies are {names}, percentiles {wanted}"
            )
        try:
            limit_s = parse_duration(match[3]) if not match[3].endswith("ms") else _ms(match[3])
        except ValueError as error:
            raise UserError(f"SLO {text!r}: {error}") from None
        return cls(latency=Latency(match[1]), percentile=int(match[2]), limit_s=limit_s)

    def __str__(self) -> str:
        return f"{self.latency}_p{self.percentile}={format_duration(self.limit_s).replace(' ', '')}"


def _ms(text: str) -> float:
    return parse_duration(text.removesuffix("ms").strip() + "s") / 1000
