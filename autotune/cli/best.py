"""`autotune best`: the configuration to deploy, and the file that starts it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from autotune.cli.console import errors_as_sentences, out, print_json
from autotune.cli.options import AsJson, Database, MetricLimits
from autotune.cli.summary import print_verdict
from autotune.decide.ablation.examine import ablation_of
from autotune.decide.ablation.findings import Ablation
from autotune.decide.verdict import Verdict, verdict
from autotune.domain.metric_limit import instead, parse_metric_limits
from autotune.domain.objective import Objective, check_slos, check_streams
from autotune.domain.study import StudyInfo
from autotune.domain.trial import TrialRecord
from autotune.errors import EnvironmentFault, UserError
from autotune.files.space_document import read_document
from autotune.report.ablation import conclusion
from autotune.report.document import best_document
from autotune.report.launch_file import launch_script
from autotune.report.limits import nothing_to_deploy
from autotune.wiring.open import open_store, study_database


def best(
    db: Database = None,
    prefer: Annotated[
        str | None, typer.Option(help="Choose by this alone, e.g. out_tok_s@8 or ttft_p95@4.")
    ] = None,
    limit: MetricLimits = None,
    export: Annotated[
        Path | None, typer.Option(help="Write the script that starts this server, e.g. launch.sh.")
    ] = None,
    no_ablation: Annotated[
        bool, typer.Option("--no-ablation", help="Keep all its settings, whatever `autotune ablate` found.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the best configuration beside vLLM's defaults, and write its launch file.

    Best is by the geometric mean over the objectives, or by what --prefer says, of all that keep the study's
    limits and those of --limit. vLLM's defaults are best unless they break one, or finals have shown
    something to be better or, where there were none, something looks clearly so.
    Settings that `autotune ablate` has shown to be of no use are not exported.

    Example:  autotune best --export launch.sh
    """
    with errors_as_sentences(), open_store(study_database(db)) as store:
        kept, records = store.info(), list(store.records())
        if kept is None:
            raise UserError("this file has no study in it yet")
        info = _limited(kept, limit or ())
        wanted = Objective.parse(prefer) if prefer else None
        found = verdict(records, info.objectives, wanted, info.metric_limits)
        if found is None:
            why = nothing_to_deploy(records, [wanted] if wanted else info.objectives, info.metric_limits)
            raise UserError(f"{why} All trials: autotune show")
        ablation = None if no_ablation else _ablation(info, records, found)
        if export is not None:
            chosen_by = [wanted] if wanted else info.objectives
            _write(export, launch_script(info, found, datetime.now(UTC), chosen_by, ablation))
        if as_json:
            document = best_document(info, store.budgets_s(), records, found, ablation)
            print_json(msgspec.json.encode(document).decode())
            return
        print_verdict(info, records, found, wanted)
        if ablation is not None:
            out.print(Text(conclusion(ablation)), soft_wrap=True)
        if export is not None:
            out.print(f"Start it with:  {export.absolute()}", markup=False, highlight=False, soft_wrap=True)


def _ablation(info: StudyInfo, records: Sequence[TrialRecord], found: Verdict) -> Ablation | None:
    space = read_document(info.space, info.name)
    return ablation_of(space, info.objectives, info.metric_limits, records, found.chosen)


def _limited(info: StudyInfo, texts: Sequence[str]) -> StudyInfo:
    """The study with these limits, which go before its own of the same metric. Raises UserError."""
    limits = parse_metric_limits(texts)
    measured = [limit.measured for limit in limits]
    check_streams(measured, info.workload.streams, "limit")
    check_slos(measured, info.workload.slos, "limit")
    return replace(info, metric_limits=instead(info.metric_limits, limits))


def _write(path: Path, script: str) -> None:
    """Put an executable script at `path`. Raises UserError, EnvironmentFault."""
    if path.suffix != ".sh":
        raise UserError(f"--export {path}: a launch file ends in .sh")
    try:
        path.write_text(script, encoding="utf-8")
        path.chmod(0o755)
    except OSError as error:
        raise EnvironmentFault(f"--export {path}: cannot be written: {error.strerror}") from None
