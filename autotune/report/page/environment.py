"""Where and how a study was measured, as labels and texts."""

from collections.abc import Iterator, Mapping

from autotune.domain.measurement import FlagKind
from autotune.domain.study import StudyInfo
from autotune.domain.workload import Workload
from autotune.report import words
from autotune.report.failure import plain
from autotune.report.view import StudyView
from autotune.units import format_bytes, format_duration

FLAGS: Mapping[FlagKind, str] = {
    FlagKind.STALLED: "All streams were silent at once for much longer than they ever are.",
    FlagKind.UNSTEADY: "The second half of the window differs from the first: it was not a steady state.",
    FlagKind.CLIENT_BOUND: "The load generator was short of processor time: latencies are partly its own.",
    FlagKind.MISCOUNTED: "Client and server disagree on the tokens.",
    FlagKind.PREFIX_HITS: "The prefix cache served prompts that have nothing in common.",
    FlagKind.ADMISSION_BOUND: "The server ran fewer requests at once than there were streams; others waited.",
    FlagKind.PREEMPTED: "The KV cache was full: the server threw out running requests and began them anew.",
}


def facts(view: StudyView) -> list[tuple[str, str]]:
    """Machine, software, model, search and time; what is not known is left out."""
    return [(label, plain(text)) for label, text in _facts(view) if text]


def _facts(view: StudyView) -> Iterator[tuple[str, str]]:
    info = view.info
    machine, vllm = info.environment.machine, info.environment.vllm
    yield "Machine", f"{machine.hostname}, kernel {machine.kernel}"
    yield "Processor", f"{machine.cpu_model}, {words.counted(len(machine.cpu_ids), 'CPU')} used"
    yield "Memory", format_bytes(machine.memory_bytes)
    yield "GPUs", ", ".join(f"{gpu.name}, {format_bytes(gpu.memory_bytes)}" for gpu in machine.gpus) or "none"
    yield "Driver", machine.driver or ""
    yield "vLLM", f"{vllm.version} on {vllm.device}"
    yield "PyTorch", vllm.torch_version or ""
    yield "Model", info.model
    yield "Architecture", info.architecture or ""
    yield "Search space", f"{info.space_name}, {words.counted(len(view.space.parameters), 'parameter')}"
    yield "Objectives", ", ".join(map(str, info.objectives))
    yield "Limits", ", ".join(map(str, info.metric_limits))
    yield "Seed", str(info.seed)
    yield "Budget", ", then ".join(format_duration(budget_s) for budget_s in view.budgets_s)


def workload_facts(info: StudyInfo) -> list[tuple[str, str]]:
    """What was sent, by how many, for how long it was looked at."""
    return [(label, plain(text)) for label, text in _workload_facts(info.workload) if text]


def _workload_facts(workload: Workload) -> Iterator[tuple[str, str]]:
    prompts = words.counted(workload.prompts, "conversation" if workload.turns > 1 else "prompt")
    origin = f"from {workload.source}" if workload.source else "of prose"
    yield "Workload", f"{workload.name}: {prompts} {origin}"
    yield "Prompt", f"{workload.prompt_tokens} tokens"
    yield "Output", f"{workload.output_tokens} tokens"
    if workload.shared_prefix_tokens:
        yield "Shared prefix", f"{workload.shared_prefix_tokens} tokens, {workload.prefix_groups} different"
    if workload.turns > 1:
        yield "Turns", str(workload.turns)
    yield "Streams", ", ".join(map(str, workload.streams))
    if workload.rate_per_stream is None:
        yield "Load", "closed loop: each stream sends its next request when its last one is answered"
    else:
        yield (
            "Load",
            f"open loop: each stream sends {workload.rate_per_stream:g} requests a second on average, "
            "whether or not earlier ones are answered",
        )
    low, high = workload.min_window_s, workload.max_window_s
    yield "Window", f"{low:g} to {high:g} s for each stream count, after warm-up"
    yield "Service levels", ", ".join(map(str, workload.slos))
