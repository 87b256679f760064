"""Writes a file as a whole: whoever reads it sees the old one or the new one, never a part."""

import os
import tempfile
from pathlib import Path

from autotune.errors import EnvironmentFault


def replace_text(path: Path, text: str) -> None:
    """Put `text` at `path`, in UTF-8. Raises EnvironmentFault when it cannot be; the old file then stays."""
    try:
        handle, made = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise EnvironmentFault(f"{path}: cannot be written: {error.strerror}") from None
    temporary = Path(made)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            os.fchmod(handle, 0o644)  # mkstemp makes it for nobody else; a report is to be passed on
            file.write(text)
        temporary.replace(path)
    except OSError as error:
        raise EnvironmentFault(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)
