"""`autotune report`: the study as one HTML file, once or kept up to date while the study runs."""

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.console import err, errors_as_sentences, out
from autotune.cli.options import Database, budget_seconds
from autotune.errors import UserError
from autotune.files.replace import replace_text
from autotune.units import format_bytes, format_duration
from autotune.wiring.open import open_store, study_database
from autotune.wiring.view import read_view
from autotune.wiring.watch import changes

_LEAST_S = 1.0


def report(
    db: Database = None,
    out_path: Annotated[Path, typer.Option("--out", help="The file to write.")] = Path("report.html"),
    watch: Annotated[
        bool, typer.Option("--watch", help="Write it again whenever the study has changed, until Ctrl-C.")
    ] = False,
    every: Annotated[str, typer.Option(help="With --watch: how often to look for changes.")] = "10s",
) -> None:
    """Write the study as one HTML file: verdict, Pareto front, ladders, timeline, failures, all trials.

    The file needs nothing else and no network: keep it, print it, send it. The study may be running.

    Example:  autotune report --db studies/qwen3-8b.db --out qwen3-8b.html
    """
    with errors_as_sentences():
        every_s = budget_seconds("--every", every)
        if every_s < _LEAST_S:
            raise UserError(f"--every {every!r}: must be at least {format_duration(_LEAST_S)}")
        database = study_database(db)
        if watch:
            _watch(database, out_path, every_s)
        else:
            _write(database, out_path)


def _write(database: str, path: Path, renewed_every_s: float | None = None) -> None:
    from autotune.report.page import page  # Plotly: half a second that no other command should pay

    with open_store(database) as store:
        text = page(read_view(store), renewed_every_s)
    replace_text(path, text)
    line = f"{path.absolute()}  ({format_bytes(len(text.encode()))}; open it in a browser)"
    out.print(line, markup=False, highlight=False, soft_wrap=True)


def _watch(database: str, path: Path, every_s: float) -> None:
    err.print("Writing the report whenever the study changes; Ctrl-C ends it.", highlight=False)
    try:
        for _ in changes(database, every_s):
            _write(database, path, every_s)
    except KeyboardInterrupt:
        # What stays is a page that does not wait for another one.
        _write(database, path)
