"""`autotune recheck`: does another vLLM cure what failed in a study?"""

import time
from typing import Annotated

import msgspec
import typer
from rich.status import Status
from rich.text import Text

from autotune.cli.console import INTERRUPTED, err, errors_as_sentences, out, print_json
from autotune.cli.options import AsJson, Database, VllmPath, budget_seconds
from autotune.cli.run import stop_on_signals
from autotune.domain.recheck import Recheck
from autotune.domain.trial import Interruption, Step, TrialRecord
from autotune.report.rechecks import recheck_document, recheck_lines, recheck_summary
from autotune.wiring.recheck import RecheckWatch, recheck_interrupt, run_rechecks
from autotune.wiring.recheck_plan import RecheckPlan, plan_recheck

_DOING = {
    Step.LAUNCH: "starting the server",
    Step.SMOKE: "first request",
    Step.MEASURE: "a few more requests",
    Step.STOP: "stopping the server",
}


def recheck(
    vllm: VllmPath = None,
    db: Database = None,
    budget: Annotated[str, typer.Option(help="Wall-clock time, all included: 10m, 1h30m.")] = "30m",
    as_json: AsJson = False,
) -> None:
    """Try again, shortly, what failed in a study for a bug or an incompatibility of vLLM.

    Each configuration is launched and asked for a few completions, one of each failure first. The trials of
    the study stay as they are.

    Example:  autotune recheck --vllm ~/vllm-nightly/bin/vllm --budget 20m
    """
    begun_s = time.monotonic()
    with errors_as_sentences():
        budget_s = budget_seconds("--budget", budget)
        with err.status("Looking at the study and at vLLM ..."):
            plan = plan_recheck(db, vllm)
        interrupt = recheck_interrupt(plan, begun_s + budget_s)
        view = _View(plan, quiet=as_json)
        with stop_on_signals(interrupt), view.status:
            if plan.trials:
                run_rechecks(plan, view.watch, interrupt)
        left = plan.trials[len(view.results) :]
        version = plan.vllm.version
        if as_json:
            document = recheck_document(plan.info, version, view.results, left)
            print_json(msgspec.json.encode(document).decode())
        elif not plan.trials:
            out.print("No trial of this study failed for a reason that another vLLM could cure.")
        else:
            results = [result for _, result in view.results]
            out.print(Text(recheck_summary(results, len(left), version)), soft_wrap=True)
        if interrupt.reason is Interruption.USER:
            raise typer.Exit(INTERRUPTED)


class _View:
    """Shows what is done now, and each result as soon as it is there."""

    def __init__(self, plan: RecheckPlan, *, quiet: bool) -> None:
        self.results: list[tuple[TrialRecord, Recheck]] = []
        self.status = Status("", console=err)
        self.watch = RecheckWatch(step=self._step, done=self._done, note=self._note)
        self._plan = plan
        self._quiet = quiet

    def _step(self, record: TrialRecord, step: Step) -> None:
        place = f"{len(self.results) + 1} of {len(self._plan.trials)}"
        self.status.update(f"trial {record.number} ({place}): {_DOING[step]}")

    def _done(self, record: TrialRecord, result: Recheck) -> None:
        self.results.append((record, result))
        if not self._quiet:
            out.print(recheck_lines(record, result, self._plan.info.environment.vllm.version))

    def _note(self, text: str) -> None:
        err.print(Text(text, style="yellow"), soft_wrap=True)
