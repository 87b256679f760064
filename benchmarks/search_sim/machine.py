"""What a scenario is made of: the device, the load that model and workload put on it, and conflicts.

Sizes are in GiB, times in seconds.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from search_sim.knobs import Columns

GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A condition on one setting: it is one of `among`, or within `low` and `high`."""

    name: str
    among: tuple[float, ...] = ()
    low: float = -np.inf
    high: float = np.inf

    def holds(self, rows: Columns) -> NDArray[np.bool_]:
        """Where it is true."""
        column = rows[self.name]
        return np.isin(column, self.among) if self.among else (column >= self.low) & (column <= self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Settings that do not go together, which only a launch shows; `line` is what the log then says."""

    parts: tuple[Part, ...]
    line: str
    serving: bool = False
    """It comes with the first request, else while the engine starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What computes. On a CPU `memory_gib` is the host's and there is no GPU."""

    memory_gib: float
    host_gib: float
    bandwidth_gib_s: float
    tflops: float
    pcie_gib_s: float = 20.0
    cores: int = 16
    on_cpu: bool = False
    fp8_cache: bool = True
    display_gib: float = 0.45
    """Never free."""
    host_step_s: float = 0.0009
    eager_step_s: float = 0.006
    """What each step costs more without CUDA graphs, or without compiled code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What the model and the workload ask of it."""

    weights_gib: float
    params: float
    kv_bytes: float
    """Of one token, in the model's own type."""
    act_gib: float = 0.6
    act_per_batched: float = 8e-5
    act_per_seq: float = 1.2e-3
    graphs_gib: float = 0.4
    graphs_per_seq: float = 2e-3
    graphs_counted: float = 0.5
    """Share of the graphs that vLLM reckons with before it sizes the cache."""
    serving_per_batched: float = 1.2e-5
    mtp_gib: float = 1.0
    mtp_accepts: float = 0.0
    """Chance that a drafted token is right; 0 where the model has no such heads."""
    ngram_accepts: float = 0.35
    ngram_lookup: float = 4.0
    prompt: int = 1000
    output: int = 200
    prefix_hits: float = 0.35
    prefix_costs: float = 0.02
    fp8_costs: float = 0.03
    async_saves: float = 0.5
    backend_costs: tuple[float, ...] = (1.0, 0.95, 1.12)
    """Of attention, by `attention_backend`."""

    @property
    def context(self) -> int:
        """Tokens of a request on average while it runs."""
        return self.prompt + self.output
