"""Finding and opening a study file, to read it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autotune.errors import UserError
from autotune.store.connection import database_url, open_engine
from autotune.store.evidence import EvidenceStore
from autotune.store.read_only import open_read_only


def study_database(ref: str | None) -> str:
    """The study file to read: `ref`, or the one in studies/ that was written last. Raises UserError."""
    if ref is not None:
        return ref
    files = sorted(Path("studies").glob("*.db"), key=lambda path: path.stat().st_mtime)
    if not files:
        raise UserError("no study file in studies/; name one with --db, or begin with: autotune run MODEL")
    return str(files[-1])


@contextmanager
def open_store(database: str, *, create: bool = False) -> Iterator[EvidenceStore]:
    """The evidence of a study file, to read it."""
    engine = open_engine(database_url(database), create=create)
    try:
        yield EvidenceStore(engine)
    finally:
        engine.dispose()


@contextmanager
def look_into(database: str) -> Iterator[EvidenceStore]:
    """The same, of a file that is not touched: one of another schema is an error. Raises StoreError."""
    engine = open_read_only(database_url(database))
    try:
        yield EvidenceStore(engine)
    finally:
        engine.dispose()
