"""`autotune ablate`: what is each setting of the winner worth, and which of them can go?"""

import time
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from autotune.cli.console import err, errors_as_sentences, out, print_json
from autotune.cli.options import AsJson, Database, StartupTimeout, VllmPath, budget_seconds
from autotune.cli.progress import RunView
from autotune.cli.run import finish, stop_on_signals
from autotune.decide.ablation.findings import Ablation
from autotune.report import words
from autotune.report.ablation import ablation_document, ablation_table, conclusion
from autotune.units import format_duration
from autotune.wiring.ablate import AblateRequest, PreparedAblation, prepare_ablation, run_ablation
from autotune.wiring.run import make_interrupt


def ablate(
    db: Database = None,
    trial: Annotated[
        int | None, typer.Option(help="Look into this trial. Default: what `autotune best` names.")
    ] = None,
    budget: Annotated[str, typer.Option(help="Wall-clock time, all included: 30m, 1h30m.")] = "1h",
    vllm: VllmPath = None,
    startup_timeout: StartupTimeout = None,
    as_json: AsJson = False,
) -> None:
    """Put each setting of the best configuration back to its default, one at a time, and measure again.

    Each is launched beside the winner, block after block, until what it is worth is known. What made no
    difference is then left out together and measured once more; if nothing is lost, best --export drops it.
    The same command again goes on. Ctrl-C stops cleanly and keeps everything.

    Example:  autotune ablate --budget 1h      then   autotune best --export launch.sh
    """
    begun_s = time.monotonic()
    with errors_as_sentences():
        request = AblateRequest(
            begun_s=begun_s,
            budget_s=budget_seconds("--budget", budget),
            database=db,
            trial=trial,
            vllm=vllm,
            startup_s=budget_seconds("--startup-timeout", startup_timeout) if startup_timeout else None,
        )
        with err.status("Looking at the study and at vLLM ..."):
            prepared = prepare_ablation(request)
        interrupt = make_interrupt(prepared.study)
        _announce(prepared)
        spec = prepared.study.spec
        view = RunView(spec.objectives, interrupt, spec.metric_limits)
        with stop_on_signals(interrupt), view:
            end, ablation = run_ablation(prepared, view, interrupt)
        if as_json:
            document = {"study": spec.name, "ablation": ablation_document(ablation)}
            print_json(msgspec.json.encode(document).decode())
        else:
            _print(ablation)
        finish(end)


def _announce(prepared: PreparedAblation) -> None:
    spec, winner = prepared.study.spec, prepared.winner
    err.print(
        Text(
            f"Study {spec.name}: which settings of trial {winner.number} matter "
            f"({words.configuration(winner.configuration)}), budget "
            f"{format_duration(prepared.study.budget_s)}."
        ),
        soft_wrap=True,
    )


def _print(ablation: Ablation) -> None:
    blocks = words.counted(ablation.blocks, "block")
    out.print(Text(f"Trial {ablation.winner.number}, launched in {blocks} beside itself without a setting:"))
    out.print(ablation_table(ablation))
    out.print(Text(conclusion(ablation)), soft_wrap=True)
