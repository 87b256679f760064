"""`autotune compare`: how much two configurations differ, and how sure that is."""

from typing import Annotated

import msgspec
import typer

from autotune.cli.console import errors_as_sentences, out, print_json
from autotune.cli.options import AsJson, Database
from autotune.decide import compare as decide
from autotune.domain.metric import METRICS, metric_names
from autotune.errors import UserError
from autotune.report.compare import comparison, comparison_document
from autotune.wiring.compare import read_side

_SIDE = "A trial (17, or study.db:17), a study (study.db: its best), or a bench result (a.json)."


def compare(
    first: Annotated[str, typer.Argument(metavar="A", help=_SIDE)],
    second: Annotated[str, typer.Argument(metavar="B", help="The other one; ratios are B to A.")],
    db: Database = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Metric to compare, can be repeated: {metric_names()}. "
            f"Default: {', '.join(decide.DEFAULT_METRICS)}."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare two trials, studies or bench results at each stream count, with intervals.

    All measured trials of the same configuration in a study count as repeats of it.

    Example:  autotune compare 0 17      autotune compare old.db new.db      autotune compare a.json b.json
    """
    with errors_as_sentences():
        for name in metric or ():
            if name not in METRICS:
                raise UserError(f"--metric {name!r}: there is no such metric; choose from {metric_names()}")
        found = decide.compare(
            read_side(first, db), read_side(second, db), tuple(metric or decide.DEFAULT_METRICS)
        )
        if as_json:
            print_json(msgspec.json.encode(comparison_document(found)).decode())
        else:
            out.print(comparison(found))
