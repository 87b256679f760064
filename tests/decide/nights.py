"""Studies on a machine whose truth is known: how fast each configuration is, its noise, and its drift."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from builders import failed, measured, objectives, record

from autotune.decide.finals import Block, Finals
from autotune.decide.verdict import Verdict, verdict
from autotune.domain.space import Configuration
from autotune.domain.study import Limits
from autotune.domain.trial import Origin, Outcome, TrialRecord

TRIAL_S = 60.0
OBJECTIVES = objectives("out_tok_s@8")


def steady(_launch: int) -> float:
    return 0.0


def configuration(number: int) -> Configuration:
    """Configuration `number`; 0 is the baseline."""
    return Configuration(values={"a": number} if number else {})


@dataclass
class Night:
    """`gains` are the true logarithms of each configuration's speed to the baseline's, and `sd` their noise.

    `drift` is what all configurations are faster by, as a logarithm, at a time counted in launches.
    """

    gains: Sequence[float]
    sd: float | Sequence[float]
    seed: int = 0
    drift: Callable[[int], float] = steady
    limits: Limits = field(default_factory=Limits)
    breaks: Callable[[int, int], Outcome | None] = lambda _number, _launch: None
    """What else than a measurement becomes of a configuration's launch in the finals."""
    records: list[TrialRecord] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)  # noqa: S311 - reproducible on purpose

    @property
    def decide(self) -> Finals:
        return Finals(objectives=OBJECTIVES, limits=self.limits, seed=self.seed)

    def launch(self, number: int, origin: Origin = Origin.SAMPLED, block: int | None = None) -> None:
        launch = len(self.records)
        sd = self.sd if isinstance(self.sd, float) else self.sd[number]
        log = (self.gains[number - 1] if number else 0.0) + self.drift(launch) + self.random.gauss(0.0, sd)
        outcome = self.breaks(number, launch) if origin is Origin.FINAL else None
        made = record(launch, outcome or measured(s8=100 * math.exp(log)), took_s=TRIAL_S)
        self.records.append(replace(made, configuration=configuration(number), origin=origin, block=block))

    def search(self, controls: int = 0) -> None:
        """Everything once, and the baseline again in between."""
        self.launch(0, Origin.BASELINE)
        for number in range(1, len(self.gains) + 1):
            self.launch(number)
        for _ in range(controls):
            self.launch(0, Origin.CONTROL)

    def finals(self, launches: int = 1000) -> Verdict:
        """Hold finals, as long as there is time for so many launches."""
        end = len(self.records) + launches
        block = self.decide.first_block(self.records, TRIAL_S * launches)
        while block is not None:
            self.blocks.append(block)
            for each in block.order:
                if len(self.records) < end:
                    self.launch(int(each.values.get("a", 0)), Origin.FINAL, block.number)
            block = self.decide.next_block(block, self.records, TRIAL_S * (end - len(self.records)))
        found = verdict(self.records, OBJECTIVES)
        assert found is not None
        return found


def broken_at(number: int, launch: int) -> Callable[[int, int], Outcome | None]:
    """Fails by its own fault from that launch on."""
    return lambda n, at: failed() if n == number and at >= launch else None
