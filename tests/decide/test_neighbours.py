"""Neighbours of a configuration: in the space, close, different, and the same for the same draw."""

import math
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.decide.space.neighbours import neighbour
from autotune.decide.space.sampling import sample
from autotune.domain.expression import Expression
from autotune.domain.space import (
    CategoricalDomain,
    Configuration,
    Constraint,
    Domain,
    FloatDomain,
    IntDomain,
    Parameter,
    SearchSpace,
    Target,
    TargetKind,
)


def _parameter(name: str, domain: Domain, when: str | None = None) -> Parameter:
    target = Target(kind=TargetKind.FLAG, name="--" + name)
    return Parameter(name=name, domain=domain, target=target, when=Expression.parse(when) if when else None)


SPACE = SearchSpace(
    name="all-kinds",
    parameters=(
        _parameter("seqs", IntDomain(low=1, high=1024, log=True)),
        _parameter("tokens", IntDomain(low=512, high=8192, step=256)),
        _parameter("share", FloatDomain(low=0.8, high=0.96, step=0.01)),
        _parameter("rate", FloatDomain(low=0.001, high=10.0, log=True)),
        _parameter("level", FloatDomain(low=-1.0, high=1.0)),
        _parameter("one", IntDomain(low=3, high=3)),
        _parameter("eager", CategoricalDomain(choices=(False, True))),
        _parameter("spec", CategoricalDomain(choices=("off", "ngram", "mtp"))),
        _parameter("k", IntDomain(low=1, high=8), "spec != 'off'"),
        _parameter("lookup", IntDomain(low=2, high=5), "spec == 'ngram' and k >= 2"),
    ),
    constraints=(Constraint(require=Expression.parse("tokens >= seqs * k"), why="a slot for each draft"),),
)
SEEDS = st.integers(0, 2**32)


@st.composite
def _configurations(draw: st.DrawFn) -> Configuration:
    """Any that keeps the constraints; of some, parameters are left to vLLM."""
    full = sample(SPACE, Random(draw(SEEDS)))  # noqa: S311
    assert full is not None
    dropped = draw(st.sets(st.sampled_from(["seqs", "tokens", "share", "rate", "level", "eager", "lookup"])))
    kept = {name: value for name, value in full.values.items() if name not in dropped}
    return Configuration(values=kept)


@settings(deadline=None)
@given(_configurations(), SEEDS, st.sampled_from([1e-9, 0.05, 0.1, 1.0]))
def test_a_neighbour_is_another_configuration_of_the_space_with_at_most_two_changes(
    configuration: Configuration, seed: int, step: float
) -> None:
    old = configuration.values
    found = neighbour(SPACE, configuration, Random(seed), step)  # noqa: S311
    assert found is not None
    new = found.values
    assert new != old
    assert SPACE.violated(found) is None
    assert all(value in SPACE.parameter(name).domain for name, value in new.items())
    changed = []
    for parameter in SPACE.parameters:
        name = parameter.name
        was, active = SPACE.is_active(parameter, old), SPACE.is_active(parameter, new)
        if not active:
            assert name not in new
        elif not was:
            assert name in new, "one that becomes active gets a value"
        elif new.get(name) != old.get(name):
            changed.append(name)
        assert name not in old or not active or name in new, "nothing that stays active is left to vLLM"
    assert 1 <= len(changed) <= 2
    assert found == neighbour(SPACE, configuration, Random(seed), step)  # noqa: S311


@settings(deadline=None)
@given(_configurations(), SEEDS)
def test_numbers_stay_close(configuration: Configuration, seed: int) -> None:
    found = neighbour(SPACE, configuration, Random(seed), 0.05)  # noqa: S311
    assert found is not None
    for name, value in found.values.items():
        domain, old = SPACE.parameter(name).domain, configuration.values.get(name)
        if isinstance(domain, IntDomain | FloatDomain) and old is not None:
            assert not isinstance(value, str)
            assert not isinstance(old, str)
            width = math.log(domain.high / domain.low) if domain.log else domain.high - domain.low
            moved = math.log(value / old) if domain.log else value - old
            # Six standard deviations, or the next value where that is further.
            assert abs(moved) <= max(6 * 0.05 * width, (domain.step or 0) * 1.001)


@settings(deadline=None)
@given(SEEDS, st.integers(0, 16))
def test_a_decimal_is_written_as_a_person_would(seed: int, steps: int) -> None:
    space = SearchSpace(name="share", parameters=(SPACE.parameters[2],))
    share = Configuration(values={"share": round(0.8 + steps * 0.01, 2)})
    found = neighbour(space, share, Random(seed), 0.1)  # noqa: S311
    assert found is not None
    assert len(str(found.values["share"])) <= 4


@settings(deadline=None)
@given(SEEDS)
def test_both_ends_of_a_range_have_neighbours(seed: int) -> None:
    for low, high in ((1, 2), (1, 1024)):
        for log in (False, True):
            parameter = _parameter("n", IntDomain(low=low, high=high, log=log))
            for end in (low, high):
                found = neighbour(
                    SearchSpace(name="n", parameters=(parameter,)),
                    Configuration(values={"n": end}),
                    Random(seed),  # noqa: S311
                    0.1,
                )
                assert found is not None
                assert found.values["n"] in parameter.domain


def test_where_there_is_no_other_configuration_there_is_no_neighbour() -> None:
    single = SearchSpace(name="single", parameters=(SPACE.parameters[5],))
    assert neighbour(single, Configuration(values={"one": 3}), Random(0), 0.1) is None  # noqa: S311
    only_false = Constraint(require=Expression.parse("eager == false"), why="")
    forced = SearchSpace(name="forced", parameters=(SPACE.parameters[6],), constraints=(only_false,))
    assert neighbour(forced, Configuration(values={"eager": False}), Random(0), 0.1) is None  # noqa: S311


def test_the_baseline_has_neighbours_too() -> None:
    """Of what is left to vLLM any value is a change."""
    found = {str(neighbour(SPACE, Configuration(), Random(seed), 0.1)) for seed in range(50)}  # noqa: S311
    assert len(found) > 40
