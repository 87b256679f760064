"""The script that starts exactly the server of a trial, to be deployed in the morning."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from shlex import quote

from autotune import __version__
from autotune.decide.ablation.findings import Ablation
from autotune.decide.verdict import Verdict
from autotune.domain.objective import Objective
from autotune.domain.study import StudyInfo
from autotune.domain.trial import TrialRecord
from autotune.report import words
from autotune.report.ablation import kept_and_dropped
from autotune.report.limits import limit_sentences
from autotune.report.verdict import standing

_LISTEN = ('--host "${HOST:-127.0.0.1}"', '--port "${PORT:-8000}"')


def launch_script(
    info: StudyInfo,
    found: Verdict,
    now: datetime,
    objectives: Sequence[Objective] | None = None,
    ablation: Ablation | None = None,
) -> str:
    """A POSIX shell script for the chosen trial; `objectives` are those it was chosen by, else the study's.
    HOST and PORT come from its environment, loopback and 8000 by default.

    What an `ablation` of it has shown to be droppable is left out. Every value is quoted for the shell, and a
    comment never holds a line break.
    """
    reduced = ablation.reduced if ablation else None
    record = reduced.record if reduced and reduced.record else found.chosen
    header = _header(info, found, record, now, objectives or info.objectives)
    if ablation is not None:
        header = [*header, "", *kept_and_dropped(ablation)]
    lines = ["#!/bin/sh", *(f"# {_one_line(text)}".rstrip() for text in header)]
    exports = [f"export {name}={quote(value)}" for name, value in record.env.items()]
    parts = [quote(record.argv[0]), *_grouped(record.argv[1:]), *_LISTEN, '"$@"']
    command = "exec " + " \\\n    ".join(parts)
    return "\n".join([*lines, "set -eu", "", *exports, *([""] if exports else []), command, ""])


def _header(
    info: StudyInfo, found: Verdict, record: TrialRecord, now: datetime, objectives: Sequence[Objective]
) -> Sequence[str]:
    machine = info.environment.machine
    gpus = ", ".join(gpu.name for gpu in machine.gpus) or "no GPU"
    return [
        f"vLLM server configuration found by autotune {__version__} on {now:%Y-%m-%d %H:%M} UTC",
        "",
        f"model    {info.model}",
        f"vLLM     {info.environment.vllm.version} on {info.environment.vllm.device}",
        f"machine  {machine.hostname}: {machine.cpu_model}, {len(machine.cpu_ids)} CPUs, "
        f"{machine.memory_bytes / 2**30:.0f} GiB, {gpus}",
        f"study    {info.name}, trial {record.number}: {words.configuration(record.configuration)}",
        *(
            [f"from     trial {found.chosen.number}, of which the figures are"]
            if record is not found.chosen
            else []
        ),
        f"load     {info.workload.prompt_tokens} prompt and {info.workload.output_tokens} output tokens each",
        "",
        *_claim(found, objectives),
        "",
        "HOST and PORT may be set in the environment; further arguments are passed on.",
    ]


def _claim(found: Verdict, objectives: Sequence[Objective]) -> Iterator[str]:
    """What is known of its speed, and from what."""
    if not found.keeps_baseline:
        yield f"gain     {standing(found, objectives)}"
    elif found.rival is not None:
        yield "gain     these are vLLM's defaults; the best of the others:"
        yield f"         {standing(found, objectives)}"
    for sentence in limit_sentences(found):
        yield f"limits   {sentence}"
    yield ""
    yield "Output tokens per second by concurrent streams:"
    own = "baseline" if found.keeps_baseline else "other"
    yield f"  this configuration  {_rates(found, own)}"
    if not found.keeps_baseline and found.baseline is not None:
        yield f"  vLLM's defaults     {_rates(found, 'baseline')}"


def _rates(found: Verdict, side: str) -> str:
    levels = [
        (rung.streams, rung.baseline if side == "baseline" else rung.other) for rung in found.per_streams
    ]
    return "  ".join(f"{streams}: {words.number(level.out_tok_s)}" for streams, level in levels if level)


def _grouped(argv: Sequence[str]) -> list[str]:
    """A flag and its values on one line."""
    groups: list[list[str]] = []
    for word in argv:
        if word.startswith("--") or not groups:
            groups.append([])
        groups[-1].append(quote(word))
    return [" ".join(group) for group in groups]


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
