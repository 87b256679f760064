"""The columns of every frame: name, type and meaning. `docs/api.md` shows them as tables."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

from autotune.domain.measurement import ClientLoad, ServerCounts
from autotune.domain.metric import FLOORS, LATENCIES, METRICS, IntervalBy
from autotune.domain.objective import Objective

SETTING = "set_"
"""What the name of a column begins with that holds a parameter of the search space."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Columns of one pandas type that have one meaning."""

    names: tuple[str, ...]
    dtype: str
    meaning: str


def column_of(objective: Objective) -> str:
    """Its name in a frame: `out_tok_s@16`, and with the unit that a quantile's name lacks, `ttft_p95_s@4`."""
    return f"{_column(objective.metric)}@{objective.streams}"


def _column(metric: str) -> str:
    return f"{metric}_s" if METRICS[metric].unit == "s" else metric


def dtypes(table: Sequence[Columns]) -> dict[str, str]:
    """The type of each column, in their order."""
    return {name: columns.dtype for columns in table for name in columns.names}


def _one(name: str, dtype: str, meaning: str) -> Columns:
    return Columns(names=(name,), dtype=dtype, meaning=meaning)


_TRIAL = _one("trial", "int64", "number of the trial")

TRIALS = (
    _TRIAL,
    _one("state", "str", "`measured`, `abandoned`, `failed`, `interrupted` or `running`"),
    _one(
        "origin",
        "str",
        "why it was tried: `baseline`, `flip`, `expert`, `sampled`, `local`, `audit`, `retry`, `isolation`, "
        "`control`, `final`, `ablation`",
    ),
    _one("block", "Int64", "block of finals or an ablation, from 0"),
    _one("on_front", "bool", "whether it stands for a configuration on the Pareto front"),
    _one("keeps_limits", "boolean", "whether it keeps all limits of the study by itself"),
    _one("context_tokens", "Int64", "context that it allows: what vLLM took, else what was asked for"),
    _one("started_at", "datetime64[us, UTC]", "when it was launched"),
    _one("finished_at", "datetime64[us, UTC]", "when its server was gone"),
    Columns(
        names=("launch_s", "smoke_s", "measure_s", "stop_s"),
        dtype="float64",
        meaning="how long each step took",
    ),
    _one("outcome", "str", "what came of it, in words"),
    _one("failure_kind", "str", "kind of its failure"),
    _one("configuration", "str", "its settings, in words"),
    _one("command", "str", "the command that starts its server, without host and port"),
    _one("log_path", "str", "where its log was written"),
)
"""Beside them a column for each objective of the study and one for each parameter (`set_*`)."""

FRONT = (
    _TRIAL,
    _one("launches", "int64", "measured trials of the configuration; its values are their geometric means"),
    _one("context_tokens", "Int64", "context that it allows"),
    _one("configuration", "str", "its settings, in words"),
)
"""Beside them a column for each limit and each of the objectives, and one for each parameter (`set_*`)."""

_SERVER_MEANINGS = {
    "generation_tokens": "output tokens, by the server's own count in the window; so are the others here",
    "prompt_tokens": "prompt tokens",
    "prefix_queries": "prompt tokens looked up in the prefix cache",
    "prefix_hits": "those of them that were in it",
    "preemptions": "running requests thrown out because the KV cache was full",
    "drafts": "drafts of speculative decoding",
    "draft_tokens": "tokens drafted",
    "accepted_tokens": "drafted tokens that were right",
    "out_tok_s": "the server's own rate of output tokens, per second",
    "running": "requests it worked on at once, on average",
    "waiting": "requests in its queue, on average",
    "prefix_hit_rate": "share of prompt tokens that the prefix cache saved",
    "acceptance_rate": "share of the drafted tokens that were right",
    "mean_accepted_length": "tokens that one draft brought on average, with the model's own",
}
_COUNTS = {field.name for field in fields(ServerCounts)} - {"out_tok_s", "running", "waiting"}

_CLIENT_MEANINGS = {
    "cpu_share": "processor time of the load generator's busiest process, as a share of one core",
    "loop_lag_p99_s": "how late its event loop got to things that were due, 99th percentile",
    "run_queue_s": "how long it waited for a processor, all of the window",
    "involuntary_switches": "how often it was taken off a processor",
    "processes": "processes that made the load",
}
_CLIENT_COUNTS = {"involuntary_switches", "processes"}


def _rates() -> Iterator[Columns]:
    quantiles = {f"{latency}_{quantile}" for latency in LATENCIES for quantile in FLOORS}
    for metric in METRICS.values():
        if metric.name in quantiles:
            continue
        ends = ("_low", "_high") if metric.interval_by is not IntervalBy.REPEATS else ()
        names = (_column(metric.name), *(f"{metric.name}{end}" for end in ends))
        yield Columns(
            names=names, dtype="float64", meaning=_with_interval(metric.meaning, has_ends=bool(ends))
        )


def _latencies() -> Iterator[Columns]:
    for name, latency in LATENCIES.items():
        has_ends = latency.interval_by is not IntervalBy.REPEATS
        ends = ("", "_low", "_high") if has_ends else ("",)
        names = tuple(f"{name}_{quantile}{end}_s" for quantile in FLOORS for end in ends)
        meaning = _with_interval(f"quantiles of {latency.meaning}", has_ends=has_ends)
        yield Columns(names=names, dtype="float64", meaning=meaning)
        yield _one(f"{name}_n", "int64", f"{latency.counted} that these quantiles are of")


