"""A scenario: a machine, a model, a workload, and the search space that every search gets."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.domain.expression import Expression
from autotune.domain.machine import Device as VllmDevice
from autotune.domain.machine import Environment, Gpu, Machine, Model, VllmInstall
from autotune.domain.model_shape import Attention, FeedForward, Layers, ModelShape
from autotune.domain.objective import Objective
from autotune.domain.space import (
    CategoricalDomain,
    Domain,
    Fixed,
    FloatDomain,
    IntDomain,
    Parameter,
    SearchSpace,
    Target,
    TargetKind,
    Value,
)
from autotune.domain.workload import Lengths, Workload
from search_sim import knobs
from search_sim.machine import GIB, Conflict, Device, Load, Part
from search_sim.truth import Truth

ON_OFF = CategoricalDomain(choices=(False, True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Startup:
    """How long the parts of a start take, seconds."""

    process_s: float = 9.0
    """Until the settings are checked: imports, for the most part."""
    load_s: float = 15.0
    compile_s: float = 16.0
    graphs_s: float = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One of them. `crash_share` is that of uniformly random configurations, as the tests hold it to."""

    name: str
    about: str
    hidden: bool
    device: Device
    load: Load
    startup: Startup
    model: Model
    parameters: tuple[Parameter, ...]
    fixed: Mapping[str, Value]
    """What the user starts vLLM with in every trial, the baseline included, by the flag's name."""
    crash_share: float
    conflicts: tuple[Conflict, ...] = ()
    objectives: tuple[str, ...] = ("out_tok_s@64", "out_tok_s@1")
    streams: tuple[int, ...] = (1, 8, 64)
    defaults: Mapping[str, float] = field(default_factory=dict)
    """vLLM's own, where they are not those of every other scenario."""

    @property
    def truth(self) -> Truth:
        """What is simulated."""
        return Truth(
            device=self.device,
            load=self.load,
            conflicts=self.conflicts,
            defaults={**_defaults(self.device, self.model), **self.defaults},
        )

    @property
    def space(self) -> SearchSpace:
        """What is searched. No constraints: what vLLM refuses is for each search to find out."""
        return SearchSpace(
            name=self.name,
            parameters=self.parameters,
            fixed=tuple(
                Fixed(target=Target(kind=TargetKind.FLAG, name=_flag(name)), value=value)
                for name, value in self.fixed.items()
            ),
        )

    @property
    def context_tokens(self) -> int:
        """The context that the user asks for."""
        return int(self.fixed.get(knobs.LENGTH, 0)) or _shortest(self.parameters)

    @property
    def workload(self) -> Workload:
        """What is sent."""
        shared = int(self.load.prompt * self.load.prefix_hits)
        return Workload(
            name=self.name,
            shared_prefix_tokens=shared,
            prompt_tokens=Lengths.fixed(self.load.prompt - shared),
            output_tokens=Lengths.fixed(self.load.output),
            streams=self.streams,
        )

    @property
    def goals(self) -> tuple[Objective, ...]:
        """What is maximised."""
        return tuple(Objective.parse(text) for text in self.objectives)

    @property
    def environment(self) -> Environment:
        """The machine as autotune would see it."""
        device = self.device
        gpu = Gpu(index=0, name=f"simulated {self.name}", memory_bytes=int(device.memory_gib * GIB))
        machine = Machine(
            hostname="simulated",
            cpu_model="simulated",
            cpu_ids=tuple(range(device.cores)),
            memory_bytes=int(device.host_gib * GIB),
            kernel="6.8.0",
            driver=None if device.on_cpu else "570.86",
            gpus=() if device.on_cpu else (gpu,),
        )
        vllm = VllmInstall(
            command=("vllm",),
            python=None,
            version="0.32.0",
            torch_version="2.13.0",
            device=VllmDevice.CPU if device.on_cpu else VllmDevice.CUDA,
        )
        return Environment(machine=machine, vllm=vllm)


