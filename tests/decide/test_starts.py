"""Start points: what each machine gets, and that each is a configuration of the space as it stands."""

from collections.abc import Mapping
from pathlib import Path

import landscape
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sites import machine, model, vllm

from autotune.decide.space.check import check_space
from autotune.decide.space.default_space import default_space
from autotune.decide.space.site import Site
from autotune.decide.start_book import Expert, Flip, StartBook, Usual
from autotune.decide.start_values import StartValues
from autotune.decide.starts import MOST, start_points
from autotune.domain.expression import Expression
from autotune.domain.launch import server_args
from autotune.domain.machine import Device, FlagFact, Machine, Model, VllmInstall
from autotune.domain.model_shape import Attention, Layers, LinearAttention, ModelShape
from autotune.domain.space import (
    CategoricalDomain,
    Configuration,
    Constraint,
    Domain,
    Fixed,
    FloatDomain,
    IntDomain,
    OwnStart,
    Parameter,
    SearchSpace,
    Target,
    TargetKind,
    Value,
)
from autotune.domain.start import StartPoint
from autotune.domain.trial import Origin
from autotune.domain.workload import Workload
from autotune.files.spaces import load_space
from autotune.files.starts import read_starts

BOOK = read_starts()
EVERYTHING = StartBook(
    defaults=BOOK.defaults, base=BOOK.base, experts=BOOK.experts, flips=tuple(reversed(BOOK.flips))
)
"""The flips that `MOST` cuts off come first."""


def site(
    hardware: Machine, install: VllmInstall, known: Model | None, workload: Workload | None = None
) -> Site:
    return Site(
        machine=hardware, vllm=install, model=known, workload=workload or Workload(), context_tokens=8192
    )


def derived(where: Site) -> SearchSpace:
    return default_space(where.machine, where.vllm, where.model, where.workload, where.context_tokens)


def made(where: Site, book: StartBook = BOOK) -> tuple[StartPoint, ...]:
    return start_points(derived(where), where, book)


def named(points: tuple[StartPoint, ...], name: str) -> Mapping[str, Value]:
    """The values of the one whose reason begins so."""
    (found,) = [p.configuration.values for p in points if p.why.startswith(f"{name}:")]
    return found


def reasons(points: tuple[StartPoint, ...]) -> list[str]:
    return [point.why.partition(":")[0] for point in points]


CARD_24_GB = site(landscape.MACHINE, landscape.VLLM, landscape.MODEL, landscape.WORKLOAD)
H200 = site(
    machine(cpus=16, memory_gib=128, gpus=1, gpu_gib=140),
    vllm(Device.CUDA),
    model(max_model_len=40960, weight_gib=15.3),
)
CPU_TINY = site(machine(), vllm(Device.CPU), model(max_model_len=8192, weight_gib=0.01))
CPU_SERVER = site(
    machine(cpus=64, memory_gib=512), vllm(Device.CPU), model(max_model_len=131072, weight_gib=15)
)


def test_an_8b_model_on_a_24_gb_card() -> None:
    points = made(CARD_24_GB)
    assert reasons(points) == [
        *("no more context than needed", "one stream, drafted by the model", "many streams"),
        *("many streams in little memory", "long context", "longer context"),
        *("speculation = mtp", "speculation = ngram", "max_num_batched_tokens = 8192"),
        *("kv_cache_dtype = fp8", "performance_mode = interactivity", "gpu_memory_utilization = 0.95"),
        "max_num_batched_tokens = 512",
    ]
    base = {
        "max_model_len": 8192,
        "gpu_memory_utilization": 0.92,
        "kv_cache_dtype": "auto",
        "max_num_seqs": 256,
        "max_num_batched_tokens": 2048,
        "enable_prefix_caching": True,
        "enforce_eager": False,
        "performance_mode": "balanced",
        "speculation": "off",
    }
    assert points[0].configuration.values == base
    assert named(points, "kv_cache_dtype = fp8") == {**base, "kv_cache_dtype": "fp8"}
    assert named(points, "speculation = mtp") == {**base, "speculation": "mtp", "mtp_tokens": 1}
    assert named(points, "long context")["max_model_len"] == 131072
    assert named(points, "longer context")["max_model_len"] == 32768
    assert [point.origin for point in points] == [Origin.EXPERT] * 6 + [Origin.FLIP] * 7


