"""Opening a study file: WAL, foreign keys, migrations, and the lock that lets one `autotune run` write."""

import fcntl
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Connection, Engine, Table, create_engine, event, insert
from sqlalchemy.exc import DatabaseError, DBAPIError, OperationalError
from sqlalchemy.pool import NullPool, PoolProxiedConnection

from autotune.errors import EnvironmentFault, StoreError
from autotune.store.codec import utc
from autotune.store.schema import MIGRATIONS, check_version, schema

BUSY_TIMEOUT_S = 60.0
"""How long a writer waits for another: optuna-dashboard and a report may read while trials are written."""


def database_url(ref: str) -> str:
    """The SQLAlchemy URL of a study file, or `ref` itself when it is one already."""
    return ref if "://" in ref else f"sqlite:///{Path(ref).absolute()}"


def database_path(url: str) -> Path | None:
    """The file behind an SQLite URL; None for a database server."""
    return Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else None


def open_engine(url: str, *, create: bool) -> Engine:
    """A database with the current schema, created if `create` and it is not there.

    Raises StoreError when it cannot be read or written, is no study file, or is newer than this program.
    """
    path = database_path(url)
    if path is not None:
        if create:
            _make_folder(path.parent)
        else:
            require_file(path)
    # Without a pool no file handle outlives its transaction: nothing to close, nothing to inherit.
    engine = create_engine(url, poolclass=NullPool, connect_args={"timeout": BUSY_TIMEOUT_S} if path else {})
    if path is not None:
        event.listen(engine, "connect", _configure_sqlite)
    with opening(str(path or url)):
        _migrate(engine, str(path or url), create=create)
    return engine


def require_file(path: Path) -> None:
    """Raises StoreError when there is no study file at `path`."""
    if not path.is_file():
        raise StoreError(f"{path}: no such study file; `autotune run MODEL --db {path}` would make it")


def require_study(version: int, where: str) -> None:
    """Raises StoreError when the schema is 0: that of a file without a study."""
    if version == 0:
        raise StoreError(f"{where}: has no autotune study in it")


@contextmanager
def opening(where: str) -> Iterator[None]:
    """Turn what a database says of a file that is none of its own into a StoreError."""
    try:
        yield
    except (OperationalError, DatabaseError) as error:
        raise StoreError(f"{where}: cannot be used as a study file: {error.orig}") from None


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{folder}: cannot make the folder for the study file: {error.strerror}") from None


def _configure_sqlite(connection: sqlite3.Connection, _record: PoolProxiedConnection) -> None:
    cursor = connection.cursor()
    # In WAL mode readers and the writer do not block each other; FULL keeps a commit through a power cut.
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _migrate(engine: Engine, path: str, *, create: bool) -> None:
    """Apply the steps the file lacks, each in one transaction with its own record."""
    with engine.connect() as connection:
        version = check_version(connection, path)
    if not create:
        require_study(version, path)
    for number, step in enumerate(MIGRATIONS[version:], start=version + 1):
        with engine.begin() as connection:
            schema.create(connection, checkfirst=True)
            step(connection)
            connection.execute(insert(schema).values(version=number, applied_at=utc(datetime.now(UTC))))


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """Commit all of it or nothing. Raises StoreError when the database cannot (disk full, locked)."""
    try:
        with engine.begin() as connection:
            yield connection
    except DBAPIError as error:
        raise StoreError(f"{engine.url}: the study file cannot be used: {error.orig}") from error


def insert_row(connection: Connection, table: Table, row: Mapping[str, object]) -> int:
    """Insert a row and return the key the database gave it. Raises StoreError when it gave none."""
    key = connection.execute(insert(table).values(**row)).inserted_primary_key
    if key is None:
        raise StoreError(f"{table.name}: the database gave no key for a new row")
    return int(key[0])


@contextmanager
def writer_lock(url: str) -> Iterator[None]:
    """Hold the right to run trials of a study; the kernel frees it however this process ends.

    Raises EnvironmentFault when another process holds it. A database server has no such lock.
    """
    path = database_path(url)
    if path is None:
        yield
        return
    _make_folder(path.parent)
    lock_path = path.with_name(path.name + ".lock")
    try:
        handle = lock_path.open("a")
    except OSError as error:
        raise StoreError(f"{lock_path}: cannot be written: {error.strerror}") from None
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EnvironmentFault(
                f"{path}: another autotune is running this study; wait for it, or stop it with Ctrl-C"
            ) from None
        yield
