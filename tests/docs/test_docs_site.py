"""The docs site is built without a warning, has what is made from code, and loads nothing from elsewhere."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import typer
from documented import ROOT
from typer.core import TyperOption

from autotune.cli import COMMANDS, app
from autotune.files.rules import VLLM_RULES, read_rules

_LOADS = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "object": "data"}


class _Page(HTMLParser):
    """The ids of a page, and what a browser loads to show it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.loads: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.ids.add(found.get("id") or "")
        self.loads.append(found.get(_LOADS.get(tag, "")) or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; links and anchors that lead nowhere would have ended the build."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_rule_is_in_the_catalogue(site: Path) -> None:
    rules = read_rules(VLLM_RULES).index.rules
    assert {rule.id for rule in rules} <= _Page(site / "failure-catalogue.html").ids
    text = (site / "failure-catalogue.html").read_text(encoding="utf-8")
    assert text.count('<div class="rule">') == len(rules)
    assert "{" not in re.sub(r"<(script|style|code).*?</\1>", "", text, flags=re.DOTALL)


def test_every_command_and_option_is_in_the_reference(site: Path) -> None:
    text = (site / "commands.html").read_text(encoding="utf-8")
    ids = _Page(site / "commands.html").ids
    group = typer.main.get_group(app)
    for name in COMMANDS:
        command = group.get_command(typer.Context(group), name)
        assert command is not None
        assert name in ids
        section = text.partition(f'<h2 id="{name}">')[2].partition("<h2 ")[0]
        options = [p for p in command.params if isinstance(p, TyperOption)]
        assert options
        for option in options:
            assert f"<td><code>{option.opts[0]}" in section, f"{name} {option.opts[0]}"


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        assert not [load for load in _Page(page).loads if re.match(r"\w+:|//", load)], page
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        assert "@import" not in text
        assert not re.search(r"url\(['\"]?(https?:|//)", text), sheet


def test_the_top_of_the_repository_is_on_the_site(site: Path) -> None:
    for source, page in (
        ("README.md", "index"),
        ("CHANGELOG.md", "changelog"),
        ("CONTRIBUTING.md", "contributing"),
    ):
        heading = (ROOT / source).read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        assert f">{heading}<" in (site / f"{page}.html").read_text(encoding="utf-8")
    assert (site / "search_spaces/cpu-quickstart.toml").is_file()
    links = re.findall(r'href="([^"]+)"', (site / "index.html").read_text(encoding="utf-8"))
    assert "failures.html" in links
    assert not [link for link in links if link.endswith(".md")]
