"""Opening a study file only to look at it: nothing in it changes, even while a running study writes it."""

import os
import sqlite3
from pathlib import Path

from sqlalchemy import Engine, create_engine
from sqlalchemy.pool import NullPool

from autotune.errors import StoreError
from autotune.store.connection import BUSY_TIMEOUT_S, database_path, opening, require_file, require_study
from autotune.store.schema import MIGRATIONS, check_version


def open_read_only(url: str) -> Engine:
    """A database of the current schema whose connections cannot write.

    SQLite may leave two small files (`-wal`, `-shm`) beside a file in WAL mode; the next writer takes them
    away. Raises StoreError when it cannot be read, is no study file, or has an older or newer schema.
    """
    path = database_path(url)
    if path is None:
        engine = create_engine(url, poolclass=NullPool)
    else:
        require_file(path)
        # Connections are handed from thread to thread by a server, and used by one at a time.
        engine = create_engine(url, poolclass=NullPool, creator=lambda: _connect(path))
    where = str(path or url)
    with opening(where), engine.connect() as connection:
        version = check_version(connection, where)
    require_study(version, where)
    if version < len(MIGRATIONS):
        raise StoreError(
            f"{where}: this study file has schema {version}, from an older autotune; bring it to "
            f"schema {len(MIGRATIONS)} with: autotune show --db {where}"
        )
    return engine


def _connect(path: Path) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode=ro"
    # A reader of a file in WAL mode makes files beside it. Where it cannot, nobody writes there either:
    # https://www.sqlite.org/wal.html#read_only_databases
    if not path.with_name(path.name + "-wal").exists() and not os.access(path.parent, os.W_OK):
        uri += "&immutable=1"
    return sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S, check_same_thread=False)
