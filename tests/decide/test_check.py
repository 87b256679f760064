from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sites import vllm

from autotune.decide.space.check import Severity, check_space
from autotune.decide.space.sampling import draw, sample
from autotune.domain.expression import Expression
from autotune.domain.machine import Device
from autotune.domain.space import (
    CategoricalDomain,
    Constraint,
    Domain,
    Fixed,
    FloatDomain,
    IntDomain,
    Json,
    Parameter,
    SearchSpace,
    Target,
    TargetKind,
)

BOOL = CategoricalDomain(choices=(False, True))
SEQS = "--max-num-seqs"


def parameter(name: str, domain: Domain, target: str = SEQS, when: str | None = None, omit=()) -> Parameter:
    kind = TargetKind.FLAG if target.startswith("--") else TargetKind.ENV
    flag, *keys = target.split(".")
    return Parameter(
        name=name,
        domain=domain,
        target=Target(kind=TargetKind.JSON if keys else kind, name=flag, keys=tuple(keys)),
        when=Expression.parse(when) if when else None,
        omit=omit,
    )


def space(
    *parameters: Parameter, require: Sequence[str] = (), fixed: dict[str, Json] | None = None
) -> SearchSpace:
    return SearchSpace(
        name="s",
        parameters=parameters,
        constraints=tuple(Constraint(require=Expression.parse(text), why="w") for text in require),
        fixed=tuple(
            Fixed(
                target=Target(kind=TargetKind.FLAG if name.startswith("--") else TargetKind.ENV, name=name),
                value=value,
            )
            for name, value in (fixed or {}).items()
        ),
    )


def found(checked: SearchSpace, device: Device = Device.CUDA, **more) -> list[str]:
    return [str(finding) for finding in check_space(checked, vllm(device, **more))]


INT = IntDomain(low=1, high=8)
DTYPE = "--kv-cache-dtype"


def choices(*values) -> CategoricalDomain:
    return CategoricalDomain(choices=values)


FINE = {
    "an int": space(parameter("a", INT)),
    "a switch": space(parameter("a", BOOL, "--enforce-eager")),
    "choices": space(parameter("a", choices("auto", "fp8"), DTYPE)),
    "an unknown choice that is omitted": space(parameter("a", choices("off", "fp8"), DTYPE, omit=("off",))),
    "a JSON key": space(parameter("a", choices("x"), "--speculative-config.method")),
    "any variable": space(parameter("a", choices("x"), "ANY")),
    "parameters at one target in turn": space(
        parameter("on", BOOL, "X"), parameter("a", INT, when="on"), parameter("b", INT, when="not on")
    ),
    "fixed and searched": space(parameter("a", INT), fixed={SEQS: 3}, require=["a > 2"]),
    "a fixed list": space(parameter("a", INT), fixed={"--dtype": "auto"}),
}


@pytest.mark.parametrize("case", FINE)
def test_nothing_is_wrong(case: str) -> None:
    assert found(FINE[case]) == []


