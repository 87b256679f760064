"""The Optuna study: what is proposed and recorded, and that a study continued is one never stopped."""

from pathlib import Path

import optuna
import pytest
from builders import spec
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
from autotune.domain.trial import Origin, Proposal
from autotune.errors import UserError
from autotune.search.study import STARTUP_SUCCESSES, OptunaSearch


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


def _told(configuration: Configuration) -> Told:
    """A toy server: larger batches are faster, and too much memory kills it."""
    util, seqs = configuration.values.get("util", 0.6), configuration.values.get("seqs", 8)
    assert isinstance(util, float)
    assert isinstance(seqs, int)
    if util > 0.8:
        return FAILED
    return Told(state=ToldState.COMPLETE, values=(seqs * util, 100.0 / seqs), constraints={"works": -1.0})


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


def test_trial_0_is_the_baseline_and_later_ones_keep_conditions_and_constraints(tmp_path: Path) -> None:
    search = OptunaSearch(spec(SPACE), _url(tmp_path))
    assert search.propose() == Proposal(configuration=Configuration(), origin=Origin.BASELINE)
    made = _advance(search, 25)
    args = [server_args(SPACE, configuration) for configuration in made]
    assert len({(a.flags, tuple(a.env.items())) for a in args}) == len(made), "a configuration came twice"
    for configuration in made[1:]:
        values = configuration.values
        assert SPACE.violated(configuration) is None
        assert ("k" in values) == (values["spec"] == "ngram")
        assert all(value in SPACE.parameter(name).domain for name, value in values.items())


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 13), st.integers(0, 2**31))
def test_a_study_stopped_anywhere_goes_on_as_if_it_had_not(
    tmp_path_factory: pytest.TempPathFactory, stop_after: int, seed: int
) -> None:
    folder, study = tmp_path_factory.mktemp("resume"), spec(SPACE, seed=seed)
    straight = _advance(OptunaSearch(study, _url(folder, "straight")), 14)
    first = _advance(OptunaSearch(study, _url(folder)), stop_after)
    rest = _advance(OptunaSearch(study, _url(folder)), 14 - stop_after)
    assert [*first, *rest] == straight


def test_tpe_takes_over_after_enough_successes_and_learns(tmp_path: Path) -> None:
    made = _advance(OptunaSearch(spec(SPACE), _url(tmp_path)), 40)
    sampled = [configuration.values["util"] for configuration in made[1:]]
    early, late = sampled[:STARTUP_SUCCESSES], sampled[-STARTUP_SUCCESSES:]
    crashed = [sum(isinstance(util, float) and util > 0.8 for util in part) for part in (early, late)]
    assert crashed[1] <= crashed[0]


def test_other_seeds_give_other_studies(tmp_path: Path) -> None:
    one, two = (_advance(OptunaSearch(spec(SPACE, seed=s), _url(tmp_path, str(s))), 4) for s in (1, 2))
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


def test_a_space_smaller_than_the_budget_repeats_instead_of_stopping(tmp_path: Path) -> None:
    parameter = Parameter(name="a", domain=CategoricalDomain(choices=(1, 2)), target=_flag("a"))
    small = SearchSpace(name="small", parameters=(parameter,))
    search = OptunaSearch(spec(small), _url(tmp_path))
    for _ in range(5):
        proposal = _proposed(search)
        search.tell(search.begin(proposal.configuration, proposal.origin), FAILED)
    assert [c.values["a"] for _, c, _ in search.running()] == []
    assert _proposed(search).configuration.values["a"] in (1, 2)


def test_a_space_without_any_allowed_configuration_is_said_to_be_one(tmp_path: Path) -> None:
    never = Constraint(require=Expression.parse("seqs > 64"), why="")
    space = SearchSpace(name="never", parameters=SPACE.parameters[:1], constraints=(never,))
    search = OptunaSearch(spec(space), _url(tmp_path))
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


def test_when_lessons_forbid_everything_nothing_is_proposed_not_even_the_baseline(tmp_path: Path) -> None:
    search = OptunaSearch(spec(SPACE), _url(tmp_path))
    assert search.propose(lambda _: REFUSAL) is None
    first = search.propose(lambda configuration: None if configuration.values else REFUSAL)
    assert first is not None
    assert first.origin is Origin.SAMPLED


def test_a_repeat_is_of_something_that_worked(tmp_path: Path) -> None:
    parameter = Parameter(name="a", domain=CategoricalDomain(choices=(1, 2, 3)), target=_flag("a"))
    search = OptunaSearch(spec(SearchSpace(name="small", parameters=(parameter,))), _url(tmp_path))
    for _ in range(4):
        proposal = _proposed(search)
        worked = proposal.configuration.values.get("a") == 2
        told = Told(state=ToldState.COMPLETE, values=(1.0, 1.0)) if worked else FAILED
        search.tell(search.begin(proposal.configuration, proposal.origin), told)
    assert _proposed(search).configuration.values == {"a": 2}
    repeat = search.propose(lambda configuration: REFUSAL if configuration.values.get("a") == 2 else None)
    assert repeat is not None
    assert repeat.configuration.values["a"] in (1, 3)


def test_controls_and_finals_leave_the_sampler_as_it_was(tmp_path: Path) -> None:
    """As many trials that failed for no fault of their own, which samplers never look at, change as much."""
    best = Told(state=ToldState.COMPLETE, values=(1e6, 1e6), constraints={"works": -1.0})
    proposals = []
    for name, origins, told in (
        ("repeats", (Origin.CONTROL, Origin.FINAL), best),
        ("nothing", (Origin.SAMPLED, Origin.SAMPLED), Told(state=ToldState.FAIL)),
    ):
        search = OptunaSearch(spec(SPACE), _url(tmp_path, name))
        made = _advance(search, 18)
        for _ in range(4):
            for configuration, origin in zip((Configuration(), made[12]), origins, strict=True):
                search.tell(search.begin(configuration, origin), told)
        proposals.append([search.propose(), *_advance(search, 3)])
    assert proposals[0] == proposals[1]
