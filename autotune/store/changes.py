"""Notices that a study file was written, without reading it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from autotune.errors import StoreError


@contextmanager
def change_counter(engine: Engine) -> Iterator[Callable[[], int | None]]:
    """A number that is another one after each commit of any other connection, also in another process.

    None for a database server, which has no such counter. Raises StoreError when the file cannot be read.
    """
    with engine.connect() as connection:

        def count() -> int | None:
            if engine.dialect.name != "sqlite":
                return None
            try:
                # https://www.sqlite.org/pragma.html#pragma_data_version: of this one connection, kept open.
                version: int = connection.exec_driver_sql("PRAGMA data_version").scalar_one()
            except DBAPIError as error:
                raise StoreError(f"{engine.url}: the study file cannot be used: {error.orig}") from error
            finally:
                connection.rollback()
            return version

        yield count
