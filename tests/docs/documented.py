"""The commands that README.md, CONTRIBUTING.md and the pages in docs/ show, read from their Markdown."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parent.parent.parent
_NO_SHELL = ("toml", "json", "python")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*=\S*")
_BEHIND = {"|", ">", "2>&1", "&", "&&", ";"}
"""What ends the words of a program in a shell."""


@dataclass(frozen=True, slots=True)
class Command:
    """A use of a program: its words, as they stand in `page` at `line`, without the path of the program.

    `reads_pipe` when a pipe leads to it, `in_text` when it does not stand in a block of its own.
    """

    words: tuple[str, ...]
    page: str
    line: int
    reads_pipe: bool = False
    in_text: bool = False

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {shlex.join(self.words)}"


def commands(program: str) -> list[Command]:
    """Every use of `program`: in code blocks, and in code within the text that begins with it."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [command for page in pages for command in of_page(page) if command.words[0] == program]


def of_page(page: Path) -> Iterator[Command]:
    """Every program that `page` shows with at least one word behind it."""
    name = str(page.relative_to(ROOT))
    for line, code, in_text in _code(page.read_text(encoding="utf-8")):
        if re.search(r"\b(autotune|make) ", code):
            for words, reads_pipe in _of_shell(code):
                yield Command(words, name, line, reads_pipe, in_text)


def _code(markdown: str) -> Iterator[tuple[int, str, bool]]:
    """The lines of code blocks, those that end in a backslash with the next, and the code within the text."""
    for token in MarkdownIt("commonmark").enable("table").parse(markdown):
        first = token.map[0] + 1 if token.map else 0
        if token.type in ("fence", "code_block") and token.info not in _NO_SHELL:
            lines = re.sub(r"\\\n", " ", token.content).splitlines()
            for line, text in enumerate(lines, start=first + (token.type == "fence")):
                yield line, text, False
        for child in token.children or ():
            if child.type == "code_inline":
                yield first, child.content, True


def _of_shell(code: str) -> Iterator[tuple[tuple[str, ...], bool]]:
    """The programs of one line with their words, and whether a pipe leads to each."""
    words: list[str] = []
    reads_pipe = False
    for word in [*shlex.split(code, comments=True), ";"]:
        if word not in _BEHIND:
            words += [word] if words or not _VARIABLE.fullmatch(word) else []
            continue
        if len(words) > 1:
            yield (Path(words[0]).name, *words[1:]), reads_pipe
        words, reads_pipe = [], word == "|"
