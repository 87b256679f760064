"""Keeps what was run again, beside the trials of a study and apart from them."""

from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy import Engine, RowMapping, select, update

from autotune.domain.failure import Failure
from autotune.domain.recheck import Recheck, Verdict
from autotune.domain.server import ServerMark
from autotune.store import codec
from autotune.store.connection import insert_row, transaction
from autotune.store.schema import recheck


class RecheckStore:
    """The rechecks of one study. Each method is one transaction. Raises StoreError."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def begin(self, trial_number: int, vllm_version: str, mark: ServerMark, now: datetime) -> int:
        """Keep that a trial is about to be run again; returns the key of this recheck."""
        row = {
            "trial_number": trial_number,
            "vllm_version": vllm_version,
            "started_at": codec.utc(now),
            "log_path": mark.log_path,
            "mark": codec.to_json(mark),
        }
        with transaction(self._engine) as connection:
            return insert_row(connection, recheck, row)

    def set_mark(self, key: int, mark: ServerMark) -> None:
        """Add the pid of the spawned server."""
        self._update(key, {"mark": codec.to_json(mark)})

    def finish(self, key: int, verdict: Verdict, failure: Failure | None, now: datetime) -> None:
        """Keep what became of it."""
        failed = None if failure is None else codec.to_json(failure)
        self._update(key, {"verdict": verdict.value, "failure": failed, "finished_at": codec.utc(now)})

    def finished(self) -> Sequence[Recheck]:
        """Those that have an end, in the order in which they were run."""
        query = select(recheck).where(recheck.c.verdict.is_not(None)).order_by(recheck.c.id)
        with transaction(self._engine) as connection:
            return [_recheck_of(row) for row in connection.execute(query).mappings()]

    def unfinished(self) -> Sequence[tuple[int, ServerMark]]:
        """Key and server of those whose autotune was killed."""
        query = select(recheck).where(recheck.c.verdict.is_(None)).order_by(recheck.c.id)
        with transaction(self._engine) as connection:
            rows = connection.execute(query).mappings().all()
        return [(row["id"], codec.from_json(row["mark"], ServerMark)) for row in rows]

    def _update(self, key: int, columns: dict[str, object]) -> None:
        with transaction(self._engine) as connection:
            connection.execute(update(recheck).where(recheck.c.id == key).values(**columns))


def _recheck_of(row: RowMapping) -> Recheck:
    return Recheck(
        trial_number=row["trial_number"],
        vllm_version=row["vllm_version"],
        started_at=row["started_at"].replace(tzinfo=UTC),
        finished_at=row["finished_at"].replace(tzinfo=UTC),
        verdict=Verdict(row["verdict"]),
        failure=None if row["failure"] is None else codec.from_json(row["failure"], Failure),
        log_path=row["log_path"],
    )
