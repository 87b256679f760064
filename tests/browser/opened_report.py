"""A report, and the page of a browser that shows it."""

from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Locator, Page

from autotune.report.view import StudyView

READY_MS = 60_000


@dataclass
class Opened:
    """A page in the browser, with everything it complained of and asked for."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def wait(self) -> None:
        """Until all plots are drawn."""
        self.page.wait_for_selector("html[data-ready=yes]", timeout=READY_MS)

    @property
    def drawer(self) -> Locator:
        """What shows the chosen trial."""
        return self.page.locator("#trial")

    def marker(self, index: int = 0) -> Locator:
        """One of the markers of the front."""
        return self.page.locator("#plot-front .scatterlayer path.point").nth(index)

    def point_at(self, index: int = 0) -> str:
        """Move the mouse onto a marker of the front and return what is then shown."""
        marker = self.marker(index)
        marker.scroll_into_view_if_needed()
        box = marker.bounding_box()
        assert box is not None
        self.page.mouse.move(box["x"] + box["width"] / 2 - 3, box["y"] + box["height"] / 2)
        self.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        return self.page.locator("#plot-front .hoverlayer .hovertext").first.text_content() or ""


@dataclass
class Report:
    """A report on disk and what it was made from."""

    path: Path
    view: StudyView

    @property
    def url(self) -> str:
        return self.path.as_uri()
