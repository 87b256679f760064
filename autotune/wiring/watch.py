"""Waits for a study to change."""

import time
from collections.abc import Callable, Iterator

from autotune.store.changes import change_counter
from autotune.store.connection import database_url, open_engine


def changes(database: str, every_s: float, sleep: Callable[[float], None] = time.sleep) -> Iterator[None]:
    """Yield at once, and then each time the study has changed; looks every `every_s` seconds, without end.

    A database server does not tell: there every look counts as a change. Raises StoreError.
    """
    engine = open_engine(database_url(database), create=False)
    with change_counter(engine) as count:
        # Counted before what follows is read: a change that comes meanwhile is seen at the next look.
        before = count()
        yield
        while True:
            sleep(every_s)
            now = count()
            if now is None or now != before:
                before = now
                yield
