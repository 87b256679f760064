"""`autotune explain`: why a server failed, from its log alone."""

import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from autotune.cli.console import err, errors_as_sentences, out, print_json
from autotune.cli.options import AsJson, Database
from autotune.decide.failures.logscan import scan
from autotune.domain.failure import Failure, FailureKind, LogFinding
from autotune.domain.trial import TrialRecord
from autotune.errors import FileError, UserError
from autotune.files.logs import file_lines, stream_lines
from autotune.files.rules import VLLM_RULES, read_rules
from autotune.report.failure import FailureBlock, FindingBlock, failure_document, log_line
from autotune.wiring.open import open_store, study_database

NOTHING_FAILED = 1
NOT_KNOWN = 3


def explain(
    log: Annotated[
        str,
        typer.Argument(
            metavar="LOGFILE|-|TRIAL",
            help="A log of vLLM from anywhere, `-` for standard input, or the number of a trial.",
            show_default=False,
        ),
    ],
    db: Database = None,
    as_json: AsJson = False,
) -> None:
    """Name what failed in a server's log: the cause, its line, and what to change.

    Exit code 0: a failure was named. 1: the log shows none. 3: it shows one that no rule knows.

    Example:  autotune explain vllm.log      docker logs vllm 2>&1 | autotune explain -
    """
    with errors_as_sentences():
        if log.isdecimal():
            name, failure, finding = _trial(_record(db, int(log)))
        elif log == "-":
            name, finding = "standard input", _scan(stream_lines(sys.stdin.buffer, "standard input"))
            failure = finding.failure
        else:
            name, finding = log, _scan(file_lines(Path(log)))
            failure = finding.failure
        if as_json:
            print_json(msgspec.json.encode(failure_document(failure)).decode())
        else:
            if failure is not None:
                out.print(FailureBlock(failure))
            if finding is not None:
                out.print(FindingBlock(replace(finding, failure=failure)))
                out.print(log_line(finding, name), soft_wrap=True)
        if failure is None:
            raise typer.Exit(NOTHING_FAILED)
        if failure.kind is FailureKind.UNKNOWN:
            raise typer.Exit(NOT_KNOWN)


def _scan(lines: Iterable[str]) -> LogFinding:
    return scan(lines, read_rules(VLLM_RULES))


def _record(db: str | None, number: int) -> TrialRecord:
    """Trial `number` of the study. Raises UserError when there is none."""
    with open_store(study_database(db)) as store:
        records = store.records()
    record = next((r for r in records if r.number == number), None)
    if record is None:
        raise UserError(
            f"there is no trial {number}; the study has {len(records)}, numbered from 0 "
            f"(a file of that name is ./{number})"
        )
    return record


def _trial(record: TrialRecord) -> tuple[str, Failure | None, LogFinding | None]:
    """What the log of a trial is called, its failure, and what the log says of it, if it is still there.

    The failure is the one kept with the trial, which was named with more than the log; unless it is of a
    kind not known, and today's rules know it.
    """
    kept = record.failure
    if record.log_path is None:
        if kept is None:
            raise UserError(f"trial {record.number} was never launched, so it has no log")
        return "", kept, None
    try:
        finding = _scan(file_lines(Path(record.log_path)))
    except FileError as error:
        if kept is None:
            raise
        err.print(f"{error}; shown is what was kept of it", markup=False, highlight=False, soft_wrap=True)
        return "", kept, None
    found = finding.failure
    if kept is None:
        return record.log_path, found, finding
    newly_known = kept.kind is FailureKind.UNKNOWN and found is not None and found.rule is not None
    # Of a very long log only both ends were read when the trial failed, so its lines were counted otherwise.
    same = found is not None and (found.rule, found.root_line) == (kept.rule, kept.root_line)
    return record.log_path, found if newly_known or same else kept, finding
