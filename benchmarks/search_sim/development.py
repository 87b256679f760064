"""The scenarios that autotune's search was tuned on."""

from autotune.domain.space import CategoricalDomain, IntDomain
from search_sim import knobs
from search_sim.machine import Conflict, Device, Load, Part
from search_sim.scenario import Scenario, Startup, dense_model, flag, gpu_parameters, is_, speculation

_FP8_WITH_MTP = Conflict(
    parts=(is_(knobs.METHOD, "mtp"), is_(knobs.KV_DTYPE, "fp8")),
    line="AssertionError: kv_cache_dtype of draft and target differ",
)
_OFFLOAD_WITH_MTP = Conflict(
    parts=(is_(knobs.METHOD, "mtp"), Part(name=knobs.OFFLOAD, low=0.5)),
    line="AssertionError: draft weights must not be offloaded",
)
_LONG_DRAFTS_EAGERLY = Conflict(
    parts=(is_(knobs.METHOD, "ngram"), is_(knobs.EAGER, True), Part(name=knobs.DRAFTS, low=6)),
    line="AssertionError: num_tokens_padded >= num_draft_tokens",
    serving=True,
)
_CONFLICTS = (_FP8_WITH_MTP, _OFFLOAD_WITH_MTP, _LONG_DRAFTS_EAGERLY)
_8B = Load(weights_gib=15.0, params=8e9, kv_bytes=131072, mtp_gib=1.1, mtp_accepts=0.68)


_8B_MODEL = dense_model("8b", gib=15.0, length=131072, layers=32, hidden=4096, mtp=True)

_8B_ON_24 = Scenario(
    name="dev-8b-24g",
    about="8B on a 24 GiB card: most of what is drawn does not fit",
    hidden=False,
    device=Device(memory_gib=24, host_gib=64, bandwidth_gib_s=930, tflops=75, cores=8),
    load=_8B,
    startup=Startup(),
    model=_8B_MODEL,
    parameters=(
        *gpu_parameters(length=(16384, 131072)),
        flag(knobs.OFFLOAD, CategoricalDomain(choices=(0, 2, 4, 8)), omit=(0,)),
        *speculation("ngram", "mtp"),
    ),
    fixed={knobs.LENGTH: 16384},
    conflicts=_CONFLICTS,
    crash_share=0.72,
)

DEVELOPMENT = (
    _8B_ON_24,
    Scenario(
        name="dev-8b-24g-one",
        about="the same with one objective",
        hidden=False,
        device=_8B_ON_24.device,
        load=_8B,
        startup=_8B_ON_24.startup,
        model=_8B_ON_24.model,
        parameters=_8B_ON_24.parameters,
        fixed=_8B_ON_24.fixed,
        conflicts=_CONFLICTS,
        crash_share=0.72,
        objectives=("out_tok_s@64",),
    ),
    Scenario(
        name="dev-14b-24g",
        about="14B on a 24 GiB card: weights have to be offloaded",
        hidden=False,
        device=Device(memory_gib=24, host_gib=64, bandwidth_gib_s=930, tflops=75, cores=8),
        load=Load(
            weights_gib=27.0, params=14e9, kv_bytes=196608, mtp_gib=1.2, mtp_accepts=0.7, ngram_accepts=0.4
        ),
        startup=Startup(load_s=24.0),
        model=dense_model("14b", gib=27.0, length=131072, layers=48, hidden=5120, mtp=True),
        parameters=(
            *gpu_parameters(length=(8192, 131072)),
            flag(knobs.OFFLOAD, IntDomain(low=0, high=20), omit=(0,)),
            *speculation("ngram", "mtp"),
        ),
        fixed={knobs.LENGTH: 8192, knobs.OFFLOAD: 12},
        conflicts=_CONFLICTS,
        crash_share=0.87,
    ),
    Scenario(
        name="dev-8b-80g",
        about="8B on an 80 GiB card: there is room for nearly everything",
        hidden=False,
        device=Device(memory_gib=80, host_gib=256, bandwidth_gib_s=1900, tflops=300, pcie_gib_s=40),
        load=_8B,
        startup=Startup(load_s=10.0),
        model=_8B_MODEL,
        parameters=(
            *gpu_parameters(length=(16384, 131072)),
            flag(knobs.OFFLOAD, CategoricalDomain(choices=(0, 2, 4, 8)), omit=(0,)),
            *speculation("ngram", "mtp"),
        ),
        fixed={},
        conflicts=_CONFLICTS,
        crash_share=0.36,
    ),
)
