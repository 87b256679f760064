"""How much of what can be had a search has found: the dominated hypervolume of its configurations, exact.

Objectives are taken as ratios to the baseline (`autotune.decide.relative`), each measured from 0, so that the
reference point is "no throughput, no end to the waiting" and the volume of the baseline alone is 1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.decide.ranking import Candidate
from autotune.decide.relative import ratios, reference_of
from autotune.domain.objective import Objective

Corner = tuple[float, ...]
"""The far corner of the box between it and the origin; no coordinate is below 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """The volume after each configuration that enlarged it, by its first measured trial.

    Each counts with the mean of all its launches from its first one on, so that the last volume is that of
    the front as it is known now, and no later measurement makes an earlier volume smaller.
    """

    reference: Candidate
    steps: tuple[tuple[int, float], ...]
    """(trial, volume), both rising; none where no configuration keeps the limits."""
    dimensions: int

    def side(self, volume: float) -> float:
        """The side of the cube of this volume: the same gain in every objective would be worth as much."""
        return math.pow(volume, 1 / self.dimensions)


def growth(candidates: Sequence[Candidate], objectives: Sequence[Objective]) -> Growth | None:
    """How the volume grew with those of the `candidates` that keep the limits, in the order of their trials.

    None without a reference, which may itself break a limit.
    """
    reference = reference_of(candidates)
    if reference is None:
        return None
    steps: list[tuple[int, float]] = []
    front: list[Corner] = []
    volume = 0.0
    for candidate in (each for each in candidates if each.keeps_limits):
        corner = ratios(candidate.values, reference.values, objectives)
        gained = exclusive(corner, front) if all(map(math.isfinite, corner)) else 0.0
        if gained > 0:
            volume += gained
            front = [*(other for other in front if not _covers(corner, other)), corner]
            steps.append((candidate.record.number, volume))
    return Growth(reference=reference, steps=tuple(steps), dimensions=len(objectives))


def hypervolume(corners: Sequence[Corner]) -> float:
    """The volume of the union of the boxes between the origin and each of `corners`."""
    front = _front(corners)
    if not front:
        return 0.0
    if len(front[0]) == 1:
        return max(corner[0] for corner in front)
    if len(front[0]) == 2:
        return _area(front)
    return math.fsum(exclusive(corner, front[position + 1 :]) for position, corner in enumerate(front))


def exclusive(corner: Corner, others: Sequence[Corner]) -> float:
    """The part of the box of `corner` that lies in none of the boxes of `others`, never below 0.

    The others are cut to that box first, where most of them shrink to nothing or cover each other: this is
    what makes the WFG algorithm fast (While, Bradstreet, Barone 2012).
    """
    if any(_covers(other, corner) for other in others):
        return 0.0
    cut = [tuple(map(min, corner, other)) for other in others]
    return max(0.0, math.prod(corner) - hypervolume(cut))


def _covers(a: Corner, b: Corner) -> bool:
    """Whether the box of `a` holds that of `b`."""
    return all(x >= y for x, y in zip(a, b, strict=True))


def _front(corners: Sequence[Corner]) -> list[Corner]:
    """Those whose boxes no other holds, each once, the largest first coordinate first."""
    kept: list[Corner] = []
    for corner in sorted(set(corners), reverse=True):
        if not any(_covers(other, corner) for other in kept):
            kept.append(corner)
    return kept


def _area(front: Sequence[Corner]) -> float:
    """Of a front in two dimensions, whose second coordinates rise as the first ones fall."""
    area, below = 0.0, 0.0
    for x, y in front:
        area += x * (y - below)
        below = y
    return area
