"""What becomes of a configuration in truth: how much memory it takes, and whether it works.

Memory is added up as vLLM spends it. Nothing here is random: `Luck` is what a launch adds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from search_sim import knobs
from search_sim.knobs import Column, Columns
from search_sim.machine import GIB, Conflict, Device, Load


class Fate(IntEnum):
    """How a launch ends; what comes first in the life of a server comes first here."""

    WORKS = 0
    BATCH_BELOW_SEQS = 1
    BATCH_BELOW_LENGTH = 2
    ASYNC_WITH_NGRAM = 3
    UNSUPPORTED_CACHE = 4
    HOST_OOM = 5
    OOM_WEIGHTS = 6
    OOM_PROFILE = 7
    NO_KV = 8
    KV_TOO_SMALL = 9
    OOM_GRAPHS = 10
    CONFLICT = 11
    OOM_SERVING = 12


ARGUMENTS = (Fate.BATCH_BELOW_SEQS, Fate.BATCH_BELOW_LENGTH, Fate.ASYNC_WITH_NGRAM)
"""What vLLM says of the settings before it does anything."""


@dataclass(frozen=True, slots=True)
class Luck:
    """What a launch adds, in standard deviations: to the room for the cache, to what is taken after it."""

    cache: float = 0.0
    late: float = 0.0


ROOM_SD_GIB = 0.05
LATE_SD_GIB = 0.10


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """A machine with a model on it."""

    device: Device
    load: Load
    conflicts: tuple[Conflict, ...] = ()
    defaults: Mapping[str, float] = field(default_factory=dict)
    """Of every setting, by its name; what vLLM takes where nothing is said."""

    def weights_gib(self, rows: Columns) -> Column:
        """On the device, draft layers included."""
        kept = np.maximum(self.load.weights_gib - rows[knobs.OFFLOAD], 0.5)
        drafting = np.where(rows[knobs.METHOD] == knobs.MTP, self.load.mtp_gib, 0.0)
        weights: Column = kept + drafting
        return weights

    def working_gib(self, rows: Columns) -> Column:
        """What the trial run with the largest batch takes beside the weights."""
        load = self.load
        ngram = np.where(rows[knobs.METHOD] == knobs.NGRAM, 0.05, 0.0)
        working: Column = (
            load.act_gib + load.act_per_batched * rows[knobs.BATCHED] + load.act_per_seq * rows[knobs.SEQS]
        ) + ngram
        return working

    def graphs_gib(self, rows: Columns) -> Column:
        """CUDA graphs; vLLM captures no batches larger than 512."""
        load = self.load
        size = load.graphs_gib + load.graphs_per_seq * np.minimum(rows[knobs.SEQS], 512)
        return np.where(rows[knobs.EAGER] == 1, 0.0, size)

    def room_gib(self, rows: Columns, luck: Luck | None = None) -> Column:
        """Left for the KV cache; what was asked for on a CPU."""
        if self.device.on_cpu:
            return rows[knobs.CPU_KV]
        share = rows[knobs.SHARE] * self.device.memory_gib
        counted = self.load.graphs_counted * self.graphs_gib(rows)
        taken = self.weights_gib(rows) + self.working_gib(rows) + counted
        room: Column = share - taken + (luck.cache * ROOM_SD_GIB if luck else 0.0)
        return room

    def kv_token_gib(self, rows: Columns) -> Column:
        """Of one token of one sequence."""
        size = self.load.kv_bytes / GIB * np.where(rows[knobs.KV_DTYPE] == 1, 0.5, 1.0)
        with_drafts: Column = size * np.where(rows[knobs.METHOD] == knobs.MTP, 1.03, 1.0)
        return with_drafts

    def fates(self, rows: Columns, luck: Luck | None = None) -> NDArray[np.int64]:
        """A `Fate` for each row: the first thing that goes wrong."""
        checks = [*self._argument_checks(rows), *self._memory_checks(rows, luck)]
        checks += [(Fate.CONFLICT, conflict) for conflict in self.conflict_masks(rows)]
        fate = np.full(rows[knobs.SEQS].shape, int(Fate.WORKS))
        for kind, mask in sorted(checks, key=lambda check: -check[0]):
            fate = np.where(mask, int(kind), fate)
        return fate

    def conflict_masks(self, rows: Columns) -> Sequence[NDArray[np.bool_]]:
        """Where each of the conflicts is met."""
        return [np.logical_and.reduce([part.holds(rows) for part in each.parts]) for each in self.conflicts]

    def _argument_checks(self, rows: Columns) -> list[tuple[Fate, NDArray[np.bool_]]]:
        unchunked = rows[knobs.CHUNKED] == 0
        ngram = rows[knobs.METHOD] == knobs.NGRAM
        return [
            (Fate.BATCH_BELOW_SEQS, rows[knobs.BATCHED] < rows[knobs.SEQS]),
            (Fate.BATCH_BELOW_LENGTH, unchunked & (rows[knobs.BATCHED] < rows[knobs.LENGTH])),
            # 1 is asked for; 2, left to vLLM, is switched off where it must be.
            (Fate.ASYNC_WITH_NGRAM, ngram & (rows[knobs.ASYNC] == 1)),
        ]

    def _memory_checks(self, rows: Columns, luck: Luck | None) -> list[tuple[Fate, NDArray[np.bool_]]]:
        device, room = self.device, self.room_gib(rows, luck)
        short = room < self.kv_token_gib(rows) * rows[knobs.LENGTH]
        checks = [(Fate.NO_KV, room <= 0), (Fate.KV_TOO_SMALL, short)]
        weights, working = self.weights_gib(rows), self.working_gib(rows)
        if device.on_cpu:
            used = weights + working + room + (luck.late * LATE_SD_GIB if luck else 0.0)
            return [*checks, (Fate.HOST_OOM, used > device.host_gib - 2.5)]
        free = device.memory_gib - device.display_gib
        late = rows[knobs.SHARE] * device.memory_gib + (luck.late * LATE_SD_GIB if luck else 0.0)
        late = late + (1 - self.load.graphs_counted) * self.graphs_gib(rows)
        serving = late + self.load.serving_per_batched * rows[knobs.BATCHED]
        return [
            *checks,
            (Fate.UNSUPPORTED_CACHE, (rows[knobs.KV_DTYPE] == 1) & (not device.fp8_cache)),
            (Fate.HOST_OOM, rows[knobs.OFFLOAD] > device.host_gib - 6),
            (Fate.OOM_WEIGHTS, weights > free),
            (Fate.OOM_PROFILE, weights + working > free),
            (Fate.OOM_GRAPHS, late > free),
            (Fate.OOM_SERVING, serving > free),
        ]
