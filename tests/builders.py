"""Domain values for tests, with everything filled in that a test does not care about."""

from datetime import UTC, datetime, timedelta

from autotune.domain.failure import Blame, Failure, FailureKind, Phase
from autotune.domain.machine import Device, Environment, Machine, VllmInstall
from autotune.domain.measurement import MeasuredPoint, Point, Quantiles, RequestRecord, RequestState
from autotune.domain.objective import Objective
from autotune.domain.space import Configuration, SearchSpace, Value
from autotune.domain.study import Limits, StudyInfo, StudySpec
from autotune.domain.trial import Failed, Measured, Origin, Outcome, Step, TrialRecord
from autotune.domain.workload import Workload

BEGIN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def point(streams: int, out_tok_s: float, *, ttft_s: float = 0.1) -> Point:
    sample = Quantiles(n=20, p50=ttft_s, p95=2 * ttft_s)
    return Point(
        streams=streams,
        window_s=10.0,
        out_tok_s=out_tok_s,
        prompt_tok_s=4 * out_tok_s,
        req_s=out_tok_s / 32,
        ttft_s=sample,
        tpot_s=sample,
        e2e_s=sample,
        done=20,
        failed=0,
    )


def request(streams: int = 1, sequence: int = 0, **changes: object) -> RequestRecord:
    fields: dict[str, object] = {
        "stream": streams,
        "sequence": sequence,
        "prompt_index": sequence,
        "sent_s": 1.25,
        "chunk_s": (1.5, 1.625, 1.75),
        "ended_s": 1.8,
        "wanted_output_tokens": 3,
        "prompt_tokens": 16,
        "output_tokens": 3,
        "state": RequestState.DONE,
    }
    return RequestRecord(**{**fields, **changes})  # type: ignore[arg-type]


def measured_point(streams: int, out_tok_s: float) -> MeasuredPoint:
    return MeasuredPoint(
        point=point(streams, out_tok_s), window=(1.0, 11.0), requests=(request(), request(sequence=1))
    )


def failure(blame: Blame = Blame.CONFIGURATION, **changes: object) -> Failure:
    fields: dict[str, object] = {
        "kind": FailureKind.KV_CACHE_TOO_SMALL,
        "phase": Phase.KV_CACHE,
        "blame": blame,
        "why": "one request does not fit",
        "cure": "max_model_len <= 3968",
    }
    return Failure(**{**fields, **changes})  # type: ignore[arg-type]


def measured(**out_tok_s: float) -> Measured:
    """`measured(s1=10, s8=50)`: output tokens per second by stream count."""
    return Measured(points=tuple(point(int(name[1:]), rate) for name, rate in out_tok_s.items()))


def failed(blame: Blame = Blame.CONFIGURATION) -> Failed:
    return Failed(failure=failure(blame))


def record(
    number: int, outcome: Outcome | None, values: dict[str, Value] | None = None, took_s: float = 60.0
) -> TrialRecord:
    values = values if values is not None else {"a": number}
    return TrialRecord(
        number=number,
        origin=Origin.SAMPLED if values else Origin.BASELINE,
        configuration=Configuration(values=values),
        argv=("/opt/vllm/bin/vllm", "serve", "/models/tiny", "--max-num-seqs", "8"),
        env={"OMP_NUM_THREADS": "2"},
        started_at=BEGIN + timedelta(minutes=number),
        finished_at=BEGIN + timedelta(minutes=number, seconds=took_s) if outcome else None,
        step_s={Step.LAUNCH: took_s / 2, Step.MEASURE: took_s / 2} if outcome else {},
        log_path="/tmp/trial.log",
        outcome=outcome,
    )


def objectives(*texts: str) -> tuple[Objective, ...]:
    return tuple(Objective.parse(text) for text in texts or ("out_tok_s@8", "out_tok_s@1"))


def spec(space: SearchSpace, **changes: object) -> StudySpec:
    fields: dict[str, object] = {
        "name": "tiny",
        "model": "/models/tiny",
        "space": space,
        "workload": Workload(streams=(1, 8)),
        "objectives": objectives(),
        "seed": 7,
        "limits": Limits(),
    }
    return StudySpec(**{**fields, **changes})  # type: ignore[arg-type]


def environment() -> Environment:
    machine = Machine(
        hostname="host", cpu_model="CPU", cpu_ids=(0, 1), memory_bytes=24 * 2**30, kernel="6.1.0"
    )
    vllm = VllmInstall(
        command=("/opt/vllm/bin/vllm",),
        python="/opt/vllm/bin/python",
        version="0.32.0+cpu",
        torch_version="2.13.0+cpu",
        device=Device.CPU,
    )
    return Environment(machine=machine, vllm=vllm)


def info(model: str = "/models/tiny") -> StudyInfo:
    return StudyInfo(
        name="tiny",
        model=model,
        space={"name": "s"},
        space_digest="0",
        workload=Workload(),
        objectives=objectives(),
        seed=0,
        environment=environment(),
    )
