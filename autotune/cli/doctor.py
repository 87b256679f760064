"""`autotune doctor`: is this machine ready, and what is in the way."""

from typing import Annotated

import msgspec
import typer
from rich.text import Text

from autotune.cli.console import errors_as_sentences, out, print_json
from autotune.cli.options import AsJson, VllmPath
from autotune.domain.launch import shell_words
from autotune.domain.machine import Environment, Machine
from autotune.errors import EnvironmentFault
from autotune.host import vllm_cpu
from autotune.host.machine import read_machine
from autotune.host.vllm import find_vllm
from autotune.report.document import environment_document
from autotune.server.processes import find_any
from autotune.units import format_bytes


def doctor(
    vllm: VllmPath = None,
    as_json: AsJson = False,
    repair_vllm_cpu: Annotated[
        bool,
        typer.Option(
            "--repair-vllm-cpu",
            help="Mend the known defects of the vllm-cpu package in autotune's own virtual environment.",
        ),
    ] = False,
) -> None:
    """Show machine, driver and vLLM, and say what keeps a study from running.

    Example:  autotune doctor --vllm /opt/vllm/bin/vllm
    """
    with errors_as_sentences():
        if repair_vllm_cpu:
            for done in vllm_cpu.repair():
                out.print(Text(done), soft_wrap=True)
            return
        machine = read_machine()
        try:
            environment, problem = Environment(machine=machine, vllm=find_vllm(vllm)), None
        except EnvironmentFault as error:
            environment, problem = None, error
        if as_json:
            document = {
                "machine": msgspec.to_builtins(machine),
                "vllm": environment and environment_document(environment)["vllm"],
                "trial_server_pids": [process.pid for process in find_any()],
                "problem": problem and str(problem),
            }
            print_json(msgspec.json.encode(document).decode())
        else:
            _print(machine, environment)
        if problem is not None:
            raise problem


def _print(machine: Machine, environment: Environment | None) -> None:
    gpus = [f"{gpu.index}: {gpu.name}, {format_bytes(gpu.memory_bytes)}" for gpu in machine.gpus]
    rows = {
        "machine": f"{machine.hostname}, Linux {machine.kernel}",
        "processor": f"{machine.cpu_model}, {len(machine.cpu_ids)} CPUs usable",
        "memory": format_bytes(machine.memory_bytes),
        "GPUs": "; ".join(gpus) or "none",
        "driver": machine.driver or "none",
        "trial servers": _servers(),
    }
    if environment is not None:
        vllm = environment.vllm
        asked = "could not be asked" if vllm.flags is None else f"{len(vllm.flags)} known"
        rows["vLLM"] = f"{vllm.version} on {vllm.device}, torch {vllm.torch_version or 'unknown'}"
        rows["started with"] = shell_words(vllm.command, {})
        rows["flags"] = asked
    for name, text in rows.items():
        out.print(Text(f"{name:<14} {text}"), soft_wrap=True)


def _servers() -> str:
    """Those of a study that runs now, or left by one that was killed."""
    pids = [str(process.pid) for process in find_any()]
    if not pids:
        return "none running"
    return f"pids {', '.join(pids)}; if no study runs now, going on with theirs (`autotune run`) ends them"
