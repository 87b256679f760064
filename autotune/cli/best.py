"""`autotune best`: the configuration to deploy, and the file that starts it."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from autotune.cli.console import errors_as_sentences, out, print_json
from autotune.cli.options import AsJson, Database
from autotune.cli.summary import print_verdict
from autotune.decide.verdict import verdict
from autotune.domain.objective import Objective
from autotune.errors import EnvironmentFault, UserError
from autotune.report.document import best_document
from autotune.report.launch_file import launch_script
from autotune.wiring.open import open_store, study_database

NOTHING_MEASURED = "no trial of this study has been measured; `autotune show` tells why"


def best(
    db: Database = None,
    prefer: Annotated[
        str | None, typer.Option(help="Choose by this alone, e.g. out_tok_s@8 or ttft_p95@4.")
    ] = None,
    export: Annotated[
        Path | None, typer.Option(help="Write the script that starts this server, e.g. launch.sh.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the best configuration beside vLLM's defaults, and write its launch file.

    Best is by the geometric mean over the objectives, or by what --prefer says. vLLM's defaults are best
    unless finals have shown something to be better or, where there were none, something looks clearly so.

    Example:  autotune best --export launch.sh
    """
    with errors_as_sentences(), open_store(study_database(db)) as store:
        info, records = store.info(), list(store.records())
        wanted = Objective.parse(prefer) if prefer else None
        found = verdict(records, info.objectives, wanted) if info else None
        if info is None or found is None:
            raise UserError(NOTHING_MEASURED)
        if export is not None:
            chosen_by = [wanted] if wanted else info.objectives
            _write(export, launch_script(info, found, datetime.now(UTC), chosen_by))
        if as_json:
            print_json(msgspec.json.encode(best_document(info, store.budgets_s(), records, found)).decode())
            return
        print_verdict(info, records, found, wanted)
        if export is not None:
            out.print(f"Start it with:  {export.absolute()}", markup=False, highlight=False, soft_wrap=True)


def _write(path: Path, script: str) -> None:
    """Put an executable script at `path`. Raises UserError, EnvironmentFault."""
    if path.suffix != ".sh":
        raise UserError(f"--export {path}: a launch file ends in .sh")
    try:
        path.write_text(script, encoding="utf-8")
        path.chmod(0o755)
    except OSError as error:
        raise EnvironmentFault(f"--export {path}: cannot be written: {error.strerror}") from None
