"""autotune finds the fastest vLLM server configuration that really works, within a wall-clock budget.

In Python, `autotune.open("studies/x.db")` is a study to look into (`autotune.api`).
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autotune.api import Study, open  # noqa: A004 - its public name

__version__ = "0.1.0"
__all__ = ["Study", "__version__", "open"]


def __getattr__(name: str) -> object:
    """What is in `autotune.api`, imported when it is asked for: the command line needs no pandas."""
    if name not in {"Study", "open"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"{__name__}.api"), name)
    return found