def test_an_8b_model_on_an_h200() -> None:
    points = made(H200)
    assert reasons(points)[:3] == ["one stream, drafted from the prompt", "many streams", "long context"]
    many = named(points, "many streams")
    assert (many["max_num_seqs"], many["max_num_batched_tokens"]) == (16, 16384)
    assert named(points, "long context")["max_model_len"] == 40960
    assert named(points, "max_num_batched_tokens = 16384")["max_num_seqs"] == 256
    assert named(points, "max_num_batched_tokens = 2048")["gpu_memory_utilization"] == 0.92
    assert "speculation = mtp" not in reasons(points)
    assert "no more context than needed" not in reasons(points)


def test_several_gpus() -> None:
    known = model(max_model_len=262144, weight_gib=150, has_mtp=True)
    points = made(site(machine(cpus=128, memory_gib=512, gpus=8, gpu_gib=140), vllm(Device.CUDA), known))
    assert named(points, "one stream, drafted by the model")["tensor_parallel_size"] == 8
    assert named(points, "many streams")["tensor_parallel_size"] == 2
    assert named(points, "tensor_parallel_size = 8")["max_model_len"] == 8192
    assert points[0].configuration.values["tensor_parallel_size"] == 2


def test_a_tiny_model_on_a_cpu() -> None:
    points = made(CPU_TINY)
    assert reasons(points) == [
        *("one stream, drafted from the prompt", "many streams", "max_num_batched_tokens = 4096"),
        *("max_num_batched_tokens = 512", "enable_prefix_caching = false"),
    ]
    drafted = named(points, "one stream, drafted from the prompt")
    assert (drafted["speculation"], drafted["ngram_tokens"], drafted["ngram_lookup"]) == ("ngram", 5, 4)
    assert named(points, "many streams")["max_num_seqs"] == 16


def test_a_server_without_gpus() -> None:
    points = made(CPU_SERVER)
    assert reasons(points)[:5] == [
        *("no more context than needed", "one stream, drafted from the prompt", "many streams"),
        *("long context", "longer context"),
    ]
    assert named(points, "omp_threads_bind = nobind")["omp_num_threads"] == 64
    assert "omp_num_threads" not in named(points, "omp_threads_bind = 0-63")
    assert not any("gpu_memory_utilization" in point.configuration.values for point in points)


def test_the_shipped_space() -> None:
    space = load_space("cpu-quickstart", Path.cwd())
    points = start_points(space, CPU_TINY, BOOK)
    assert reasons(points) == [
        *("one stream, drafted from the prompt", "max_num_batched_tokens = 512"),
        "enable_prefix_caching = false",
    ]
    # The fixed value of the baseline, not the smallest, with which vLLM does not start.
    assert {p.configuration.values["kv_cache_memory_bytes"] for p in points} == {134217728}


def _shape(*mixers: Attention | LinearAttention) -> ModelShape:
    layers = tuple(Layers(mixer=mixer) for mixer in mixers)
    return ModelShape(hidden=64, vocabulary=1000, layers=layers, dtype="bfloat16")


FULL = Attention(query_heads=8, kv_heads=2, head_dim=64)
LINEAR = LinearAttention(
    conv_dim=64, conv_kernel=4, heads=2, head_state=64, projected=64, inner=64, state_dtype=None
)


@pytest.mark.parametrize(("mixers", "caching"), [((FULL, LINEAR), False), ((FULL,), True)])
def test_drafts_for_a_hybrid_model_are_tried_without_prefix_caching(
    mixers: tuple[Attention | LinearAttention, ...], caching: bool
) -> None:
    known = Model(name="m", max_model_len=262144, weight_bytes=2**30, has_mtp=True, shape=_shape(*mixers))
    points = made(site(machine(gpus=1), vllm(Device.CUDA), known))
    assert named(points, "speculation = mtp")["enable_prefix_caching"] is caching
    assert named(points, "speculation = ngram")["enable_prefix_caching"] is caching


def test_nothing_known_of_the_model_or_of_vllms_flags() -> None:
    points = made(site(machine(gpus=1), vllm(Device.CUDA, asked=False), None))
    assert {"many streams", "kv_cache_dtype = fp8"} <= set(reasons(points))
    assert named(points, "many streams")["max_num_batched_tokens"] == 4096


# --- What holds for every space


def flag(name: str, domain: Domain, when: str | None = None, omit: tuple[Value, ...] = ()) -> Parameter:
    key, _, inner = name.partition("__")
    target = (
        Target(kind=TargetKind.JSON, name="--" + key.replace("_", "-"), keys=(inner,))
        if inner
        else Target(kind=TargetKind.ENV, name=name)
        if name.isupper()
        else Target(kind=TargetKind.FLAG, name="--" + name.replace("_", "-"))
    )
    condition = Expression.parse(when) if when else None
    return Parameter(name=name.lower(), domain=domain, target=target, when=condition, omit=omit)


