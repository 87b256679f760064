import subprocess
import sys

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain.expression import Expression
from autotune.domain.space import (
    CategoricalDomain,
    Configuration,
    Constraint,
    Fixed,
    FloatDomain,
    IntDomain,
    Parameter,
    SearchSpace,
    Target,
    TargetKind,
)

FLAG = Target(kind=TargetKind.FLAG, name="--x")

VALUES = st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()


@given(st.dictionaries(st.text(), VALUES, max_size=5), st.randoms())
def test_digest_of_a_configuration_is_independent_of_order(values: dict, rng) -> None:
    items = list(values.items())
    rng.shuffle(items)
    assert Configuration(values=dict(items)).digest == Configuration(values=values).digest


def test_digest_of_a_configuration_tells_types_apart() -> None:
    digests = {Configuration(values={"x": value}).digest for value in (1, 1.0, True, "1", "True")}
    assert len(digests) == 5


def space(**changes) -> SearchSpace:
    when = Expression.parse("alpha > 1 and beta < 4 and gamma != 3 and delta == 2")
    names = ("alpha", "beta", "gamma", "delta", "epsilon")
    parameters = tuple(
        Parameter(name=n, domain=IntDomain(low=0, high=9), target=FLAG, when=when) for n in names
    )
    content = {
        "name": "s",
        "parameters": parameters,
        "constraints": (Constraint(require=when, why="because"),),
        "fixed": (
            Fixed(target=FLAG, value={"a": 1, "b": [2, 3]}),
            Fixed(target=Target(kind=TargetKind.ENV, name="X"), value="1"),
        ),
    }
    return SearchSpace(**(content | changes))


def test_digest_of_a_space_is_the_same_in_every_process() -> None:
    program = (
        "from autotune.domain.space import *\n"
        "from autotune.domain.expression import Expression\n"
        "w = Expression.parse('a > 1 and b < 4 and c != 3 and d == 2')\n"
        "t = Target(kind=TargetKind.FLAG, name='--x')\n"
        "p = Parameter(name='e', domain=IntDomain(low=0, high=9), target=t, when=w)\n"
        "print(SearchSpace(name='s', parameters=(p,), constraints=(Constraint(require=w, why=''),)).digest)\n"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(digests) == 1


def test_digest_of_a_space_ignores_what_does_not_change_the_search() -> None:
    base = space().digest
    reworded = (Constraint(require=space().constraints[0].require, why="other words"),)
    assert space(name="t", constraints=reworded, left_out={"x": "y"}).digest == base
    assert space(fixed=space().fixed[::-1]).digest == base
    reordered = Fixed(target=FLAG, value={"b": [2, 3], "a": 1})
    assert space(fixed=(reordered, space().fixed[1])).digest == base


def test_digest_of_a_space_sees_what_changes_the_search() -> None:
    parameters = space().parameters
    other_value = Fixed(target=FLAG, value={"a": 1, "b": [3, 2]})
    spaces = [
        space(),
        space(parameters=parameters[::-1]),
        space(parameters=parameters[1:]),
        space(constraints=()),
        space(fixed=()),
        space(fixed=(other_value, space().fixed[1])),
    ]
    assert len({s.digest for s in spaces}) == len(spaces)


@pytest.mark.parametrize(
    "make",
    [
        lambda: IntDomain(low=2, high=1),
        lambda: IntDomain(low=1, high=8, step=0),
        lambda: IntDomain(low=1, high=8, step=-1),
        lambda: IntDomain(low=1, high=8, step=2),
        lambda: IntDomain(low=0, high=8, log=True),
        lambda: IntDomain(low=2, high=8, step=2, log=True),
        lambda: FloatDomain(low=0.0, high=1.0, log=True),
        lambda: FloatDomain(low=0.1, high=1.0, step=0.4),
        lambda: FloatDomain(low=0.1, high=0.5, step=0.1, log=True),
        lambda: FloatDomain(low=float("nan"), high=1.0),
        lambda: FloatDomain(low=0.0, high=float("inf")),
        lambda: CategoricalDomain(choices=()),
        lambda: CategoricalDomain(choices=("a", "a")),
        lambda: CategoricalDomain(choices=(1, True)),
        lambda: CategoricalDomain(choices=(1, 1.0)),
        lambda: Target(kind=TargetKind.FLAG, name="--x y"),
        lambda: Target(kind=TargetKind.FLAG, name="--x=1"),
        lambda: Target(kind=TargetKind.FLAG, name="-x"),
        lambda: Target(kind=TargetKind.FLAG, name="--no-x"),
        lambda: Target(kind=TargetKind.FLAG, name="--x.y"),
        lambda: Target(kind=TargetKind.FLAG, name="--x", keys=("y",)),
        lambda: Target(kind=TargetKind.JSON, name="--x"),
        lambda: Target(kind=TargetKind.JSON, name="--x", keys=("a", "")),
        lambda: Target(kind=TargetKind.ENV, name="A B"),
        lambda: Target(kind=TargetKind.ENV, name="A=B"),
        lambda: Target(kind=TargetKind.ENV, name=""),
    ],
)
def test_refused(make) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the texts are tested where a file shows them
        make()


@given(
    low=st.integers(-50, 50),
    steps=st.integers(0, 20),
    step=st.sampled_from([0.01, 0.05, 0.1, 0.25, 0.3, 1.0, 7.0]),
)
def test_steps_of_decimals_as_optuna_counts_them(low: int, steps: int, step: float) -> None:
    bottom = low / 100
    domain = FloatDomain(low=bottom, high=round(bottom + steps * step, 10), step=step)
    distribution = optuna.distributions.FloatDistribution(domain.low, domain.high, step=step)
    assert distribution.high == domain.high
    for i in range(steps + 1):
        assert min(domain.high, bottom + i * step) in domain
    assert steps == 0 or bottom + step / 2 not in domain


def test_membership() -> None:
    assert 3 in IntDomain(low=1, high=5, step=2)
    assert 2 not in IntDomain(low=1, high=5, step=2)
    assert True not in IntDomain(low=0, high=5)
    assert 3.0 not in IntDomain(low=1, high=5)
    assert 3 in FloatDomain(low=1, high=5)
    assert "1" not in CategoricalDomain(choices=(1, 2))
    assert 1.0 not in CategoricalDomain(choices=(1, 2))


def test_a_constraint_on_an_absent_parameter_is_not_broken() -> None:
    constraint = Constraint(require=Expression.parse("a > b"), why="w")
    s = space(parameters=(), constraints=(constraint,))
    assert s.violated(Configuration(values={"a": 1})) is None
    assert s.violated(Configuration(values={"a": 1, "b": 2})) is constraint
    assert s.violated(Configuration(values={"a": 3, "b": 2})) is None
