"""Controls and finals in the loop: when they come, what they launch, and that a study interrupted goes on.

Most studies here run on a clock of their own, with launches that take a minute of it; one runs for real.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import optuna
import pytest
from bed import SEARCH_ONLY, Bed
from builders import failed, measured_point
from optuna.trial import TrialState

from autotune.decide.verdict import Certainty, Verdict, verdict
from autotune.domain.interrupt import Interrupt
from autotune.domain.server import LaunchPlan
from autotune.domain.space import IntDomain, Parameter, SearchSpace, Target, TargetKind
from autotune.domain.study import Limits
from autotune.domain.trial import Interrupted, Interruption, Measured, Origin, Proposal, Step, TrialRecord
from autotune.store.evidence import EvidenceStore
from autotune.tune.ports import Refuses, Search
from autotune.tune.study import Ending, StudyLoop
from autotune.tune.trial import GiveUp, TrialResult

TRIAL_S = 60.0
SEQS = Parameter(
    name="max_num_seqs",
    domain=IntDomain(low=1, high=128, log=True),
    target=Target(kind=TargetKind.FLAG, name="--max-num-seqs"),
)
SPACE = SearchSpace(name="seqs", parameters=(SEQS,))
WITH_FINALS = replace(SEARCH_ONLY, control_every=3, finalists=2)


class FewProposals:
    """A search that has no more to propose after the baseline and `count` configurations."""

    def __init__(self, search: Search, count: int) -> None:
        self._search = search
        self._left = count
        self.begin, self.tell, self.running = search.begin, search.tell, search.running

    def propose(self, refuses: Refuses) -> Proposal | None:
        proposal = self._search.propose(refuses)
        if proposal is None or proposal.origin is Origin.BASELINE:
            return proposal
        self._left -= 1
        return proposal if self._left >= 0 else None


def _with_proposals(loop: StudyLoop, count: int) -> StudyLoop:
    search = FewProposals(loop.search, count)
    return replace(loop, search=search, course=replace(loop.course, search=search))


@dataclass
class Minutes:
    """A runner whose launches take a minute; the more sequences may run at once, the faster the server."""

    store: EvidenceStore
    luck: Random = field(default_factory=lambda: Random(5))  # noqa: S311 - reproducible on purpose
    now_s: float = 0.0
    at: Callable[[int], None] = lambda _number: None
    breaks: Callable[[int, str], bool] = lambda _number, _words: False

    def run(self, number: int, plan: LaunchPlan, give_up: GiveUp) -> TrialResult:
        self.now_s += TRIAL_S
        words = list(plan.command)
        seqs = int(words[words.index("--max-num-seqs") + 1]) if "--max-num-seqs" in words else 0
        self.at(number)
        step_s = {Step.LAUNCH: TRIAL_S}
        if self.breaks(number, " ".join(words)):
            return TrialResult(outcome=failed(), step_s=step_s)
        reason = self.interrupt.reason
        if reason and (reason is Interruption.USER or self.now_s > self.interrupt.deadline_s):
            return TrialResult(outcome=Interrupted(reason=reason), step_s=step_s)
        points = [
            measured_point(streams, (1 + seqs) ** 0.5 * self.luck.gauss(100.0, 0.3)) for streams in (1, 2)
        ]
        for point in points:
            self.store.add_point(number, point)
        return TrialResult(outcome=Measured(points=tuple(p.point for p in points)), step_s=step_s)

    interrupt: Interrupt = field(init=False)


@pytest.fixture
def bed(tmp_path: Path, fake_vllm: tuple[str, ...]) -> Bed:
    return Bed(folder=tmp_path, command=fake_vllm, limits=WITH_FINALS, space=SPACE)


def _loop(bed: Bed, budget: float, proposals: int | None = None) -> tuple[StudyLoop, Minutes]:
    """The loop with a budget of so many trials."""
    minutes = Minutes(store=bed.store())
    minutes.interrupt = Interrupt(lambda: minutes.now_s, budget * TRIAL_S)
    loop = bed.loop(minutes.interrupt)
    loop = replace(loop, runner=minutes)  # type: ignore[arg-type]
    return (loop if proposals is None else _with_proposals(loop, proposals)), minutes


def _origins(bed: Bed) -> str:
    """A letter for each trial: b(aseline), s(ampled), r(etry), i(solation), c(ontrol), f(inal)."""
    return "".join(record.origin.value[0] for record in bed.store().records())


def _verdict(bed: Bed) -> Verdict:
    found = verdict(bed.store().records(), bed.spec.objectives)
    assert found is not None
    return found


def _finals(records: Sequence[TrialRecord]) -> dict[int, list[int]]:
    """Sequences of each launch, 0 for the baseline, by block."""
    blocks: dict[int, list[int]] = {}
    for record in records:
        if record.block is not None:
            blocks.setdefault(record.block, []).append(
                int(record.configuration.values.get("max_num_seqs", 0))
            )
    return blocks


def test_the_baseline_is_a_control_after_every_so_many_trials_and_finals_end_the_budget(bed: Bed) -> None:
    loop, minutes = _loop(bed, 27)
    assert loop.run().ending is Ending.BUDGET
    origins = _origins(bed)
    search, finals = origins[: origins.index("f")], origins[origins.index("f") :]
    assert set(finals) == {"f"}
    assert search.startswith("bssscsssc")
    assert len(search) == 18  # a third is kept
    assert minutes.now_s <= 27 * TRIAL_S
    assert any("finals: trials" in note and "3 blocks of 3 launches" in note for note in bed.watch.notes)
    assert _verdict(bed).certainty is Certainty.CONFIRMED
    assert all(0 in block and len(block) > 1 for block in _finals(bed.store().records()).values())
    trials = optuna.load_study(study_name="fake", storage=bed.url).trials
    assert [t.state for t in trials] == [TrialState.COMPLETE] * len(origins)


def test_a_budget_too_short_for_finals_is_all_searched(bed: Bed) -> None:
    loop, minutes = _loop(bed, 7)
    assert loop.run().ending is Ending.BUDGET
    assert "f" not in _origins(bed)
    assert len(_origins(bed)) == 7
    assert minutes.now_s == 7 * TRIAL_S
    assert _verdict(bed).certainty is Certainty.UNCONFIRMED


@pytest.mark.parametrize("limits", [replace(WITH_FINALS, finalists=0), replace(WITH_FINALS, control_every=0)])
def test_finals_and_controls_can_be_switched_off(bed: Bed, limits: Limits) -> None:
    bed.limits = limits
    _loop(bed, 18)[0].run()
    assert ("f" in _origins(bed)) == (limits.finalists > 0)
    assert ("c" in _origins(bed)) == (limits.control_every > 0)
    assert len(_origins(bed)) >= 14


def test_when_the_search_has_nothing_left_finals_still_come(bed: Bed) -> None:
    loop, minutes = _loop(bed, 100, proposals=2)
    assert loop.run().ending is Ending.EXHAUSTED
    assert _origins(bed).startswith("bssf")
    assert minutes.now_s < 40 * TRIAL_S
    assert _verdict(bed).certainty is Certainty.CONFIRMED


def test_the_user_ends_finals_and_a_search_without_them(bed: Bed) -> None:
    loop, minutes = _loop(bed, 100, proposals=2)
    minutes.at = lambda number: minutes.interrupt.request(Interruption.USER) if number == 2 else None
    assert loop.run().ending is Ending.USER
    assert _origins(bed) == "bss"


@pytest.mark.parametrize(("pause", "launches"), [(timedelta(0), 4), (timedelta(hours=1), 2)])
def test_finals_that_were_stopped_go_on_in_the_same_block_if_that_is_not_long_ago(
    bed: Bed, pause: timedelta, launches: int
) -> None:
    loop, minutes = _loop(bed, 100, proposals=2)
    minutes.at = lambda number: minutes.interrupt.request(Interruption.USER) if number == 7 else None
    assert loop.run().ending is Ending.USER
    (last,) = bed.store().records()[7:]
    assert (last.origin, last.outcome) == (Origin.FINAL, Interrupted(reason=Interruption.USER))
    loop, _ = _loop(bed, 100, proposals=0)
    loop = replace(loop, now=lambda: datetime.now(UTC) + pause)
    assert loop.run().ending is Ending.EXHAUSTED
    blocks = _finals(bed.store().records())
    assert sorted(blocks) == list(range(len(blocks)))
    assert len(blocks[1]) == launches  # with the one that was stopped; else cut short and never made up for
    assert len(blocks[2]) == 3
    assert "r" not in _origins(bed)
    assert _verdict(bed).certainty is Certainty.CONFIRMED


def test_a_budget_that_ends_in_a_block_ends_finals(bed: Bed) -> None:
    loop, minutes = _loop(bed, 100, proposals=2)

    def run_out(number: int) -> None:
        if number == 10:
            minutes.interrupt.deadline_s = 0.0

    minutes.at = run_out
    assert loop.run().ending is Ending.BUDGET
    assert len(_origins(bed)) == 11
    assert _verdict(bed).difference is not None


def test_what_is_settled_is_searched_on_and_not_raced_again(bed: Bed) -> None:
    """One configuration, confirmed: the next invocation has nothing to decide until it finds another."""
    loop, _ = _loop(bed, 100, proposals=1)
    loop.run()
    raced = _origins(bed).count("f")
    loop, minutes = _loop(bed, 30, proposals=0)
    assert loop.run().ending is Ending.EXHAUSTED
    assert _origins(bed).count("f") == raced
    assert minutes.now_s == 0.0


def test_a_finalist_that_fails_is_out_and_teaches_nothing(bed: Bed) -> None:
    loop, minutes = _loop(bed, 100, proposals=2)
    loop.run()
    best = str(_verdict(bed).chosen.configuration.values["max_num_seqs"])
    again = Bed(folder=bed.folder, command=bed.command, limits=WITH_FINALS, space=SPACE, name="again")
    loop, minutes = _loop(again, 100, proposals=2)
    minutes.breaks = lambda number, words: number > 4 and words.endswith(f"--max-num-seqs {best}")
    loop.run()
    found = _verdict(again)
    assert found.chosen.configuration.values.get("max_num_seqs") != int(best)
    assert again.store().lessons.all() == []
    blocks = _finals(again.store().records())
    assert sum(int(best) in launched for launched in blocks.values()) <= 2


def test_on_real_servers_a_study_killed_in_its_finals_goes_on_and_confirms_its_winner(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = {"if": {"max_num_seqs": 256}, "scenario": {"tpot_s": 0.03}}  # vLLM's default, made slow
    monkeypatch.setenv("FAKE_VLLM_RULES", json.dumps([slow]))
    bed.limits = replace(WITH_FINALS, finalists=1)
    interrupt = Interrupt(time.monotonic, time.monotonic() + 100)
    bed.watch.at_step = lambda number, step: (
        interrupt.request(Interruption.USER) if (number, step) == (3, Step.MEASURE) else None
    )
    assert _with_proposals(bed.loop(interrupt), 1).run().ending is Ending.USER
    assert _origins(bed) == "bsff"
    assert bed.processes_left() == []
    bed.watch.at_step = lambda _number, _step: None
    rest = _with_proposals(bed.loop(Interrupt(time.monotonic, time.monotonic() + 100)), 0)
    assert rest.run().ending is Ending.EXHAUSTED
    found = _verdict(bed)
    assert (found.certainty, found.keeps_baseline) == (Certainty.CONFIRMED, False)
    assert found.difference is not None
    assert found.difference.interval.low > 1.2
    assert found.difference.n_second >= 3
    assert bed.processes_left() == []