@st.composite
def domains(draw: st.DrawFn) -> Domain:
    low = draw(st.integers(1, 20000))
    step = draw(st.integers(1, 300))
    steps = draw(st.integers(0, 300))
    match draw(st.sampled_from(["int", "log", "float", "step", "numbers"])):
        case "int":
            return IntDomain(low=low, high=low + step * steps, step=step)
        case "log":
            return IntDomain(low=low, high=low + step * steps, log=True)
        case "float":
            return FloatDomain(low=low / 30000, high=low / 30000 + steps / 100)
        case "step":
            return FloatDomain(low=round(low / 1000, 3), high=round(low / 1000 + steps / 100, 3), step=0.01)
        case _:
            return CategoricalDomain(choices=tuple(sorted({low, low + steps, step})))


_BOOL = CategoricalDomain(choices=(False, True))
_METHODS = CategoricalDomain(choices=("off", "ngram", "mtp"))
_BINDS = CategoricalDomain(choices=("auto", "nobind", "0-1"))
NUMERIC = (
    *("max_model_len", "max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization", "cpu_offload_gb"),
    *("tensor_parallel_size", "something_new"),
)


@st.composite
def spaces(draw: st.DrawFn) -> SearchSpace:
    """With settings that the data knows, in ranges and under conditions that nobody would write."""
    parameters = [
        flag(name, draw(domains())) for name in draw(st.lists(st.sampled_from(NUMERIC), unique=True))
    ]
    if draw(st.booleans()):
        parameters.append(flag("enable_prefix_caching", _BOOL, omit=draw(st.sampled_from([(), (True,)]))))
    if draw(st.booleans()):
        parameters += [
            flag("speculative_config__method", _METHODS, omit=draw(st.sampled_from([(), ("off",)]))),
            flag(
                "speculative_config__num_speculative_tokens",
                draw(domains()),
                "speculative_config__method != 'off'",
            ),
        ]
    if draw(st.booleans()):
        parameters += [
            flag("VLLM_CPU_OMP_THREADS_BIND", _BINDS, omit=("auto",)),
            flag("OMP_NUM_THREADS", draw(domains()), "vllm_cpu_omp_threads_bind == 'nobind'"),
        ]
    names = [p.name for p in parameters if not isinstance(p.domain, CategoricalDomain)]
    require = (
        [Expression.parse(f"{a} >= {b}") for a, b in draw(st.lists(st.tuples(*[st.sampled_from(names)] * 2)))]
        if names
        else []
    )
    fixed = Fixed(target=Target(kind=TargetKind.FLAG, name="--max-num-seqs"), value=draw(st.integers(1, 99)))
    return SearchSpace(
        name="s",
        parameters=tuple(parameters) or (flag("enforce_eager", _BOOL),),
        constraints=tuple(Constraint(require=r, why="w") for r in require[:2]),
        fixed=draw(st.sampled_from([(), (fixed,)])),
    )


@st.composite
def sites(draw: st.DrawFn) -> Site:
    gpus = draw(st.sampled_from([0, 1, 2, 8]))
    hardware = machine(
        cpus=draw(st.sampled_from([1, 2, 64])),
        memory_gib=draw(st.sampled_from([2, 24, 512])),
        gpus=gpus,
        gpu_gib=draw(st.sampled_from([8, 24, 80, 180])),
    )
    known = draw(
        st.none()
        | st.builds(
            model,
            max_model_len=st.sampled_from([None, 512, 40960, 262144]),
            weight_gib=st.sampled_from([None, 0.01, 16, 400]),
            has_mtp=st.booleans(),
        )
    )
    install = vllm(draw(st.sampled_from(list(Device))), asked=draw(st.booleans()))
    workload = Workload(streams=draw(st.sampled_from([(1,), (1, 8), (1, 1024)])))
    return site(hardware, install, known, workload)


def _holds_in(space: SearchSpace, points: tuple[StartPoint, ...], where: Site, book: StartBook) -> None:
    """Every law that start points keep."""
    words = [server_args(space, Configuration())]
    known, _ = StartValues.of(space, where, book).full({})
    always = {p.name for p in space.parameters if p.when is None and p.name in known.values}
    for point in points:
        values = point.configuration.values
        before: dict[str, Value] = {}
        for parameter in space.parameters:
            if parameter.name in values:
                assert space.is_active(parameter, before), point.why
                assert values[parameter.name] in parameter.domain, point.why
                before[parameter.name] = values[parameter.name]
        assert before.keys() == values.keys()
        assert space.violated(point.configuration) is None
        assert server_args(space, point.configuration) not in words, point.why
        words.append(server_args(space, point.configuration))
        assert always <= values.keys(), point.why
        assert point.why
    assert len(points) <= MOST


