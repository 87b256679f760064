"""Ablations on machines whose truth is known: what matters is kept, what does not is dropped together."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest
from builders import failed, measured, objectives, record
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from autotune.decide.ablation.examine import Examiner, ablation_of
from autotune.decide.ablation.findings import Ablation, Need, Standing
from autotune.decide.ablation.plan import MOST, AblationBlock, Planner
from autotune.decide.ablation.variants import variants, without
from autotune.decide.blocks import LOOKS
from autotune.decide.ranking import candidates, front
from autotune.decide.verdict import verdict
from autotune.domain.effective import Difference, DifferenceKind, Effective
from autotune.domain.expression import Expression
from autotune.domain.failure import Blame
from autotune.domain.metric_limit import MetricLimit
from autotune.domain.refusal import Grounds, Refusal
from autotune.domain.space import (
    CategoricalDomain,
    Configuration,
    Constraint,
    IntDomain,
    Parameter,
    SearchSpace,
    Target,
    TargetKind,
    Value,
)
from autotune.domain.trial import Origin, Outcome, TrialRecord

TRIAL_S = 60.0
OBJECTIVES = objectives("out_tok_s@8", "out_tok_s@1")


def _parameter(name: str, when: str | None = None, **changes: object) -> Parameter:
    made = Parameter(
        name=name,
        domain=IntDomain(low=0, high=9),
        target=Target(kind=TargetKind.FLAG, name=f"--{name.replace('_', '-')}"),
        when=Expression.parse(when) if when else None,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


SPEC = _parameter("spec", domain=CategoricalDomain(choices=("off", "ngram")), omit=("off",))
SPACE = SearchSpace(
    name="made",
    parameters=(
        *(_parameter(name) for name in "abcdefgh"),
        SPEC,
        _parameter("tokens", 'spec == "ngram"'),
        _parameter("lookup", 'spec == "ngram" and tokens > 1'),
    ),
)


def _winner(**values: Value) -> Configuration:
    return Configuration(values=values)


@dataclass
class Lab:
    """A machine on which a configuration is faster by `log_worth` of what it sets, as a logarithm."""

    winner: Configuration
    log_worth: Callable[[Mapping[str, Value]], float]
    sd: float = 0.005
    seed: int = 0
    space: SearchSpace = SPACE
    limits: tuple[MetricLimit, ...] = ()
    breaks: Callable[[Mapping[str, Value]], Outcome | None] = lambda _: None
    importance: Mapping[str, float] = field(default_factory=dict)
    records: list[TrialRecord] = field(default_factory=list)
    blocks: list[AblationBlock] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)  # noqa: S311 - reproducible on purpose
        self.launch(Configuration(), Origin.BASELINE)
        self.launch(self.winner, Origin.SAMPLED)

    def launch(self, configuration: Configuration, origin: Origin, block: int | None = None) -> None:
        rate = 100 * math.exp(self.log_worth(configuration.values) + self.random.gauss(0, self.sd))
        outcome = self.breaks(configuration.values) or measured(s1=rate / 5, s8=rate)
        made = record(len(self.records), outcome, took_s=TRIAL_S)
        self.records.append(replace(made, configuration=configuration, origin=origin, block=block))

    @property
    def first(self) -> TrialRecord:
        return next(r for r in self.records if r.configuration == self.winner)

    def examine(self) -> Ablation:
        examiner = Examiner(space=self.space, objectives=OBJECTIVES, limits=self.limits)
        return examiner.examine(self.records, self.first, variants(self.space, self.winner))

    def next_block(self, launches: float) -> AblationBlock | None:
        planner = Planner(seed=3, importance=self.importance)
        return planner.next_block(self.examine(), self.records, launches * TRIAL_S)

    def hold(self, launches: int = 1000) -> Ablation:
        """An invocation with time for so many launches."""
        end = len(self.records) + launches
        while block := self.next_block(end - len(self.records)):
            self.blocks.append(block)
            for configuration in block.order:
                if len(self.records) < end:
                    self.launch(configuration, Origin.ABLATION, block.number)
        return self.examine()


def _needs(ablation: Ablation) -> dict[str, Need]:
    return {worth.variant.setting: worth.need for worth in ablation.worths}


# --- variants


_VALUES = st.fixed_dictionaries(
    {},
    optional={
        **{name: st.integers(0, 9) for name in "abcdefgh"},
        "spec": st.sampled_from(["off", "ngram"]),
        "tokens": st.integers(0, 9),
        "lookup": st.integers(0, 9),
    },
)


@given(_VALUES, st.sets(st.sampled_from([p.name for p in SPACE.parameters])))
def test_what_is_left_is_the_winner_without_the_names_and_all_of_it_takes_part(
    values: dict[str, Value], names: set[str]
) -> None:
    left = without(SPACE, Configuration(values=values), names).values
    assert left.items() <= values.items()
    assert not names & left.keys()
    for parameter in SPACE.parameters:
        if parameter.name in left:
            before = {p.name: left[p.name] for p in SPACE.parameters if p.name in left}
            assert SPACE.is_active(parameter, before)
    again = without(SPACE, Configuration(values=left), names)
    assert again.values == left


@given(_VALUES, *[st.sets(st.sampled_from([p.name for p in SPACE.parameters]))] * 2)
def test_settings_can_be_put_back_one_after_the_other(
    values: dict[str, Value], first: set[str], second: set[str]
) -> None:
    winner = Configuration(values=values)
    assert without(SPACE, without(SPACE, winner, first), second) == without(SPACE, winner, first | second)


@given(_VALUES, st.sampled_from(["a < b", "a < 3 or b > 2", "not (a > b)", 'spec == "off" or tokens < c']))
def test_no_variant_breaks_a_constraint_that_the_winner_keeps(values: dict[str, Value], source: str) -> None:
    constraint = Constraint(require=Expression.parse(source), why="")
    space = replace(SPACE, constraints=(constraint,))
    winner = without(space, Configuration(values=values), ())
    assume(space.violated(winner) is None)
    assert all(space.violated(variant.configuration) is None for variant in variants(space, winner))


@given(_VALUES)
def test_each_variant_is_another_server_than_the_winner_and_than_each_other_that_is_launched(
    values: dict[str, Value],
) -> None:
    winner = without(SPACE, Configuration(values=values), ())
    found = variants(SPACE, winner)
    launched = [v.configuration.digest for v in found if v.left_out is None]
    assert len({*launched, winner.digest}) == len(launched) + 1
    for variant in found:
        gone = {variant.setting, *variant.along}
        assert winner.values.keys() - variant.configuration.values.keys() == gone


def test_what_takes_part_through_a_setting_alone_goes_with_it_and_what_says_nothing_is_no_setting() -> None:
    found = variants(SPACE, _winner(a=1, spec="ngram", tokens=4, lookup=2))
    assert {v.setting: v.along for v in found} == {
        "a": (),
        "spec": ("tokens", "lookup"),
        "tokens": ("lookup",),
        "lookup": (),
    }
    assert [v.setting for v in variants(SPACE, _winner(a=1, spec="off"))] == ["a"]


def test_a_variant_that_cannot_work_is_left_out_and_says_why() -> None:
    refusal = Refusal(grounds=Grounds.LESSON, why="lesson 3: c is needed")
    found = variants(SPACE, _winner(a=1, c=2), lambda c: None if "c" in c.values else refusal)
    assert {v.setting: v.left_out for v in found} == {
        "a": None,
        "c": "the rest would fail without it: lesson 3: c is needed",
    }


def test_two_settings_that_vllm_hears_of_together_are_put_back_once() -> None:
    gate = _parameter("gate", omit=(1,))
    space = SearchSpace(name="s", parameters=(gate, _parameter("inner", "gate == 1")))
    found = variants(space, _winner(gate=1, inner=4))
    assert [(v.setting, v.along) for v in found if v.left_out is None] == [("gate", ("inner",))]
    assert found[1].left_out == "without it vLLM is started as it is without gate"


# --- what is found


def _worth(**logs: float) -> Callable[[Mapping[str, Value]], float]:
    return lambda values: sum(log for name, log in logs.items() if name in values)


def test_what_matters_is_kept_and_the_rest_is_dropped_in_few_launches() -> None:
    lab = Lab(_winner(a=1, b=2, c=3, d=4), _worth(a=0.2, b=0.0, c=-0.15, d=0.0))
    found = lab.hold()
    assert _needs(found) == {
        "a": Need.NEEDED,
        "b": Need.NO_DIFFERENCE,
        "c": Need.HARMFUL,
        "d": Need.NO_DIFFERENCE,
    }
    worth = found.worth("a")
    assert worth is not None
    assert worth.overall is not None
    assert worth.overall.interval.low < math.exp(0.2) < worth.overall.interval.high
    assert set(worth.differences) == {"out_tok_s@8", "out_tok_s@1"}
    reduced = found.reduced
    assert reduced is not None
    assert reduced.configuration == _winner(a=1)
    assert reduced.record is not None
    assert reduced.record.configuration == reduced.configuration
    # Three blocks of five, and three of the winner with what is left of it.
    assert len(lab.records) - 2 == LOOKS[0] * (5 + 2)


def test_two_settings_of_which_either_is_enough_are_not_dropped_together() -> None:
    lab = Lab(
        _winner(a=1, b=2, c=3),
        lambda values: 0.2 if {"a", "b"} & values.keys() else 0.0,
        importance={"c": 0.9},
    )
    found = lab.hold()
    assert set(_needs(found).values()) == {Need.NO_DIFFERENCE}
    assert found.tried[0].standing is Standing.WORSE
    reduced = found.reduced
    assert reduced is None or {"a", "b"} & reduced.configuration.values.keys()
    assert all(tried.standing is Standing.WORSE for tried in found.tried[:-1])


def test_many_settings_too_small_to_see_alone_are_not_all_dropped_together() -> None:
    names = "abcdefgh"
    for seed in range(3):
        winner = _winner(**dict.fromkeys(names, 1))
        found = Lab(winner, _worth(**dict.fromkeys(names, 0.02)), sd=0.02, seed=seed).hold()
        assert found.reduced is None or len(found.reduced.dropped) <= len(names) // 2


@pytest.mark.parametrize("drift", [0.03, -0.03])
def test_a_machine_that_changes_all_the_time_makes_no_setting_useful(drift: float) -> None:
    lab = Lab(_winner(a=1, b=2), _worth())
    lab.log_worth = lambda _: drift * len(lab.records)
    found = lab.hold()
    assert _needs(found) == {"a": Need.NO_DIFFERENCE, "b": Need.NO_DIFFERENCE}


def test_useless_settings_are_hardly_ever_called_needed_or_harmful() -> None:
    wrong = 0
    for seed in range(60):
        found = Lab(_winner(a=1, b=2, c=3), _worth(), sd=0.02, seed=seed).hold()
        wrong += any(need in (Need.NEEDED, Need.HARMFUL) for need in _needs(found).values())
    assert wrong <= 6  # each objective may be wrong in 1 of 20, and there are two


def test_a_reduction_that_loses_more_than_nothing_is_not_taken() -> None:
    taken = 0
    for seed in range(40):
        lab = Lab(_winner(a=1, b=2), _worth(a=0.06, b=0.06), sd=0.02, seed=seed)
        found = lab.hold()
        taken += found.reduced is not None and not found.reduced.configuration.values
    assert taken == 0


def test_what_the_server_does_not_work_without_is_needed_and_is_launched_once() -> None:
    lab = Lab(
        _winner(a=1, b=2), _worth(), breaks=lambda values: None if "a" in values or not values else failed()
    )
    found = lab.hold()
    worth = found.worth("a")
    assert worth is not None
    assert (worth.need, worth.launches) == (Need.NEEDED, 1)
    assert worth.why is not None
    assert worth.why.startswith("without it the server does not work: kv_cache_too_small, trial ")
    assert found.reduced is not None
    assert found.reduced.configuration == _winner(a=1)


def test_what_failed_in_the_search_is_not_launched_at_all() -> None:
    lab = Lab(_winner(a=1, b=2), _worth())
    lab.records.append(replace(record(2, failed(), {"b": 2}), configuration=_winner(b=2)))
    found = lab.hold()
    assert found.worth("a") is not None
    assert [w.launches for w in found.worths] == [0, LOOKS[0]]
    assert _needs(found)["a"] is Need.NEEDED


def test_faults_of_the_machine_say_nothing_and_the_block_is_made_good() -> None:
    lab = Lab(_winner(a=1), _worth(a=0.3))
    faults = [failed(Blame.ENVIRONMENT), None]
    lab.breaks = lambda values: faults.pop(0) if faults and "a" not in values else None
    found = lab.hold()
    assert _needs(found) == {"a": Need.NEEDED}
    assert len(lab.blocks) == LOOKS[0] + 1


def test_a_winner_that_fails_ends_it() -> None:
    lab = Lab(_winner(a=1, b=1), _worth())
    lab.breaks = lambda values: failed() if len(values) == 2 else None
    lab.hold()
    assert len(lab.blocks) == 1


def test_what_vllm_says_has_no_effect_is_dropped_without_a_launch_of_its_own() -> None:
    lab = Lab(_winner(a=1, b=2), _worth(a=0.3))
    nothing = Difference(
        setting="b",
        requested=2,
        effective=None,
        kind=DifferenceKind.NO_EFFECT,
        sentence="b is ignored on CPUs",
    )
    lab.records[1] = replace(lab.records[1], effective=Effective(differences=(nothing,)))
    found = lab.hold()
    worth = found.worth("b")
    assert worth is not None
    assert (worth.need, worth.why) == (Need.NO_DIFFERENCE, "b is ignored on CPUs")
    assert found.reduced is not None
    assert found.reduced.configuration == _winner(a=1)
    assert {"a": 1} in [dict(c.values) for c in lab.blocks[-1].order]
    assert all(block.settings == ("a",) for block in lab.blocks if block.reduction is None)


def test_a_reduction_that_breaks_a_limit_is_not_taken() -> None:
    lab = Lab(_winner(a=1, b=2), _worth(a=0.3), limits=(MetricLimit.parse("out_tok_s@8>=200"),))
    assert lab.hold().reduced is None
    lab = Lab(_winner(a=1, b=2), _worth(a=0.3), limits=(MetricLimit.parse("out_tok_s@8>=100"),))
    assert lab.hold().reduced is not None


def test_finals_that_had_the_winner_and_the_defaults_tell_the_worth_of_its_one_setting() -> None:
    lab = Lab(_winner(a=1), _worth(a=0.3))
    for block in range(3):
        lab.launch(Configuration(), Origin.FINAL, block)
        lab.launch(lab.winner, Origin.FINAL, block)
    assert _needs(lab.examine()) == {"a": Need.NEEDED}
    assert lab.next_block(1000) is None
    assert ablation_of(SPACE, OBJECTIVES, (), lab.records, lab.first) is None


# --- the order of things


def test_without_time_for_three_blocks_nothing_is_launched() -> None:
    lab = Lab(_winner(a=1, b=1), _worth())
    assert lab.next_block(2 * LOOKS[0] - 0.1) is None
    block = lab.next_block(2 * LOOKS[0])
    assert block is not None
    assert (len(block.order), block.left) == (2, LOOKS[0])


def test_time_is_left_for_what_can_be_dropped_together() -> None:
    lab = Lab(_winner(a=1, b=1, c=1), _worth(a=0.3), importance={"b": 0.9, "c": 0.8})
    found = lab.hold(launches=LOOKS[0] * (3 + 2))
    assert _needs(found) == {"a": Need.NOT_MEASURED, "b": Need.NO_DIFFERENCE, "c": Need.NO_DIFFERENCE}
    assert found.reduced is not None
    assert found.reduced.dropped == ("b", "c")
    assert _needs(lab.hold()) == {"a": Need.NEEDED, "b": Need.NO_DIFFERENCE, "c": Need.NO_DIFFERENCE}


def test_the_most_important_go_first_and_no_block_is_too_large() -> None:
    names = "abcdefgh"
    lab = Lab(_winner(**dict.fromkeys(names, 1)), _worth(**dict.fromkeys(names, 0.2)), importance={"g": 0.5})
    block = lab.next_block(1000)
    assert block is not None
    assert block.settings[0] == "g"
    assert len(block.settings) == MOST
    assert set(_needs(lab.hold()).values()) == {Need.NEEDED}


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 12), max_size=3))
def test_however_often_it_is_broken_off_it_comes_to_the_same(launches: list[int]) -> None:
    lab = Lab(_winner(a=1, b=1, c=1), _worth(a=0.2), sd=0.001)  # so that no chance difference matters
    for count in launches:
        planned = lab.next_block(1000)
        for configuration in planned.order[:count] if planned else ():
            lab.launch(configuration, Origin.ABLATION, planned.number if planned else None)
    found = lab.hold()
    assert _needs(found) == {"a": Need.NEEDED, "b": Need.NO_DIFFERENCE, "c": Need.NO_DIFFERENCE}
    assert found.reduced is not None
    assert found.reduced.configuration == _winner(a=1)
    assert {b.number for b in lab.blocks}.isdisjoint(range(len([n for n in launches if n])))


def test_a_block_is_never_compared_with_another() -> None:
    """The second is twice as fast, and each is broken off before it has both."""
    lab = Lab(_winner(a=1), _worth())
    lab.launch(lab.winner, Origin.ABLATION, 0)
    lab.log_worth = lambda _: math.log(2)
    lab.launch(Configuration(), Origin.ABLATION, 1)
    assert lab.examine().worths[0].blocks == 0


# --- what else an ablation must not change


def test_an_ablation_changes_neither_front_nor_winner() -> None:
    lab = Lab(_winner(a=1, b=1), _worth(a=0.3, b=-0.2))
    before = [c.record.number for c in candidates(lab.records, OBJECTIVES)]
    chosen = verdict(lab.records, OBJECTIVES)
    found = lab.hold()
    assert found.reduced is not None
    assert [c.record.number for c in candidates(lab.records, OBJECTIVES)] == before
    after = verdict(lab.records, OBJECTIVES)
    assert chosen is not None
    assert after is not None
    assert after.chosen == chosen.chosen
    assert after.difference is None
    assert [r.origin for r in front(lab.records, OBJECTIVES)] != [Origin.ABLATION]


def _digests(blocks: Sequence[AblationBlock]) -> list[list[str]]:
    return [[c.digest for c in block.order] for block in blocks]


def test_each_second_block_is_launched_the_other_way_round() -> None:
    lab = Lab(_winner(a=1, b=1, c=1), _worth(a=0.2))
    lab.hold()
    orders = _digests(lab.blocks)
    assert orders[1] == orders[0][::-1]
