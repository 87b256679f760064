"""Reads a TOML file with typed getters: a value of the wrong type and an unknown key are FileErrors.

Nothing is guessed and nothing is ignored: a key that nobody asked for is most often a misspelt one.
"""

import difflib
import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from autotune.domain.space import Json
from autotune.errors import FileError

SCHEMA = 1
"""The version of the formats of search spaces and studies that this autotune reads."""

_INT64 = 2**63
"""TOML and SQLite both promise no larger whole numbers."""


class Table:
    """One table of a file; `key` says where in the file it is, and is empty for the file itself.

    A getter gives None where its key is missing, and raises FileError where the value is of another type.
    """

    def __init__(self, path: str, key: str, content: Mapping[str, object]) -> None:
        self.path = path
        self.key = key
        self._content = content

    def __contains__(self, name: str) -> bool:
        return name in self._content

    def __iter__(self) -> Iterator[str]:
        return iter(self._content)

    def error(self, name: str | None, problem: str) -> FileError:
        """The error for key `name`, or for the whole table with None."""
        return FileError(self.path, (self.key or None) if name is None else self._at(name), problem)

    def only(self, *allowed: str) -> None:
        """Raise FileError for a key that is not among `allowed`."""
        for name in self._content:
            if name not in allowed:
                near = difflib.get_close_matches(name, allowed, n=1)
                hint = f"did you mean `{near[0]}`?" if near else f"allowed are {', '.join(allowed)}"
                raise self.error(name, f"there is no such key; {hint}")

    def text(self, name: str) -> str | None:
        """A text that is not empty."""
        value = self._content.get(name)
        if value is None or (isinstance(value, str) and value):
            return value
        raise self._wrong(name, "a text in quotes that is not empty")

    def whole(self, name: str) -> int | None:
        """A whole number of 64 bits."""
        value = self._content.get(name)
        if value is None:
            return None
        if isinstance(value, int) and not isinstance(value, bool) and -_INT64 <= value < _INT64:
            return value
        raise self._wrong(name, "a whole number")

    def number(self, name: str) -> float | None:
        """A finite number, whole or not."""
        value = self._content.get(name)
        if isinstance(value, float) and math.isfinite(value):
            return value
        if isinstance(value, float):
            raise self._wrong(name, "a finite number")
        whole = self.whole(name)
        return None if whole is None else float(whole)

    def truth(self, name: str) -> bool | None:
        """True or false."""
        value = self._content.get(name)
        if value is None or isinstance(value, bool):
            return value
        raise self._wrong(name, "true or false")

    def sequence(self, name: str) -> Sequence[object] | None:
        """A list with at least one item."""
        value = self._content.get(name)
        if value is None or (isinstance(value, list) and value):
            return value
        raise self._wrong(name, "a list in brackets that is not empty")

    def has_table(self, name: str) -> bool:
        """Whether its value is a table, where something else is allowed as well."""
        return isinstance(self._content.get(name), dict)

    def table(self, name: str) -> "Table":
        """A table; an empty one where the key is missing."""
        value = self._content.get(name, {})
        if isinstance(value, dict):
            return Table(self.path, self._at(name), value)
        raise self._wrong(name, f"a table: `[{self._at(name)}]` or `{name} = {{ ... }}`")

    def tables(self, name: str) -> "list[Table]":
        """A list of tables, numbered from 1; an empty one where the key is missing."""
        value = self._content.get(name, [])
        if isinstance(value, list) and all(isinstance(item, dict) for item in value):
            return [Table(self.path, f"{self._at(name)}[{i}]", item) for i, item in enumerate(value, start=1)]
        raise self._wrong(name, f"tables, each under `[[{self._at(name)}]]`")

    def json(self, name: str) -> Json:
        """The value of a key that must be there, as something a program can be given."""
        return self._json(name, self._content[name])

    def _json(self, name: str, value: object) -> Json:
        match value:
            case bool():
                return value
            case int() if -_INT64 <= value < _INT64:
                return value
            case float() if math.isfinite(value):
                return value
            case str() if "\0" not in value:
                return value
            case list():
                return [self._json(name, item) for item in value]
            case dict():
                return {key: self._json(f"{name}.{key}", item) for key, item in value.items()}
        allowed = "text, finite numbers, true and false"
        raise self.error(name, f"a program cannot be given {value!r}; allowed are {allowed}")

    def _at(self, name: str) -> str:
        shown = name if re.fullmatch(r"[\w.-]+", name) else json.dumps(name, ensure_ascii=False)
        return f"{self.key}.{shown}" if self.key else shown

    def _wrong(self, name: str, wanted: str) -> FileError:
        return self.error(name, f"must be {wanted}, but is {self._content[name]!r}")


def read_toml(path: Path, shown: str) -> Table:
    """The file at `path`, called `shown` in errors, whose `schema` is the one this autotune reads."""
    try:
        content = tomllib.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise FileError(shown, None, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise FileError(shown, None, f"is no UTF-8 text: its byte {error.start} cannot be decoded") from None
    except ValueError as error:  # TOMLDecodeError is one, and a number of 5000 digits gives a bare one
        raise FileError(shown, None, f"is no TOML: {error}") from None
    except RecursionError:
        raise FileError(shown, None, "is nested too deeply") from None
    table = Table(shown, "", content)
    schema = table.whole("schema")
    if schema is None:
        raise table.error("schema", f"is missing: write `schema = {SCHEMA}` at the top of the file")
    if schema != SCHEMA:
        why = "it was written for a newer autotune" if schema > SCHEMA else "there is no such version"
        raise table.error("schema", f"{schema} cannot be read, {why}; allowed is {SCHEMA}")
    return table