@given(spaces(), sites(), st.sampled_from([BOOK, EVERYTHING]))
@settings(max_examples=300)
def test_every_start_lies_in_the_space_and_keeps_its_constraints(
    space: SearchSpace, where: Site, book: StartBook
) -> None:
    points = start_points(space, where, book)
    _holds_in(space, points, where, book)
    assert points == start_points(space, where, book)


@given(sites(), st.sampled_from([BOOK, EVERYTHING]))
def test_a_derived_space_gets_full_start_points(where: Site, book: StartBook) -> None:
    space = derived(where)
    points = start_points(space, where, book)
    _holds_in(space, points, where, book)
    assert points
    for point in points:
        values = point.configuration.values
        active = {p.name for p in space.parameters if space.is_active(p, values)}
        assert active == values.keys(), point.why
    assert [f for f in check_space(space, where.vllm) if f.severity == "error"] == []


# --- The rules one by one

GPU = site(machine(gpus=1), vllm(Device.CUDA), model())


def only(space: SearchSpace, *, where: Site = GPU, **book: object) -> list[dict[str, Value]]:
    points = start_points(space, where, StartBook(**book))  # type: ignore[arg-type]
    return [dict(point.configuration.values) for point in points]


def flip(setting: str, *values: Value | str, when: str | None = None) -> Flip:
    condition = Expression.parse(when) if when else None
    wishes = tuple(Expression.parse(v[1:]) if isinstance(v, str) and v[0] == "=" else v for v in values)
    return Flip(setting=setting, values=wishes, why="w", also={}, when=condition)


def numbers(low: int, high: int, step: int = 1) -> SearchSpace:
    return SearchSpace(name="s", parameters=(flag("max_num_seqs", IntDomain(low=low, high=high, step=step)),))


@pytest.mark.parametrize(
    ("wish", "given_"),
    [
        (16, 16),
        (17, 24),  # room for all of the 17
        (1, None),  # 8 would be something else
        (7, 8),
        (70, 64),
        (90, None),
        ("= max_streams", 16),
        ("= high", 64),
        ("= low", 8),
        ("= max_streams / 0", None),
        ("= weights_gib * 1e308 * 1e308", None),
        ("= unknown_fact", None),
        ("fp8", None),
        (True, None),
    ],
)
def test_a_value_is_snapped_or_left_out(wish: Value, given_: int | None) -> None:
    space = numbers(8, 64, step=8)
    base = (Usual(setting="max_num_seqs", value=32),)
    expected = [] if given_ is None else [{"max_num_seqs": given_}]
    assert only(space, base=base, flips=(flip("max_num_seqs", wish),)) == expected


def test_a_decimal_is_as_it_is_written() -> None:
    util = flag("gpu_memory_utilization", FloatDomain(low=0.8, high=0.96, step=0.01))
    space = SearchSpace(name="s", parameters=(util,))
    assert only(space, flips=(flip("gpu_memory_utilization", 0.95),)) == [{"gpu_memory_utilization": 0.95}]


def test_a_flip_to_what_is_there_anyway_is_none() -> None:
    base = (Usual(setting="max_num_seqs", value=32),)
    assert only(numbers(8, 64), base=base, flips=(flip("max_num_seqs", 32),)) == []


def test_what_vllm_does_by_itself_is_no_start() -> None:
    expert = Expert(name="e", settings={"max_num_seqs": 256}, why="w")
    default = (Usual(setting="max_num_seqs", value=256),)
    assert only(numbers(8, 512), experts=(expert,)) == [{"max_num_seqs": 256}]
    assert only(numbers(8, 512), experts=(expert,), defaults=default) == []


def test_the_installed_vllms_own_default_goes_before_that_of_the_data() -> None:
    install = vllm(Device.CUDA)
    flags = {**(install.flags or {}), "--max-num-seqs": FlagFact(name="--max-num-seqs", default="48")}
    told = VllmInstall(
        command=("vllm",), python=None, version="1", torch_version=None, device=Device.CUDA, flags=flags
    )
    space = SearchSpace(
        name="s", parameters=(*numbers(8, 512).parameters, flag("max_model_len", IntDomain(low=1, high=9)))
    )
    where = site(machine(gpus=1), told, None)
    found = only(
        space,
        where=where,
        defaults=(Usual(setting="max_num_seqs", value=256), Usual(setting="max_model_len", value=9)),
        flips=(flip("max_model_len", 3),),
    )
    assert found == [{"max_num_seqs": 48, "max_model_len": 3}]


