"""The Optuna study: what is proposed and recorded, and that a study continued is one never stopped."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import optuna
import pytest
from builders import objectives, spec
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.trial import TrialState

from autotune.decide.told import Told, ToldState
from autotune.domain.expression import Expression
from autotune.domain.launch import server_args
from autotune.domain.refusal import Grounds, Refusal
from autotune.domain.space import (
    CategoricalDomain,
    Configuration,
    Constraint,
    FloatDomain,
    IntDomain,
    Parameter,
    SearchSpace,
    Target,
    TargetKind,
)
from autotune.domain.start import StartPoint
from autotune.domain.study import StudySpec
from autotune.domain.trial import Origin, Proposal
from autotune.errors import UserError
from autotune.search.candidates import PARENTS, STARTUP_SUCCESSES
from autotune.search.study import OptunaSearch


def _flag(name: str) -> Target:
    return Target(kind=TargetKind.FLAG, name=f"--{name}")


SPACE = SearchSpace(
    name="s",
    parameters=(
        Parameter(name="seqs", domain=IntDomain(low=1, high=64, log=True), target=_flag("max-num-seqs")),
        Parameter(name="util", domain=FloatDomain(low=0.5, high=0.9), target=_flag("util")),
        Parameter(
            name="spec",
            domain=CategoricalDomain(choices=("off", "ngram")),
            target=_flag("spec"),
            omit=("off",),
        ),
        Parameter(
            name="k",
            domain=IntDomain(low=1, high=8),
            target=_flag("k"),
            when=Expression.parse("spec == 'ngram'"),
        ),
        Parameter(name="eager", domain=CategoricalDomain(choices=(False, True)), target=_flag("eager")),
    ),
    constraints=(Constraint(require=Expression.parse("seqs >= k"), why="one slot a draft token"),),
)
REFUSAL = Refusal(grounds=Grounds.LESSON, why="lesson 1")
FAILED = Told(state=ToldState.PRUNED, constraints={"works": 1.0})
FAULT = Told(state=ToldState.FAIL)
SINGLE = objectives("out_tok_s@8")


def _told(configuration: Configuration, values: int = 2) -> Told:
    """A toy server: larger batches are faster, and too much memory kills it."""
    util, seqs = configuration.values.get("util", 0.6), configuration.values.get("seqs", 8)
    assert isinstance(util, float)
    assert isinstance(seqs, int)
    if util > 0.8:
        return FAILED
    rates = (seqs * util, 100.0 / seqs)[:values]
    return Told(state=ToldState.COMPLETE, values=rates, constraints={"works": -1.0})


def _proposed(search: OptunaSearch) -> Proposal:
    proposal = search.propose()
    assert proposal is not None
    return proposal


def _advance(search: OptunaSearch, trials: int) -> list[Configuration]:
    made = []
    for _ in range(trials):
        proposal = _proposed(search)
        number = search.begin(proposal.configuration, proposal.origin)
        search.tell(number, _told(proposal.configuration))
        made.append(proposal.configuration)
    return made


def _url(folder: Path, name: str = "s") -> str:
    return f"sqlite:///{folder}/{name}.db"


def test_trial_0_is_the_baseline_and_later_ones_keep_conditions_and_constraints() -> None:
    search = OptunaSearch(spec(SPACE), None)
    assert search.propose() == Proposal(configuration=Configuration(), origin=Origin.BASELINE)
    made = _advance(search, 25)
    args = [server_args(SPACE, configuration) for configuration in made]
    assert len({(a.flags, tuple(a.env.items())) for a in args}) == len(made), "a configuration came twice"
    for configuration in made[1:]:
        values = configuration.values
        assert SPACE.violated(configuration) is None
        assert ("k" in values) == (values["spec"] == "ngram")
        assert all(value in SPACE.parameter(name).domain for name, value in values.items())


@settings(max_examples=3, deadline=None)
@given(st.integers(0, 13), st.integers(0, 2**31))
def test_a_study_stopped_anywhere_goes_on_as_if_it_had_not(
    tmp_path_factory: pytest.TempPathFactory, stop_after: int, seed: int
) -> None:
    folder, study = tmp_path_factory.mktemp("resume"), spec(SPACE, seed=seed)
    straight = _advance(OptunaSearch(study, _url(folder, "straight")), 14)
    first = _advance(OptunaSearch(study, _url(folder)), stop_after)
    rest = _advance(OptunaSearch(study, _url(folder)), 14 - stop_after)
    assert [*first, *rest] == straight


def test_tpe_takes_over_after_enough_successes_and_learns() -> None:
    made = _advance(OptunaSearch(spec(SPACE), None), 40)
    sampled = [configuration.values["util"] for configuration in made[1:]]
    early, late = sampled[:STARTUP_SUCCESSES], sampled[-STARTUP_SUCCESSES:]
    crashed = [sum(isinstance(util, float) and util > 0.8 for util in part) for part in (early, late)]
    assert crashed[1] <= crashed[0]


def test_other_seeds_give_other_studies() -> None:
    one, two = (_advance(OptunaSearch(spec(SPACE, seed=seed), None), 4) for seed in (1, 2))
    assert one[1:] != two[1:]


def test_a_proposal_leaves_no_trace_until_it_is_begun(tmp_path: Path) -> None:
    search = OptunaSearch(spec(SPACE), _url(tmp_path))
    _advance(search, 2)
    assert search.propose() == search.propose()
    assert len(optuna.load_study(study_name="tiny", storage=_url(tmp_path)).trials) == 2


def test_what_optuna_itself_reads(tmp_path: Path) -> None:
    search = OptunaSearch(spec(SPACE), _url(tmp_path))
    _advance(search, 1)
    number = search.begin(Configuration(values={"seqs": 4, "spec": "off", "eager": True}), Origin.SAMPLED)
    assert search.running() == [
        (number, Configuration(values={"seqs": 4, "spec": "off", "eager": True}), Origin.SAMPLED)
    ]
    search.tell(number, FAILED)
    search.tell(number, Told(state=ToldState.FAIL))
    study = optuna.load_study(study_name="tiny", storage=_url(tmp_path))
    assert study.metric_names == ["out_tok_s@8", "out_tok_s@1"]
    assert [t.state for t in study.trials] == [TrialState.COMPLETE, TrialState.PRUNED]
    assert study.trials[1].params == {"seqs": 4, "spec": "off", "eager": True}
    assert study.trials[1].constraints == {"works": 1.0}
    assert [t.number for t in study.best_trials] == [0]
    assert search.running() == []


def test_a_space_smaller_than_the_budget_repeats_instead_of_stopping() -> None:
    parameter = Parameter(name="a", domain=CategoricalDomain(choices=(1, 2)), target=_flag("a"))
    small = SearchSpace(name="small", parameters=(parameter,))
    search = OptunaSearch(spec(small), None)
    for _ in range(5):
        proposal = _proposed(search)
        search.tell(search.begin(proposal.configuration, proposal.origin), FAILED)
    assert [c.values["a"] for _, c, _ in search.running()] == []
    assert _proposed(search).configuration.values["a"] in (1, 2)


def test_a_space_without_any_allowed_configuration_is_said_to_be_one() -> None:
    never = Constraint(require=Expression.parse("seqs > 64"), why="")
    space = SearchSpace(name="never", parameters=SPACE.parameters[:1], constraints=(never,))
    search = OptunaSearch(spec(space), None)
    _advance(search, 1)
    with pytest.raises(UserError, match="never"):
        search.propose()


def test_what_a_lesson_forbids_is_never_proposed_and_counted(tmp_path: Path) -> None:
    search = OptunaSearch(spec(SPACE), _url(tmp_path))
    _advance(search, 3)
    seen: list[Configuration] = []

    def refuses(configuration: Configuration) -> Refusal | None:
        seen.append(configuration)
        bad = configuration.values["spec"] == "ngram" or configuration.values["eager"] is True
        return REFUSAL if bad else None

    proposals = [search.propose(refuses) for _ in range(2)]
    assert proposals[0] == proposals[1], "the same history and lessons, the same proposal"
    assert proposals[0] is not None
    assert proposals[0].configuration.values["spec"] == "off"
    assert proposals[0].configuration.values["eager"] is False
    assert len(proposals[0].refused) == len(seen) // 2 - 1
    assert len(optuna.load_study(study_name="tiny", storage=_url(tmp_path)).trials) == 3


def test_when_lessons_forbid_everything_nothing_is_proposed_not_even_the_baseline() -> None:
    search = OptunaSearch(spec(SPACE), None)
    assert search.propose(lambda _: REFUSAL) is None
    first = search.propose(lambda configuration: None if configuration.values else REFUSAL)
    assert first is not None
    assert first.origin is Origin.SAMPLED


def test_a_repeat_is_of_something_that_worked() -> None:
    parameter = Parameter(name="a", domain=CategoricalDomain(choices=(1, 2, 3)), target=_flag("a"))
    search = OptunaSearch(spec(SearchSpace(name="small", parameters=(parameter,))), None)
    for _ in range(4):
        proposal = _proposed(search)
        worked = proposal.configuration.values.get("a") == 2
        told = Told(state=ToldState.COMPLETE, values=(1.0, 1.0)) if worked else FAILED
        search.tell(search.begin(proposal.configuration, proposal.origin), told)
    assert _proposed(search).configuration.values == {"a": 2}
    repeat = search.propose(lambda configuration: REFUSAL if configuration.values.get("a") == 2 else None)
    assert repeat is not None
    assert repeat.configuration.values["a"] in (1, 3)


def test_repeats_probes_and_what_was_broken_off_leave_the_search_as_it_was() -> None:
    best = Told(state=ToldState.COMPLETE, values=(1e6, 1e6), constraints={"works": -1.0})
    straight, search = OptunaSearch(spec(SPACE), None), OptunaSearch(spec(SPACE), None)
    made = _advance(straight, 18)
    assert _advance(search, 18) == made
    for configuration, origin, told in (
        (Configuration(), Origin.CONTROL, best),
        (made[12], Origin.FINAL, best),
        (made[12], Origin.ABLATION, best),
        (made[3], Origin.ISOLATION, FAILED),
        (made[4], Origin.SAMPLED, FAULT),
    ):
        search.tell(search.begin(configuration, origin), told)
    assert search.propose() == straight.propose()
    assert _advance(search, 4) == _advance(straight, 4)


# --- Start points


def _start(origin: Origin = Origin.EXPERT, **values: bool | float | str) -> StartPoint:
    return StartPoint(configuration=Configuration(values=values), origin=origin, why="known to be good")


FULL = {"util": 0.6, "spec": "off", "eager": False}
STARTS = (_start(**FULL, seqs=32), _start(**FULL, seqs=4), _start(Origin.FLIP, **FULL, seqs=2))


def _next(search: OptunaSearch, proposal: Proposal | None, told: Told) -> None:
    assert proposal is not None
    search.tell(search.begin(proposal.configuration, proposal.origin), told)


def test_start_points_follow_the_baseline_in_their_order() -> None:
    search = OptunaSearch(spec(SPACE, starts=STARTS), None)
    origins = []
    for _ in range(5):
        proposal = _proposed(search)
        origins.append(proposal.origin)
        _next(search, proposal, _told(proposal.configuration))
    assert origins == [Origin.BASELINE, Origin.EXPERT, Origin.EXPERT, Origin.FLIP, Origin.SAMPLED]


def test_a_start_point_that_was_launched_for_another_reason_is_not_launched_again() -> None:
    search = OptunaSearch(spec(SPACE, starts=STARTS), None)
    _advance(search, 1)
    search.tell(search.begin(STARTS[0].configuration, Origin.ISOLATION), FAILED)
    assert _proposed(search).configuration == STARTS[1].configuration


def test_a_refused_start_point_is_counted_once_and_launched_when_nothing_refuses_it_any_more() -> None:
    search = OptunaSearch(spec(SPACE, starts=STARTS), None)
    _advance(search, 1)
    refused = STARTS[0].configuration
    refusals = []
    for _ in range(2):
        proposal = search.propose(lambda c: REFUSAL if c == refused else None)
        assert proposal is not None
        refusals.append(len(proposal.refused))
        _next(search, proposal, _told(proposal.configuration))
    assert refusals == [1, 0]
    assert _proposed(search).configuration == refused


# --- Neighbours of the best


def _searched(study: StudySpec, trials: int) -> list[tuple[Proposal, Told]]:
    """The trials of a study in memory after its baseline."""
    search, made = OptunaSearch(study, None), []
    for _ in range(trials + 1):
        proposal = _proposed(search)
        told = _told(proposal.configuration, len(study.objectives))
        _next(search, proposal, told)
        made.append((proposal, told))
    return made[1:]


def _changes(configuration: Configuration, other: Configuration) -> int:
    """Parameters that both have, and have otherwise."""
    shared = configuration.values.keys() & other.values.keys()
    return sum(configuration.values[name] != other.values[name] for name in shared)


def test_some_proposals_are_neighbours_of_one_of_the_best_but_none_with_two_objectives() -> None:
    made = _searched(spec(SPACE, objectives=SINGLE), 60)
    local = [number for number, (proposal, _) in enumerate(made) if proposal.origin is Origin.LOCAL]
    assert 5 <= len(local) <= 30
    for number in local:
        earlier = [(told.values, p.configuration) for p, told in made[:number] if told.values]
        best = sorted(earlier, key=lambda pair: -pair[0][0])[:PARENTS]
        # Until there are enough others, the baseline is one of them: that leaves all else to vLLM.
        assert any(_changes(made[number][0].configuration, parent) <= 2 for _, parent in best) or not best
    assert not [proposal for proposal, _ in _searched(spec(SPACE), 40) if proposal.origin is Origin.LOCAL]


def test_what_breaks_a_limit_has_no_neighbours() -> None:
    search = OptunaSearch(spec(SPACE, objectives=SINGLE), None)
    slow = Configuration(values={**FULL, "seqs": 64})
    kept = Configuration(values={**FULL, "seqs": 2, "util": 0.5})
    search.tell(search.begin(Configuration(), Origin.BASELINE), FAILED)
    limit = {"works": -1.0, "limit:ttft_p95@8<=2s": 0.5}
    search.tell(
        search.begin(slow, Origin.SAMPLED), Told(state=ToldState.COMPLETE, values=(9.0,), constraints=limit)
    )
    search.tell(search.begin(kept, Origin.SAMPLED), Told(state=ToldState.COMPLETE, values=(1.0,)))
    local = []
    for _ in range(40):
        proposal = _proposed(search)
        if proposal.origin is Origin.LOCAL:
            local.append(proposal.configuration)
        search.tell(search.begin(proposal.configuration, proposal.origin), FAILED)
    assert local
    assert all(_changes(configuration, kept) <= 2 for configuration in local)


# --- The same seed and history, the same proposal

_Past = Sequence[tuple[Configuration, Origin, Told]]

_ORIGINS = st.sampled_from([Origin.RETRY, Origin.ISOLATION, Origin.CONTROL, Origin.FINAL, Origin.ABLATION])
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["propose", "propose", "propose", "again"]),
        st.sampled_from(["as it is", "as it is", "as it is", "failed", "fault"]),
        _ORIGINS,
    ),
    max_size=30,
)


def _told_so(search: OptunaSearch, past: _Past) -> OptunaSearch:
    for configuration, origin, told in past:
        search.tell(search.begin(configuration, origin), told)
    return search


@settings(max_examples=25, deadline=None)
@given(_STEPS, st.integers(0, 2**31), st.booleans(), st.booleans())
def test_the_same_history_gives_the_same_proposal_whoever_made_it(
    steps: Sequence[tuple[str, str, Origin]], seed: int, with_starts: bool, single: bool
) -> None:
    """What a search has gone through by itself, proposal by proposal, leaves nothing but its trials."""
    starts = STARTS if with_starts else ()
    study = spec(SPACE, seed=seed, starts=starts, objectives=SINGLE if single else objectives())
    search = OptunaSearch(study, None)
    past: list[tuple[Configuration, Origin, Told]] = []
    for what, outcome, origin in steps:
        proposal = _proposed(search)
        configuration, why = proposal.configuration, proposal.origin
        if what == "again" and past:
            configuration, why = past[len(past) // 2][0], origin
        told = {"failed": FAILED, "fault": FAULT}.get(outcome, _told(configuration, 1 if single else 2))
        past.append((configuration, why, told))
        _told_so(search, past[-1:])
    assert _told_so(OptunaSearch(study, None), past).propose() == search.propose()


def test_it_does_not_depend_on_the_process(tmp_path: Path) -> None:
    """Python's hashes of text, and so the order of sets, differ from process to process."""
    program = (
        "import sys; sys.path[:0] = sys.argv[2:4]; import test_optuna_search as t\n"
        "study = t.spec(t.SPACE, objectives=t.SINGLE, starts=t.STARTS)\n"
        "search = t.OptunaSearch(study, sys.argv[1])\n"
        "for _ in range(10):\n"
        "    proposal = search.propose()\n"
        "    t._next(search, proposal, t._told(proposal.configuration, 1))\n"
    )
    folders = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]
    for seed in (1, 2):
        env = {**os.environ, "PYTHONHASHSEED": str(seed)}
        subprocess.run([sys.executable, "-c", program, _url(tmp_path), *folders], env=env, check=True)
    kept = optuna.load_study(study_name="tiny", storage=_url(tmp_path)).trials
    straight = _searched(spec(SPACE, objectives=SINGLE, starts=STARTS), 19)
    assert [trial.params for trial in kept[1:]] == [p.configuration.values for p, _ in straight]


