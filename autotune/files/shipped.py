"""Finds search spaces, studies and workloads: files that the user names, that lie below the working
directory, or that come with autotune.
"""

from pathlib import Path

import autotune
from autotune.errors import FileError, UserError

SEARCH_SPACES = "search_spaces"
STUDIES = "studies"
WORKLOADS = "workloads"

_KINDS = {SEARCH_SPACES: "search space", STUDIES: "study", WORKLOADS: "workload"}
_FILES = {WORKLOADS: ".toml or .jsonl"}
"""What a file can be called, where that is more than .toml."""
_SUFFIX = ".toml"


def find(kind: str, ref: str, cwd: Path) -> Path:
    """The file that `ref` means, `kind` being SEARCH_SPACES, STUDIES or WORKLOADS.

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
    files = _FILES.get(kind, _SUFFIX)
    raise UserError(f"no {_KINDS[kind]} is called {ref!r}; {known}, and any {files} file by its path")


def shipped_folder(kind: str) -> Path:
    """Where the shipped files of `kind` lie: inside the package, or beside it in a source checkout."""
    package = Path(autotune.__file__).parent
    inside = (package / kind, package / "shipped" / kind)
    return next((folder for folder in inside if folder.is_dir()), package.parent / kind)


def shown(path: Path, cwd: Path) -> str:
    """`path` as a user would type it in `cwd`."""
    return str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)
