"""A made-up server: what becomes of a configuration of an 8B model on a 24 GiB card, as it might in truth.

Rates, latencies and limits are plausible, not measured; the same configuration gives the same but for noise.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from autotune.decide.space.default_space import default_space
from autotune.domain.failure import Blame, Failure, FailureKind, Phase
from autotune.domain.machine import Device, Environment, Gpu, Machine, Model, VllmInstall
from autotune.domain.measurement import Interval, MeasuredPoint, Point, Quantiles, RequestRecord, RequestState
from autotune.domain.space import SearchSpace, Value
from autotune.domain.workload import Workload

GIB = 2**30
MACHINE = Machine(
    hostname="night",
    cpu_model="AMD EPYC 9354",
    cpu_ids=tuple(range(16)),
    memory_bytes=64 * GIB,
    kernel="6.8.0",
    driver="570.86",
    gpus=(Gpu(index=0, name="NVIDIA GeForce RTX 4090", memory_bytes=24 * GIB),),
)
VLLM = VllmInstall(
    command=("/opt/vllm/bin/vllm",),
    python="/opt/vllm/bin/python",
    version="0.32.0",
    torch_version="2.13.0",
    device=Device.CUDA,
)
ENVIRONMENT = Environment(machine=MACHINE, vllm=VLLM)
MODEL = Model(
    name="acme/Chat-8B",
    architecture="LlamaForCausalLM",
    max_model_len=131072,
    weight_bytes=16 * GIB,
    has_mtp=True,
)
WORKLOAD = Workload(streams=(1, 4, 16), prompts=8)


def space(workload: Workload = WORKLOAD) -> SearchSpace:
    """The one that autotune itself derives for this machine and model."""
    return default_space(MACHINE, VLLM, MODEL, workload)


@dataclass(frozen=True)
class MadeServer:
    """What `values` give; `seed` makes the noise of one launch."""

    values: Mapping[str, Value]
    seed: int

    def failure(self) -> Failure | None:
        """Why it does not work; None where it does."""
        used_gib = 16 + 1.1 * (not self.values.get("enforce_eager"))
        available = 24 * self._float("gpu_memory_utilization", 0.92) - used_gib
        length = self._float("max_model_len", 131072)
        needed = length * 2**17 / GIB * (0.5 if self.values.get("kv_cache_dtype") == "fp8" else 1.0)
        if self.values and needed > 2 * available:
            return _kv_cache_too_small(int(2 * available / needed * length), needed / 2, available)
        if self.values.get("speculation") == "mtp" and self.values.get("enable_prefix_caching") is True:
            return _incompatible()
        if self._float("gpu_memory_utilization", 0.92) > 0.935 and not self.values.get("enforce_eager"):
            return _out_of_memory(self.seed)
        return None

    def point(self, streams: int, requests: int) -> MeasuredPoint:
        """The ladder's point at `streams`, with so many raw requests."""
        noise = Random(f"{self.seed}:{streams}")  # noqa: S311
        rate = self._stream_tok_s(streams) * streams * noise.lognormvariate(0, 0.015)
        tpot_s, ttft_s = 0.92 * streams / rate, 0.06 + 0.02 * streams * noise.lognormvariate(0, 0.05)
        # The prompt goes through the heads that draft, too.
        ttft_s *= 1.5 if self.values.get("speculation") == "mtp" else 1.0
        done = max(16, round(rate * 20 / 128))
        raw = tuple(_request(number, streams, ttft_s, tpot_s) for number in range(requests))
        point = Point(
            streams=streams,
            window_s=20.0,
            out_tok_s=rate,
            prompt_tok_s=4 * rate,
            req_s=rate / 128,
            ttft_s=_quantiles(ttft_s, done, 1.4),
            tpot_s=_quantiles(tpot_s, done, 1.1),
            e2e_s=_quantiles(ttft_s + 127 * tpot_s, done, 1.05),
            done=done,
            failed=0,
        )
        return MeasuredPoint(point=point, window=(2.0, 22.0), requests=raw)

    def _stream_tok_s(self, streams: int) -> float:
        """Tokens a second that each stream sees."""
        rate = 62.0 / (1 + streams / 40)
        rate *= 0.72 if self.values.get("enforce_eager") else 1.0
        rate *= 1.03 if self.values.get("performance_mode") == "interactivity" and streams == 1 else 1.0
        speculation = self.values.get("speculation")
        if speculation == "ngram":
            rate *= 1 + 0.04 * self._float("ngram_tokens", 4) * (1 - streams / 12)
        if speculation == "mtp":
            rate *= 1.45 - 0.02 * streams
        running = min(1.0, self._float("max_num_seqs", 256) / streams)
        batched = min(1.0, self._float("max_num_batched_tokens", 2048) / 2048) ** (0.1 if streams > 4 else 0)
        return rate * running**0.8 * batched

    def _float(self, name: str, default: float) -> float:
        value = self.values.get(name, default)
        assert not isinstance(value, str)
        return float(value)


def _quantiles(p50: float, n: int, spread: float) -> Quantiles:
    return Quantiles(
        n=n,
        p50=p50,
        p90=p50 * spread if n >= 64 else None,
        p95=p50 * spread**1.3 if n >= 130 else None,
        intervals={"p50": Interval(low=0.97 * p50, high=1.04 * p50)},
    )


def _request(number: int, streams: int, ttft_s: float, tpot_s: float) -> RequestRecord:
    sent_s = 0.05 * number
    chunk_s = tuple(sent_s + ttft_s + k * tpot_s for k in range(8))
    return RequestRecord(
        stream=number % streams,
        sequence=number // streams,
        prompt_index=number % 8,
        sent_s=sent_s,
        chunk_s=chunk_s,
        ended_s=chunk_s[-1],
        wanted_output_tokens=8,
        prompt_tokens=512,
        output_tokens=8,
        state=RequestState.DONE,
    )


def _kv_cache_too_small(fits: int, needed_gib: float, available_gib: float) -> Failure:
    return Failure(
        kind=FailureKind.KV_CACHE_TOO_SMALL,
        phase=Phase.KV_CACHE,
        blame=Blame.CONFIGURATION,
        why=f"The KV cache holds {available_gib:.2f} GiB; one request of full length needs {needed_gib:.2f}.",
        cure=f"Lower max_model_len to {fits}, or raise gpu_memory_utilization.",
        rule="kv-cache-too-small",
        root_line=f"ValueError: To serve at least one request, {needed_gib:.2f} GiB KV cache is needed",
        line_number=212,
        numbers={"needed_gib": needed_gib, "available_gib": available_gib, "estimated_len": float(fits)},
    )


def _incompatible() -> Failure:
    return Failure(
        kind=FailureKind.INCOMPATIBLE,
        phase=Phase.FIRST_REQUEST,
        blame=Blame.CONFIGURATION,
        why="Prefix caching and this way of drafting contradict each other in the attention bookkeeping.",
        cure="Switch one of the two off.",
        rule="attention-metadata-assertion",
        root_line="AssertionError: num_decodes + num_prefills == num_reqs",
        line_number=480,
    )


def _out_of_memory(seed: int) -> Failure:
    return Failure(
        kind=FailureKind.GPU_OOM,
        phase=Phase.GRAPHS,
        blame=Blame.CONFIGURATION,
        why="The GPU ran out of memory while CUDA graphs were captured.",
        cure="Lower gpu_memory_utilization.",
        root_line=f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {100 + seed % 7}.00 MiB.",
        line_number=391,
    )