def _with_interval(meaning: str, *, has_ends: bool) -> str:
    return f"{meaning}; `low` and `high` are the ends of the 95 % interval" if has_ends else meaning


POINTS = (
    _TRIAL,
    _one("origin", "str", "why the trial was made"),
    _one("state", "str", "how the trial ended"),
    _one("block", "Int64", "block of finals or an ablation, from 0"),
    _one("streams", "int64", "concurrent streams"),
    _one("window_s", "float64", "length of the window"),
    _one("done_requests", "int64", "requests that finished in the window"),
    _one("failed_requests", "int64", "requests that failed"),
    *_rates(),
    *_latencies(),
    _one("slo_met_requests", "Int64", "requests that kept every service-level objective"),
    _one("slo_judged_requests", "Int64", "requests that were judged by them"),
    *(
        _one(f"server_{name}", "Int64" if name in _COUNTS else "float64", meaning)
        for name, meaning in _SERVER_MEANINGS.items()
    ),
    *(
        _one(f"client_{name}", "Int64" if name in _CLIENT_COUNTS else "float64", meaning)
        for name, meaning in ((field.name, _CLIENT_MEANINGS[field.name]) for field in fields(ClientLoad))
    ),
    _one("suspect", "bool", "whether its numbers are in doubt"),
    _one("flags", "str", "what a reader has to know, in words"),
    _one("discarded", "str", "why earlier measurements of it were thrown away"),
    _one("errors", "str", "each error text with how often it was seen"),
)
"""Beside them a column for each parameter (`set_*`)."""

REQUESTS = (
    _TRIAL,
    _one("streams", "int64", "concurrent streams of the point"),
    Columns(
        names=("window_begin_s", "window_end_s"),
        dtype="float64",
        meaning="the window of the point; all times count from the point's start",
    ),
    _one("stream", "int64", "which of the streams sent it"),
    _one("sequence", "int64", "its place in that stream"),
    _one("prompt_index", "int64", "which prompt of the workload"),
    _one("state", "str", "`done`, `cut` (still running at the end of the point) or `failed`"),
    _one("shortened", "bool", "whether less output was asked for, to bring the streams out of step"),
    _one("sent_s", "float64", "when it was sent"),
    _one("ended_s", "float64", "when it was over"),
    _one("ttft_s", "float64", "from sending it to its first output"),
    _one("tpot_s", "float64", "for each output token after the first"),
    _one("e2e_s", "float64", "from sending it to its last output; none of a shortened one"),
    _one("max_gap_s", "float64", "longest time between two chunks of its output"),
    _one("chunks", "int64", "chunks of output; one can hold several tokens"),
    _one("wanted_output_tokens", "int64", "output tokens asked for"),
    _one("prompt_tokens", "Int64", "prompt tokens, by the server's count"),
    _one("output_tokens", "Int64", "output tokens, by the server's count"),
    _one("error", "str", "why it failed"),
)
"""With `gaps=True` also `chunk_gaps_s`: an array of the seconds before each chunk, the first from sending."""

FAILURES = (
    _TRIAL,
    _one("origin", "str", "why the trial was made"),
    _one("kind", "str", "what happened"),
    _one("phase", "str", "how far the server had come"),
    _one("blame", "str", "who has to change something: `configuration`, `environment`, `user`, `unknown`"),
    _one("why", "str", "the reason in plain words"),
    _one("cure", "str", "what to change; empty when nothing is known"),
    _one("root_line", "str", "the line of the log that is the cause"),
    _one("line_number", "Int64", "its number in the log"),
    _one("process", "str", "the process that wrote it"),
    _one("rule", "str", "the rule that named it"),
    _one("source", "str", "where the rule comes from"),
    _one("confidence", "float64", "how sure the naming is, 0 to 1"),
    _one("spent_s", "float64", "what the trial cost"),
    _one("lesson", "Int64", "lesson that it taught"),
    _one("configuration", "str", "the settings, in words"),
)
"""Beside them a column for each parameter (`set_*`)."""

LESSONS = (
    _one("lesson", "int64", "number of the lesson"),
    _one("form", "str", "`bound` (a region), `no_good` (what does not go together) or `ban` (a value)"),
    _one("forbids", "str", "what is not launched again"),
    _one("why", "str", "the reason in plain words"),
    _one("kind", "str", "kind of the failure that taught it"),
    _one("trial", "int64", "trial that taught it"),
    _one("study", "str", "study of that trial"),
    _one("standing", "str", "`applies`, or why it does not count"),
    _one("vllm_version", "str", "the vLLM it was taught by"),
    _one("model", "str", "the model it was taught with"),
    _one("architecture", "str", "of that model"),
    _one("device", "str", "the device it was taught on"),
)


def markdown(table: Sequence[Columns]) -> str:
    """A table for the documentation."""
    head = ["| column | type | what it is |", "|---|---|---|"]
    rows = [
        f"| {', '.join(f'`{name}`' for name in columns.names)} | {columns.dtype} | {columns.meaning} |"
        for columns in table
    ]
    return "\n".join([*head, *rows])