def test_a_fixed_setting_goes_before_both() -> None:
    fixed = Fixed(target=Target(kind=TargetKind.FLAG, name="--max-num-seqs"), value=12)
    parameters = (*numbers(8, 512).parameters, flag("max_model_len", IntDomain(low=1, high=9)))
    space = SearchSpace(name="s", parameters=parameters, fixed=(fixed,))
    found = only(
        space, defaults=(Usual(setting="max_num_seqs", value=256),), flips=(flip("max_model_len", 3),)
    )
    assert found == [{"max_num_seqs": 12, "max_model_len": 3}]


def test_a_parameter_whose_default_nobody_knows_is_left_out() -> None:
    parameters = (*numbers(8, 512).parameters, flag("max_model_len", IntDomain(low=1, high=9)))
    assert only(SearchSpace(name="s", parameters=parameters), flips=(flip("max_model_len", 3),)) == [
        {"max_model_len": 3}
    ]


def test_an_expert_without_what_it_needs() -> None:
    settings_ = {"max_num_seqs": 16, "kv_cache_dtype": "fp8"}
    without = Expert(name="e", settings=settings_, why="w")
    needing = Expert(name="e", settings=settings_, why="w", needs=frozenset({"kv_cache_dtype"}))
    assert only(numbers(8, 64), experts=(without,)) == [{"max_num_seqs": 16}]
    assert only(numbers(8, 64), experts=(needing,)) == []


def test_a_condition_on_something_unknown_does_not_hold() -> None:
    entries = (flip("max_num_seqs", 16, when="weight_share > 0"), flip("max_num_seqs", 24, when="gpus == 1"))
    unknown = site(machine(gpus=1), vllm(Device.CUDA), None)
    assert only(numbers(8, 64), where=unknown, flips=entries) == [{"max_num_seqs": 24}]


def test_a_constraint_is_kept() -> None:
    parameters = numbers(8, 64).parameters
    space = SearchSpace(
        name="s",
        parameters=parameters,
        constraints=(Constraint(require=Expression.parse("max_num_seqs < 20"), why="w"),),
    )
    assert only(space, flips=(flip("max_num_seqs", 16, 32),)) == [{"max_num_seqs": 16}]


# --- The author's own


def own(name: str, **values: Value) -> OwnStart:
    return OwnStart(name=name, configuration=Configuration(values=values), why="mine")


def test_the_authors_own_come_first_and_in_full() -> None:
    base = derived(CPU_TINY)
    space = SearchSpace(
        name=base.name,
        parameters=base.parameters,
        constraints=base.constraints,
        fixed=base.fixed,
        starts=(own("fast", max_num_seqs=24), own("again", max_num_seqs=24), own("plain", max_num_seqs=128)),
    )
    points = start_points(space, CPU_TINY, BOOK)
    # "again" is the same server, and "plain" is the baseline.
    assert reasons(points)[:2] == ["fast", "one stream, drafted from the prompt"]
    assert points[0].why == "fast: mine"
    assert points[0].origin is Origin.EXPERT
    assert points[0].configuration.values["max_num_batched_tokens"] == 2048
    assert points[1:] == start_points(base, CPU_TINY, BOOK)


def test_one_that_the_rest_would_break_stays_as_it_is_written() -> None:
    base = derived(CPU_TINY)
    eager = Constraint(
        require=Expression.parse("max_num_seqs < 30 or max_num_batched_tokens > 3000"), why="w"
    )
    space = SearchSpace(
        name="s", parameters=base.parameters, constraints=(eager,), starts=(own("wide", max_num_seqs=64),)
    )
    assert start_points(space, CPU_TINY, BOOK)[0].configuration.values == {"max_num_seqs": 64}


def test_the_authors_own_are_not_counted_against_the_rest() -> None:
    starts = tuple(own(f"s{i}", max_num_seqs=i) for i in range(8, 40))
    space = SearchSpace(name="s", parameters=numbers(8, 512).parameters, starts=starts)
    many = (flip("max_num_seqs", *range(50, 90)),)
    points = start_points(space, GPU, StartBook(flips=many))
    assert len(points) == 32 + MOST
