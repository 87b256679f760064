"""How much the same configuration varies from launch to launch: noise, as a share of what is measured.

It is the standard deviation of logarithms, so that 0.02 is 2 %, at any stream count and whatever the unit.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from autotune.domain.trial import Measured, Origin, TrialRecord

Read = Callable[[TrialRecord], float | None]
"""A positive number of a trial; None where it has none."""

_PRIOR_DF = 4
_SPECULATIVE_FLAGS = {"--speculative-config", "--speculative_config", "-sc"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """`sd_log` was estimated with `df` degrees of freedom: the fewer, the less it can be relied on."""

    sd_log: float
    df: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """How much one configuration has varied over `launches`, at least 2, in the course of a study.

    `change` is by how many times its last value is its first.
    """

    launches: int
    sd_log: float
    change: float


def prior_noise(streams: int, speculative: bool) -> Noise:
    """What is usual where nothing was measured twice.

    2 % on a quiet GPU, 3 % with few streams, whose windows hold few requests, and 10 % with speculative
    decoding, whose speed depends on what happens to be accepted.
    """
    sd_log = 0.10 if speculative else 0.03 if streams <= 4 else 0.02
    return Noise(sd_log=sd_log, df=_PRIOR_DF)


def pooled(*noises: Noise | None) -> Noise | None:
    """The noise that several estimates of it tell together; None where there is none."""
    known = [noise for noise in noises if noise is not None]
    df = sum(noise.df for noise in known)
    if not df:
        return None
    return Noise(sd_log=math.sqrt(sum(noise.df * noise.sd_log**2 for noise in known) / df), df=df)


def decodes_speculatively(record: TrialRecord) -> bool:
    """Whether a trial's server was started with speculative decoding."""
    return any(re.split(r"[=.]", word)[0] in _SPECULATIVE_FLAGS for word in record.argv)


def noise_of(records: Sequence[TrialRecord], read: Read) -> Noise | None:
    """The noise that repeats show: pooled over all configurations measured more than once.

    Each trial has a server of its own, so what differs between launches is in it; and so is whatever changed
    on the machine between them. None when nothing was measured twice.
    """
    squares, df = 0.0, 0
    for logs in _repeats(records, read):
        mean = fmean(logs)
        squares += sum((value - mean) ** 2 for value in logs)
        df += len(logs) - 1
    return Noise(sd_log=math.sqrt(squares / df), df=df) if df else None


def neighbour_noise(records: Sequence[TrialRecord], read: Read) -> Noise | None:
    """Like `noise_of`, from pairs of successive launches outside all blocks alone.

    A machine that slows down through the night differs little between neighbours, and finals and ablations,
    which compare within blocks, are to be judged by the noise within a short time.
    """
    outside = [record for record in records if record.origin not in (Origin.FINAL, Origin.ABLATION)]
    pairs = [(logs[i], logs[i + 1]) for logs in _repeats(outside, read) for i in range(0, len(logs) - 1, 2)]
    if not pairs:
        return None
    return Noise(sd_log=math.sqrt(fmean((b - a) ** 2 / 2 for a, b in pairs)), df=len(pairs))


def variation(records: Sequence[TrialRecord], read: Read) -> Variation | None:
    """How much the baseline has varied by itself; None when it was measured less than twice."""
    own = [record for record in records if not record.configuration.values]
    for logs in _repeats(own, read):
        return Variation(launches=len(logs), sd_log=stdev(logs), change=math.exp(logs[-1] - logs[0]))
    return None


def _repeats(records: Sequence[TrialRecord], read: Read) -> Iterator[list[float]]:
    """The logarithms of each configuration measured more than once, in the order of its trials."""
    by_configuration: dict[str, list[float]] = defaultdict(list)
    for record in records:
        value = read(record) if isinstance(record.outcome, Measured) else None
        if value is not None and value > 0:
            by_configuration[record.configuration.digest].append(math.log(value))
    yield from (logs for logs in by_configuration.values() if len(logs) > 1)
