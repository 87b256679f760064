"""In which order configurations come up to be the next trial, from the trials of an Optuna study so far.

All of it follows from the study's seed and these trials, so that a study which is continued goes on exactly
as if it had never stopped.
"""

import random
from collections.abc import Iterator, Sequence
from itertools import islice

from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from autotune.decide.space.neighbours import neighbour
from autotune.decide.space.sampling import draw
from autotune.domain.space import Configuration
from autotune.domain.study import StudySpec
from autotune.domain.trial import Origin, Proposal
from autotune.search.sampler import Tpe

STARTUP_SUCCESSES = 10
"""Trials that worked, start points among them, before TPE takes over from random choice. TPE that begins on
fewer locks onto what the first survivors happen to share; 10 is also Optuna's own default, which however
counts failures too."""

LOCAL_SHARE = 0.25
"""Of the proposals for a single objective. Where start points are few or poor it is neighbours that lead away
from them: on three simulated machines, with start points, searches without neighbours and with a quarter of
them came to 94 and 93 %, 73 and 80 %, 98 and 97 % of the best. With several objectives neighbours of a few
made the front poorer, and there are none."""

PARENTS = 3
"""The best so far, of which neighbours are drawn: the very best may be so by a lucky measurement."""

LOCAL_STEP = 0.1
"""Standard deviation of a neighbour's numbers, in ranges: max_num_seqs from 1 to 1024 changes by half or
double in most cases."""

LOCAL_DRAWS = 30
"""Neighbours before TPE is asked after all."""

SAMPLER_DRAWS = 30
"""Draws by TPE, which take some milliseconds each; then uniform ones, which take hardly any time. A sampler
that is drawn into what is refused for that long has nothing to say about the rest."""

DRAWS = 3000
"""Uniform draws before all is taken to be refused."""

_UNHEARD = {Origin.CONTROL.value, Origin.FINAL.value, Origin.ABLATION.value, Origin.ISOLATION.value}


class Candidates:
    """Of one study."""

    def __init__(self, spec: StudySpec, directions: Sequence[StudyDirection]) -> None:
        self._space = spec.space
        self._seed = spec.seed
        self._maximize = [objective.maximize for objective in spec.objectives]
        self._tpe = Tpe(spec.space, directions)

    def guided(self, history: Sequence[FrozenTrial]) -> Iterator[Proposal]:
        """What the trials speak for: neighbours of the best, and what TPE draws once enough have worked."""
        heard = _heard(history)
        rng = self._rng(heard, "guided")
        if len(self._maximize) == 1 and rng.random() < LOCAL_SHARE:
            yield from self._neighbours(heard, rng)
        if self._tpe.successes(heard) >= STARTUP_SUCCESSES:
            for configuration in islice(self._tpe.draws(heard, rng.getrandbits(32)), SAMPLER_DRAWS):
                if self._space.violated(configuration) is None:
                    yield Proposal(configuration=configuration, origin=Origin.SAMPLED)

    def uniform(self, history: Sequence[FrozenTrial]) -> Iterator[Proposal]:
        """Any configurations that keep the constraints."""
        rng = self._rng(_heard(history), "uniform")
        for _ in range(DRAWS):
            configuration = draw(self._space, rng)
            if self._space.violated(configuration) is None:
                yield Proposal(configuration=configuration, origin=Origin.SAMPLED)

    def _rng(self, heard: Sequence[FrozenTrial], use: str) -> random.Random:
        return random.Random(f"{self._seed}:{len(heard)}:{use}")  # noqa: S311 - reproducible on purpose

    def _neighbours(self, heard: Sequence[FrozenTrial], rng: random.Random) -> Iterator[Proposal]:
        parents = self._best(heard)
        for _ in range(LOCAL_DRAWS if parents else 0):
            found = neighbour(self._space, rng.choice(parents), rng, LOCAL_STEP)
            if found is not None:
                yield Proposal(configuration=found, origin=Origin.LOCAL)

    def _best(self, heard: Sequence[FrozenTrial]) -> Sequence[Configuration]:
        """Those with the best values of the single objective, of all that work and keep every limit."""
        kept = [
            t for t in heard if t.state == TrialState.COMPLETE and all(v <= 0 for v in t.constraints.values())
        ]
        kept.sort(key=lambda trial: trial.values[0], reverse=self._maximize[0])
        return [Configuration(values=trial.params) for trial in kept[:PARENTS]]


def _heard(history: Sequence[FrozenTrial]) -> Sequence[FrozenTrial]:
    """The trials that say something of the settings they were made for.

    Not those that were broken off, so that one which is launched again when a study goes on leaves all as it
    would have been. Nor launches with a purpose of their own: repeats of the best, or of the baseline, whose
    parameters say nothing, would take all places among the good ones, and probes around one failure those
    among the bad.
    """
    told = (TrialState.COMPLETE, TrialState.PRUNED)
    return [trial for trial in history if trial.state in told and trial.user_attrs["origin"] not in _UNHEARD]
