"""How two things that were measured differ, and what is known of each of them."""

from dataclasses import dataclass

from autotune.domain.difference import Difference
from autotune.domain.measurement import Point
from autotune.domain.space import Configuration
from autotune.domain.trial import TrialRecord
from autotune.domain.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two, with all the runs there are of it."""

    name: str
    """How the user finds it again."""
    model: str
    workload: Workload
    version: str | None
    """Of vLLM; None where it is not known."""
    machine: str
    runs: tuple[tuple[Point, ...], ...]
    """The ladder, once for each time it was measured."""
    gpus: tuple[str, ...] | None = None
    """Of the machine; None where they are not known."""
    configuration: Configuration | None = None
    """Of a trial; None for a bench result, whose server was started by somebody else."""
    url: str | None = None
    """Of a bench result's server."""
    study: str | None = None
    """Which study it is of; None for a bench result."""
    records: tuple[TrialRecord, ...] = ()
    """All trials of that study: their repeats tell how much it varies."""
    speculative: bool = False
    """Whether it decodes speculatively, which varies more."""
    restarted: bool = True
    """Whether each run had a server of its own."""
    notes: tuple[str, ...] = ()
    """What else has to be known of its numbers, as sentences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One metric at one stream count, of both. A side that has no such number has None."""

    streams: int
    metric: str
    first: float | None
    """Geometric mean over the runs."""
    second: float | None
    difference: Difference | None
    """None where a side is missing, and where nothing tells how much the metric varies."""

    @property
    def ratio(self) -> float | None:
        """The second to the first, over the runs that `difference` rests on where there is one."""
        if self.difference is not None:
            return self.difference.ratio
        return self.second / self.first if self.first is not None and self.second is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Both sides and how they differ; `warnings` are sentences on what is not like with like."""

    first: Side
    second: Side
    rows: tuple[Row, ...]
    warnings: tuple[str, ...]
