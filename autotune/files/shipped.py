"""Finds search spaces and studies: files the user names, files below the working directory, shipped ones."""

from pathlib import Path

import autotune
from autotune.errors import FileError, UserError

SEARCH_SPACES = "search_spaces"
STUDIES = "studies"

_KINDS = {SEARCH_SPACES: "search space", STUDIES: "study"}
_SUFFIX = ".toml"


def find(kind: str, ref: str, cwd: Path) -> Path:
    """The file that `ref` means, `kind` being SEARCH_SPACES or STUDIES.

    A path of a file, relative to `cwd`, is that file. A name is `KIND/NAME.toml` below `cwd`, or else the
    shipped one of that name. Raises FileError for a path (it has a slash or ends in .toml) where nothing is,
    and UserError listing the names there are.
    """
    path = cwd / ref
    if path.is_file():
        return path
    if "/" in ref or ref.endswith(_SUFFIX):
        if path.exists():
            raise FileError(ref, None, "is no file")
        raise FileError(ref, None, f"there is no such file in {cwd}")
    folders = [cwd / kind, shipped_folder(kind)]
    for folder in folders:
        path = folder / (ref + _SUFFIX)
        if path.is_file():
            return path
    names = sorted({path.stem for folder in folders for path in folder.glob("*" + _SUFFIX)})
    known = f"there are {', '.join(names)}" if names else "there are none"
    raise UserError(f"no {_KINDS[kind]} is called {ref!r}; {known}, and any .toml file by its path")


def shipped_folder(kind: str) -> Path:
    """Where the shipped files of `kind` lie: inside an installed package, beside it in a source checkout."""
    package = Path(autotune.__file__).parent
    installed = package / "shipped" / kind
    return installed if installed.is_dir() else package.parent / kind


def shown(path: Path, cwd: Path) -> str:
    """`path` as a user would type it in `cwd`."""
    return str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)
