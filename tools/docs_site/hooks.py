"""What the docs site has beyond docs/: pages made from other files of the repository, and from code.

MkDocs calls the functions below; `mkdocs.yml` names this file.
"""

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from command_reference import command_reference
from failure_catalogue import failure_catalogue
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_ROOT = Path(__file__).resolve().parent.parent.parent
_PAGES: Mapping[str, str] = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "notebooks/data/README.md": "notebook-studies.md",
}
"""Files outside docs/, and the pages they become."""
_AS_THEY_ARE = ("notebooks/*.ipynb", "search_spaces/*.toml", "studies/*.toml")
"""Files that pages link to."""
_MADE: Mapping[str, Callable[[], str]] = {
    "command reference": command_reference,
    "failure catalogue": failure_catalogue,
}
_MARKER = re.compile(r"^<!-- made: ([\w ]+) -->$", re.MULTILINE)
_LINK = re.compile(r"\[(?P<text>[^\[\]]+)\]\((?P<path>[^()\s#:]+)(?P<anchor>#[^()\s]*)?\)")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """The pages of `_PAGES` and the files that pages link to are among the site's."""
    for source, page in _PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(_ROOT / source)))
    for pattern in _AS_THEY_ARE:
        for path in sorted(_ROOT.glob(pattern)):
            uri = path.relative_to(_ROOT).as_posix()
            files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """`markdown` with what is made from code in it, and with links that lead to the site's pages.

    A link that is called by its file's name, as is good where the file is read, gets the page's title.
    Raises PluginError for a marker that nothing is made for.
    """
    here = page.file.src_uri
    source = next((path for path, made in _PAGES.items() if made == here), f"docs/{here}")
    titles = dict(_titles(config.nav))

    def made(marker: re.Match[str]) -> str:
        if marker[1] not in _MADE:
            raise PluginError(f"{here}: nothing is known to make {marker[1]!r} from")
        return _MADE[marker[1]]()

    def link(found: re.Match[str]) -> str:
        target = _site_path(posixpath.join(posixpath.dirname(source), found["path"]))
        text = titles.get(target, found["text"]) if found["text"].endswith(".md") else found["text"]
        path = posixpath.relpath(target, posixpath.dirname(here) or ".")
        return f"[{text}]({path}{found['anchor'] or ''})"

    return _MARKER.sub(made, _LINK.sub(link, markdown))


def _site_path(path: str) -> str:
    """Where a file of the repository is on the site."""
    path = posixpath.normpath(path)
    return _PAGES.get(path, path.removeprefix("docs/"))


def _titles(nav: object) -> Iterator[tuple[str, str]]:
    """Pages and their titles in `nav` of mkdocs.yml, with those in its sections."""
    match nav:
        case list():
            for item in nav:
                yield from _titles(item)
        case dict():
            for title, content in nav.items():
                if isinstance(title, str) and isinstance(content, str):
                    yield content, title
                else:
                    yield from _titles(content)
