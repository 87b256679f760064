"""`autotune dashboard`: the study in optuna-dashboard."""

from typing import Annotated

import typer

from autotune.cli.console import err, errors_as_sentences, out
from autotune.cli.options import Database
from autotune.wiring.dashboard import dashboard_server
from autotune.wiring.open import study_database


def dashboard(
    db: Database = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 for any free one.")
    ] = 8080,
) -> None:
    """Serve the study in optuna-dashboard on this machine, until Ctrl-C. The study may be running.

    It is a copy that keeps up with the study: each trial has its configuration, outcome, failure and cure as
    its note, the best trials are those of `autotune best`, and nothing can be changed from there.

    Example:  autotune dashboard --db studies/qwen3-8b.db
    """
    with errors_as_sentences(), dashboard_server(study_database(db), port) as server:
        out.print(
            f"http://127.0.0.1:{server.server_port}/dashboard/studies/0", highlight=False, soft_wrap=True
        )
        err.print("Open it in a browser; Ctrl-C ends it.", highlight=False)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            err.print("Ended.", highlight=False)
