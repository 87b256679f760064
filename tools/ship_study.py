"""Copies a study file so that it can be shipped: without the name of the machine, paths and process ids.

    python tools/ship_study.py studies/tiny.db notebooks/data/cpu-tiny.db --host "2-core VM"

Raw requests make most of a file. `--requests-of 0,7,12` keeps only those of these trials; the points of the
others stay as they were computed. What still looks like a path is printed: look at it before committing.
"""

import argparse
import json
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path, PurePosixPath

_TEXTS = {"JSON", "VARCHAR", "TEXT"}
_PACKAGES = re.compile(r"(?:/[\w.+@-]+)+/(?=(?:site|dist)-packages/)")
_PATH = re.compile(r"(?<![\w.:/<])/(?:[\w.+@-]+/)+[\w.+@-]+")


def ship(source: Path, destination: Path, host: str, requests_of: frozenset[int] | None = None) -> list[str]:
    """Write the copy, which must not be there yet; returns what still looks like a path in it.

    Raises sqlite3.Error when the source is no study file or the copy cannot be written.
    """
    with closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as original:
        original.execute("VACUUM INTO ?", (str(destination),))
    with closing(sqlite3.connect(destination)) as copy:
        kept = json.loads(copy.execute("SELECT environment FROM autotune_study").fetchone()[0])
        kept["machine"]["hostname"] = host
        copy.execute("UPDATE autotune_study SET environment = ?", (json.dumps(kept),))
        copy.execute("UPDATE autotune_trial SET log_path = NULL, mark = NULL")
        if requests_of is not None:
            points = copy.execute("SELECT id, trial_number FROM autotune_point").fetchall()
            others = [(key,) for key, trial in points if trial not in requests_of]
            copy.executemany("DELETE FROM autotune_request WHERE point_id = ?", others)
        _scrub(copy, _short_names(copy, kept))
        copy.commit()
        copy.execute("VACUUM")
        return sorted({path for *_, text in _texts(copy) for path in _PATH.findall(text)})


def _short_names(copy: sqlite3.Connection, environment: Mapping[str, Mapping[str, object]]) -> dict[str, str]:
    """Paths of the model and of vLLM's programs, each with its last part alone."""
    model = copy.execute("SELECT model FROM autotune_study").fetchone()[0]
    command = environment["vllm"]["command"]
    words = [model, environment["vllm"]["python"], *(command if isinstance(command, list) else [])]
    paths = sorted({word for word in words if isinstance(word, str) and word.startswith("/")}, key=len)
    return {path: PurePosixPath(path).name for path in reversed(paths)}


def _scrub(copy: sqlite3.Connection, names: Mapping[str, str]) -> None:
    for table, column, row, text in list(_texts(copy)):
        new = _PACKAGES.sub("", text)
        for path, name in names.items():
            new = new.replace(path, name)
        if new != text:
            copy.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (new, row))  # noqa: S608 - own names


def _texts(copy: sqlite3.Connection) -> Iterator[tuple[str, str, int, str]]:
    """Every text of the evidence with its table, column and row."""
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'autotune!_%' ESCAPE '!'"
    for (table,) in copy.execute(tables).fetchall():
        for _, column, kind, *_ in copy.execute(f"PRAGMA table_info({table})").fetchall():
            if kind in _TEXTS:
                rows = copy.execute(f"SELECT rowid, {column} FROM {table} WHERE {column} IS NOT NULL")  # noqa: S608
                yield from ((table, column, row, text) for row, text in rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path)
    parser.add_argument("destination", type=Path)
    parser.add_argument("--host", default="a machine", help="what the machine is called in the copy")
    parser.add_argument("--requests-of", help="trials whose raw requests are kept, e.g. 0,7,12; default: all")
    given = parser.parse_args()
    trials = None if given.requests_of is None else frozenset(map(int, given.requests_of.split(",")))
    for left in ship(given.source, given.destination, given.host, trials):
        print(left)
    print(f"{given.destination}: {given.destination.stat().st_size / 1e6:.1f} MB")
