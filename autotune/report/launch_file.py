"""The script that starts exactly the server of a trial, to be deployed in the morning."""

from collections.abc import Sequence
from datetime import datetime
from shlex import quote

from autotune import __version__
from autotune.domain.study import StudyInfo
from autotune.domain.trial import TrialRecord
from autotune.report import words

_LISTEN = ('--host "${HOST:-127.0.0.1}"', '--port "${PORT:-8000}"')


def launch_script(info: StudyInfo, record: TrialRecord, baseline: TrialRecord | None, now: datetime) -> str:
    """A POSIX shell script. HOST and PORT come from its environment, loopback and 8000 by default.

    Every value is quoted for the shell, and a comment never holds a line break.
    """
    lines = ["#!/bin/sh", *(f"# {_one_line(text)}".rstrip() for text in _header(info, record, baseline, now))]
    exports = [f"export {name}={quote(value)}" for name, value in record.env.items()]
    parts = [quote(record.argv[0]), *_grouped(record.argv[1:]), *_LISTEN, '"$@"']
    command = "exec " + " \\\n    ".join(parts)
    return "\n".join([*lines, "set -eu", "", *exports, *([""] if exports else []), command, ""])


def _header(
    info: StudyInfo, record: TrialRecord, baseline: TrialRecord | None, now: datetime
) -> Sequence[str]:
    machine = info.environment.machine
    gpus = ", ".join(gpu.name for gpu in machine.gpus) or "no GPU"
    lines = [
        f"vLLM server configuration found by autotune {__version__} on {now:%Y-%m-%d %H:%M} UTC",
        "",
        f"model    {info.model}",
        f"vLLM     {info.environment.vllm.version} on {info.environment.vllm.device}",
        f"machine  {machine.hostname}: {machine.cpu_model}, {len(machine.cpu_ids)} CPUs, "
        f"{machine.memory_bytes / 2**30:.0f} GiB, {gpus}",
        f"study    {info.name}, trial {record.number}: {words.configuration(record.configuration)}",
        f"load     {info.workload.prompt_tokens} prompt and {info.workload.output_tokens} output tokens each",
        "",
        "Measured once, output tokens per second by concurrent streams:",
        f"  this configuration  {_rates(record)}",
    ]
    if baseline is not None and baseline.number != record.number:
        lines.append(f"  vLLM's defaults     {_rates(baseline)}")
    return [*lines, "", "HOST and PORT may be set in the environment; further arguments are passed on."]


def _rates(record: TrialRecord) -> str:
    return "  ".join(f"{point.streams}: {words.number(point.out_tok_s)}" for point in record.points)


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