def test_in_memory_it_is_the_same_as_in_a_file(tmp_path: Path) -> None:
    assert _advance(OptunaSearch(spec(SPACE), None), 16) == _advance(
        OptunaSearch(spec(SPACE), _url(tmp_path)), 16
    )


# --- TPE


def test_a_trial_that_sets_a_single_parameter_does_not_part_the_others() -> None:
    """`a` and `b` are good together or not at all, which no model of each alone can know."""
    pair = SearchSpace(
        name="pair",
        parameters=tuple(
            Parameter(name=name, domain=FloatDomain(low=0.0, high=1.0), target=_flag(name)) for name in "ab"
        ),
    )
    search = OptunaSearch(spec(pair), None)
    for i in range(30):
        side = i % 2
        near = 0.1 + 0.8 * side + 0.002 * i
        for a, b in ((near, near), (near, 1 - near)):
            value = 1.0 if abs(a - b) < 0.2 else 0.0
            told = Told(state=ToldState.COMPLETE, values=(value, value))
            search.tell(search.begin(Configuration(values={"a": a, "b": b}), Origin.SAMPLED), told)
        search.tell(search.begin(Configuration(values={"a": near}), Origin.FLIP), FAILED)
    apart = []
    for _ in range(10):
        values = _proposed(search).configuration.values
        assert isinstance(values["a"], float)
        assert isinstance(values["b"], float)
        apart.append(abs(values["a"] - values["b"]))
        search.tell(search.begin(Configuration(values=values), Origin.SAMPLED), FAULT)
    assert sum(distance < 0.4 for distance in apart) >= 9