def _shortest(parameters: tuple[Parameter, ...]) -> int:
    """The shortest context in the space."""
    domains = [parameter.domain for parameter in parameters if parameter.name == knobs.LENGTH]
    return min(domain.low for domain in domains if isinstance(domain, IntDomain))


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _defaults(device: Device, model: Model) -> dict[str, float]:
    """Of vLLM 0.32 on this device."""
    large = device.memory_gib >= 70
    return {
        knobs.LENGTH: float(model.max_model_len or 4096),
        knobs.SHARE: 0.92,
        knobs.OFFLOAD: 0.0,
        knobs.BATCHED: 2048.0 if device.on_cpu or not large else 8192.0,
        knobs.SEQS: 128.0 if device.on_cpu else 1024.0 if large else 256.0,
        knobs.KV_DTYPE: 0.0,
        knobs.EAGER: 0.0,
        knobs.PREFIX: 1.0,
        knobs.METHOD: float(knobs.OFF),
        knobs.DRAFTS: 1.0,
        knobs.LOOKUP: 5.0,
        knobs.THREADS: float(device.cores) if device.on_cpu else 1.0,
        knobs.BIND: 0.0,
        knobs.CPU_KV: 4.0,
        knobs.BACKEND: 0.0,
        knobs.ASYNC: 2.0,
        knobs.CHUNKED: 1.0,
    }


def flag(name: str, domain: Domain, omit: tuple[Value, ...] = ()) -> Parameter:
    """A parameter with the name of its flag."""
    return Parameter(
        name=name, domain=domain, target=Target(kind=TargetKind.FLAG, name=_flag(name)), omit=omit
    )


def variable(name: str, target: str, domain: Domain, when: str | None = None) -> Parameter:
    """A parameter that is an environment variable."""
    return Parameter(
        name=name,
        domain=domain,
        target=Target(kind=TargetKind.ENV, name=target),
        when=Expression.parse(when) if when else None,
    )


def log_int(low: int, high: int) -> IntDomain:
    """Whole numbers, as many between 1 and 2 as between 512 and 1024."""
    return IntDomain(low=low, high=high, log=True)


def speculation(*methods: str, most: int = 8) -> tuple[Parameter, ...]:
    """Off or one of `methods`, each with its own number of drafted tokens."""

    def key(name: str, key: str, domain: Domain, method: str | None = None) -> Parameter:
        return Parameter(
            name=name,
            domain=domain,
            target=Target(kind=TargetKind.JSON, name="--speculative-config", keys=(key,)),
            when=Expression.parse(f'speculation == "{method}"') if method else None,
            omit=() if method else ("off",),
        )

    found = [key("speculation", "method", CategoricalDomain(choices=("off", *methods)))]
    for method in methods:
        tokens = IntDomain(low=1, high=most)
        found.append(key(f"{method}_tokens", "num_speculative_tokens", tokens, method))
        if method == "ngram":
            found.append(key("ngram_lookup", "prompt_lookup_max", IntDomain(low=2, high=8), method))
    return tuple(found)


def gpu_parameters(
    *,
    length: tuple[int, int],
    share: tuple[float, float] = (0.5, 0.98),
    batched: tuple[int, int] = (512, 32768),
    seqs: tuple[int, int] = (1, 1024),
    threads: int = 32,
) -> tuple[Parameter, ...]:
    """Those that every scenario with a GPU has; the ranges are as wide as users write them."""
    return (
        flag(knobs.LENGTH, log_int(*length)),
        flag(knobs.SHARE, FloatDomain(low=share[0], high=share[1], step=0.01)),
        flag(knobs.BATCHED, log_int(*batched)),
        flag(knobs.SEQS, log_int(*seqs)),
        flag(knobs.KV_DTYPE, CategoricalDomain(choices=("auto", "fp8")), omit=("auto",)),
        flag(knobs.PREFIX, ON_OFF),
        flag(knobs.EAGER, ON_OFF, omit=(False,)),
        variable("omp_num_threads", knobs.THREADS, log_int(1, threads)),
    )


def dense_model(
    name: str,
    *,
    gib: float,
    length: int,
    layers: int,
    hidden: int,
    kv_heads: int = 8,
    head_dim: int = 128,
    mtp: bool = False,
    kind: str = "LlamaForCausalLM",
) -> Model:
    """A model as its config.json describes it; what it takes in truth, the scenario's `Load` says."""
    alike = Layers(
        count=layers,
        mixer=Attention(query_heads=hidden // head_dim, kv_heads=kv_heads, head_dim=head_dim),
        feed_forward=FeedForward(intermediate=int(3.5 * hidden)),
    )
    shape = ModelShape(
        hidden=hidden,
        vocabulary=128_256,
        layers=(alike,),
        dtype="bfloat16",
        mtp_layers=int(mtp),
    )
    return Model(
        name=f"sim/{name}",
        architecture=kind,
        max_model_len=length,
        has_mtp=mtp,
        weight_bytes=int(gib * GIB),
        shape=shape,
    )


def is_(name: str, *values: Value) -> Part:
    """That the setting is one of these."""
    return Part(name=name, among=tuple(knobs.code(name, value) for value in values))
