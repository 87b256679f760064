"""What autotune would read from the log of a simulated server that failed: the rule and the numbers it finds.

`tests/benchmarks` holds each of them against `autotune/rules/vllm.toml`.
"""

from collections.abc import Mapping

from autotune.domain.failure import Blame, Failure, FailureKind, Phase
from search_sim import knobs
from search_sim.knobs import Columns
from search_sim.truth import Fate, Luck, Truth

_NAMES: Mapping[Fate, tuple[FailureKind, Phase, str | None, str]] = {
    Fate.BATCH_BELOW_SEQS: (
        FailureKind.BAD_FLAG,
        Phase.CONFIG,
        "config-batched-tokens-below-sequences",
        "ValueError: max_num_batched_tokens must be greater than or equal to max_num_seqs",
    ),
    Fate.BATCH_BELOW_LENGTH: (
        FailureKind.BAD_FLAG,
        Phase.CONFIG,
        "config-batched-tokens-below-length",
        "ValueError: max_num_batched_tokens is smaller than max_model_len",
    ),
    Fate.ASYNC_WITH_NGRAM: (
        FailureKind.INCOMPATIBLE,
        Phase.CONFIG,
        "async-scheduling-with-speculation",
        "ValueError: async scheduling is only supported with EAGLE/MTP",
    ),
    Fate.UNSUPPORTED_CACHE: (
        FailureKind.UNSUPPORTED,
        Phase.PROFILE,
        "fp8-cache-not-on-this-gpu",
        "ValueError: type fp8e4nv not supported in this architecture",
    ),
    Fate.HOST_OOM: (
        FailureKind.HOST_OOM,
        Phase.WEIGHTS,
        "host-oom-allocation",
        "RuntimeError: DefaultCPUAllocator: can't allocate memory",
    ),
    Fate.OOM_WEIGHTS: (
        FailureKind.GPU_OOM,
        Phase.WEIGHTS,
        "gpu-oom-weights",
        "torch.OutOfMemoryError: CUDA out of memory.",
    ),
    Fate.OOM_PROFILE: (
        FailureKind.GPU_OOM,
        Phase.PROFILE,
        "gpu-oom-profile",
        "torch.OutOfMemoryError: CUDA out of memory.",
    ),
    Fate.NO_KV: (
        FailureKind.KV_CACHE_TOO_SMALL,
        Phase.KV_CACHE,
        "kv-none",
        "ValueError: No available memory for the cache blocks.",
    ),
    Fate.KV_TOO_SMALL: (
        FailureKind.KV_CACHE_TOO_SMALL,
        Phase.KV_CACHE,
        "kv-too-small",
        "ValueError: To serve at least one request with the model's max seq len",
    ),
    Fate.OOM_GRAPHS: (
        FailureKind.GPU_OOM,
        Phase.GRAPHS,
        "gpu-oom-graphs",
        "torch.OutOfMemoryError: CUDA out of memory.",
    ),
    Fate.CONFLICT: (FailureKind.ENGINE_CRASH, Phase.PROFILE, None, ""),
    Fate.OOM_SERVING: (
        FailureKind.GPU_OOM,
        Phase.SERVING,
        "gpu-oom-serving",
        "torch.OutOfMemoryError: CUDA out of memory.",
    ),
}


def failure_of(fate: Fate, truth: Truth, row: Columns, luck: Luck) -> Failure:
    """The failure of a launch of `row` that ends with `fate`."""
    kind, phase, rule, line = _NAMES[fate]
    if fate is Fate.CONFLICT:
        met = next(
            each for each, mask in zip(truth.conflicts, truth.conflict_masks(row), strict=True) if mask.item()
        )
        phase, line = Phase.FIRST_REQUEST if met.serving else Phase.PROFILE, met.line
    if truth.device.on_cpu and rule == "kv-too-small":
        rule = "kv-too-small-cpu"
    return Failure(
        kind=kind,
        phase=phase,
        blame=Blame.CONFIGURATION,
        why=f"simulated: {fate.name.lower().replace('_', ' ')}",
        cure="",
        rule=rule,
        root_line=line,
        line_number=1,
        numbers=_numbers(fate, truth, row, luck),
        confidence=0.8 if fate is Fate.CONFLICT else 1.0,
        frames=(f"step (simulated.py:{len(line)})",),
    )


def _numbers(fate: Fate, truth: Truth, row: Columns, luck: Luck) -> Mapping[str, float | str]:
    """As the patterns of the rule would find them."""
    match fate:
        case Fate.BATCH_BELOW_SEQS:
            return {name: row[name].item() for name in (knobs.BATCHED, knobs.SEQS)}
        case Fate.BATCH_BELOW_LENGTH:
            return {name: row[name].item() for name in (knobs.BATCHED, knobs.LENGTH)}
        case Fate.KV_TOO_SMALL:
            token, room = truth.kv_token_gib(row).item(), truth.room_gib(row, luck).item()
            return {
                "max_model_len": row[knobs.LENGTH].item(),
                "needed_gib": round(token * row[knobs.LENGTH].item(), 2),
                "available_gib": round(room, 2),
                "estimated_len": float(int(room / token) // 16 * 16),
            }
        case Fate.NO_KV:
            return {"kv_gib": round(truth.room_gib(row, luck).item(), 2)}
        case Fate.OOM_WEIGHTS | Fate.OOM_PROFILE | Fate.OOM_GRAPHS | Fate.OOM_SERVING:
            return {"total_gib": truth.device.memory_gib}
        case _:
            return {}
