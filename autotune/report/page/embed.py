"""How scripts, styles and data get into one HTML file so that it works anywhere and can do no harm.

Data and plotly.js are gzip in base64: a tenth and two fifths of their size, and an alphabet in which no text
from a log can end a script element. Only the scripts whose hashes the policy names run, and nothing in the
file can reach another machine.
"""

import gzip
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files

import msgspec
from plotly.offline import get_plotlyjs

_ASSETS = files("autotune.report.page") / "assets"
_SCRIPTS = ("text.js", "theme.js", "table.js", "plots.js", "trials.js", "drawer.js", "renew.js", "main.js")


def packed(content: bytes) -> str:
    """Gzip in base64, the same for the same content."""
    return b64encode(gzip.compress(content, compresslevel=9, mtime=0)).decode("ascii")


def packed_json(document: object) -> str:
    """The JSON of `document`, packed; what is not finite becomes null."""
    return packed(msgspec.json.encode(document))


def style() -> str:
    """The style sheet."""
    return (_ASSETS / "page.css").read_text(encoding="utf-8")


@cache
def script() -> str:
    """The page's own program: its files one after the other, in one scope."""
    parts = [(_ASSETS / name).read_text(encoding="utf-8") for name in _SCRIPTS]
    return "(() => {\n'use strict';\n" + "\n".join(parts) + "})();\n"


@cache
def plotly() -> str:
    """plotly.js, packed."""
    return packed(get_plotlyjs().encode())


@cache
def policy() -> str:
    """The Content-Security-Policy: the two programs and nothing else, from nowhere else.

    Styles are allowed inline because plotly.js makes its own, `data:` and `blob:` images because it renders
    a plot to be saved that way.
    """
    hashes = " ".join(f"'sha256-{_hash(text)}'" for text in (get_plotlyjs(), script()))
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode("ascii")