WRONG = {
    "unknown flag": (
        space(parameter("a", INT, "--max-num-seq")),
        "error: parameters.a: vLLM 0.32.0 has no --max-num-seq; did you mean --max-num-seqs?",
    ),
    "unknown flag unlike any": (
        space(parameter("a", INT, "--zzz")),
        "error: parameters.a: vLLM 0.32.0 has no --zzz",
    ),
    "unknown flag of a JSON key": (
        space(parameter("a", INT, "--zzz.k")),
        "error: parameters.a: vLLM 0.32.0 has no --zzz",
    ),
    "unknown fixed flag": (
        space(parameter("a", INT), fixed={"--dtypes": "auto"}),
        "error: fixed.flags.dtypes: vLLM 0.32.0 has no --dtypes; did you mean --dtype?",
    ),
    "unknown choice": (
        space(parameter("a", choices("auto", "fp4"), DTYPE)),
        "error: parameters.a: --kv-cache-dtype does not take 'fp4'; vLLM allows auto, bfloat16, fp8",
    ),
    "unknown fixed choice": (
        space(parameter("a", INT), fixed={"--dtype": "int3"}),
        "error: fixed.flags.dtype: --dtype does not take 'int3'; vLLM allows auto, bfloat16",
    ),
    "no negated flag": (
        space(parameter("a", BOOL)),
        "error: parameters.a: vLLM 0.32.0 has no --no-max-num-seqs, which false would need: omit false",
    ),
    "text for a switch": (
        space(parameter("a", choices("true"), "--enforce-eager")),
        "error: parameters.a: --enforce-eager is a switch of vLLM and takes no 'true': use true and false",
    ),
    "both active": (
        space(parameter("a", INT, when="1 < 2"), parameter("b", INT, when="a > 1")),
        "error: parameters.b: is active together with a, which sets the same thing",
    ),
    "never active": (
        space(parameter("a", choices("x", "y"), "X"), parameter("b", INT, when="a == 'z'")),
        "warning: parameters.b: is never active: `a == 'z'` is true in none of 500 configurations",
    ),
    "nothing allowed": (
        space(parameter("a", INT), require=["a > 1", "a > 8"]),
        "error: constraints: none of 500 random configurations keeps all of them; most break `a > 8`",
    ),
    "division by 0": (
        space(parameter("a", IntDomain(low=0, high=1)), require=["1 / a > 0"]),
        "error: constraints: expression '1 / a > 0': cannot be evaluated for {'a': 0}: division by zero",
    ),
    "baseline outside the range": (
        space(parameter("a", INT), fixed={SEQS: 99}),
        "warning: parameters.a: its fixed value 99, that of the first trial, is not in its range",
    ),
    "baseline breaks a constraint": (
        space(parameter("a", INT), fixed={SEQS: 2}, require=["a > 2"]),
        "error: constraints: the fixed settings alone break `a > 2`",
    ),
    "variable of the CPU backend": (
        space(parameter("a", choices("auto"), "VLLM_CPU_OMP_THREADS_BIND")),
        "warning: parameters.a: VLLM_CPU_OMP_THREADS_BIND has no effect here: it is read by vLLM's CPU"
        " backend only",
    ),
    "fixed variable of the CPU backend": (
        space(parameter("a", INT), fixed={"VLLM_CPU_KVCACHE_SPACE": 4}),
        "warning: fixed.env.VLLM_CPU_KVCACHE_SPACE: VLLM_CPU_KVCACHE_SPACE has no effect here: it is read by"
        " vLLM's CPU backend only",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_something_is_wrong(case: str) -> None:
    checked, expected = WRONG[case]
    assert found(checked) == [expected]


@pytest.mark.parametrize(
    ("target", "domain", "reason"),
    [
        ("CUDA_VISIBLE_DEVICES", choices("0"), "GPU only"),
        ("VLLM_USE_FLASHINFER_SAMPLER", choices("0"), "GPU only"),
        ("--cpu-offload-gb", INT, "already in host memory"),
        ("--async-scheduling", BOOL, "synchronously"),
    ],
)
def test_no_effect_on_a_cpu(target: str, domain: Domain, reason: str) -> None:
    (finding,) = found(space(parameter("a", domain, target)), Device.CPU)
    assert finding.startswith("warning: parameters.a: ")
    assert reason in finding
    assert found(space(parameter("a", domain, target)), Device.CUDA) == []


def test_a_vllm_that_could_not_be_asked() -> None:
    findings = check_space(space(parameter("a", INT, "--zzz")), vllm(Device.CUDA, asked=False))
    assert [f.severity for f in findings] == [Severity.INFO]
    assert "could not be asked for its flags" in findings[0].text


def test_the_same_space_is_found_the_same_each_time() -> None:
    rare = [parameter(f"b{i}", INT, f"X{i}", when=f"a == {i}") for i in range(1, 100)]
    checked = space(parameter("a", IntDomain(low=1, high=300)), *rare)
    assert 0 < len(found(checked)) < 99
    assert found(checked) == found(checked)


INTS = st.tuples(st.integers(1, 40), st.integers(0, 12), st.integers(1, 5), st.booleans()).map(
    lambda t: (
        IntDomain(low=t[0], high=t[0] + t[1], log=True)
        if t[3]
        else IntDomain(low=t[0], high=t[0] + t[1] * t[2], step=t[2])
    )
)
FLOATS = st.one_of(
    st.tuples(st.floats(0.01, 10), st.floats(0, 10), st.booleans()).map(
        lambda t: FloatDomain(low=t[0], high=t[0] + t[1], log=t[2])
    ),
    st.tuples(st.integers(0, 99), st.integers(0, 20)).map(
        lambda t: FloatDomain(low=t[0] / 100, high=(t[0] + 5 * t[1]) / 100, step=0.05)
    ),
)


@given(INTS | FLOATS | st.just(BOOL), st.randoms(use_true_random=False))
def test_draws_are_in_the_domain(domain: Domain, rng: Random) -> None:
    drawn = draw(space(parameter("a", domain), parameter("b", INT, when="a == a")), rng)
    assert drawn.values["a"] in domain
    assert drawn.values["b"] in INT


@pytest.mark.parametrize("log", [False, True])
def test_every_whole_number_is_drawn(log: bool) -> None:
    rng = Random(1)  # noqa: S311
    checked = space(parameter("a", IntDomain(low=1, high=6, log=log)))
    assert {draw(checked, rng).values["a"] for _ in range(300)} == set(range(1, 7))


def test_samples_keep_constraints_and_conditions() -> None:
    rng = Random(2)  # noqa: S311
    checked = space(
        parameter("a", INT), parameter("b", INT, "X", when="a > 4"), require=["a != 8", "b > a or a == 6"]
    )
    samples = [sample(checked, rng) for _ in range(200)]
    for configuration in samples:
        assert configuration is not None
        assert ("b" in configuration.values) == (configuration.values["a"] > 4)
        assert checked.violated(configuration) is None
    assert sample(space(parameter("a", INT), require=["a > 8"]), rng, attempts=50) is None
