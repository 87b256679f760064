"""A real Chromium, without a network, and reports of made studies to open in it."""

import shutil
from collections.abc import Callable, Iterator, Sequence

import pytest
from opened_report import Opened, Report
from playwright.sync_api import Browser, BrowserContext, Playwright, sync_playwright
from studies_made import StudyMaker

from autotune.report.page import page as report_page
from autotune.wiring.open import open_store
from autotune.wiring.view import read_view

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


@pytest.fixture(scope="session")
def driver() -> Iterator[Playwright]:
    with sync_playwright() as playwright:
        yield playwright


@pytest.fixture(scope="session")
def browser(driver: Playwright) -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("there is no Chromium on PATH; on Debian: apt-get install chromium")
    with driver.chromium.launch(executable_path=program, args=list(_FLAGS)) as chromium:
        yield chromium


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Report]:
    """Makes the report of a study, each only once."""
    made: dict[str, Report] = {}

    def make(name: str, renewed_every_s: float | None = None, **how: object) -> Report:
        if name not in made:
            folder = tmp_path_factory.mktemp("report")
            study = StudyMaker(path=folder / f"{name}.db", **how).write()  # type: ignore[arg-type]
            with open_store(str(study)) as store:
                view = read_view(store)
            path = folder / f"{name}.html"
            path.write_text(report_page(view, renewed_every_s), encoding="utf-8")
            made[name] = Report(path=path, view=view)
        return made[name]

    return make


@pytest.fixture
def opened(browser: Browser) -> Iterator[Callable[..., Opened]]:
    """Opens a report in a window of its own, offline, and checks at the end that it had no complaint."""
    contexts: list[BrowserContext] = []
    pages: list[Opened] = []

    def open_report(
        report: Report,
        width: int = 1400,
        scheme: str = "light",
        address: str = "",
        permissions: Sequence[str] = (),
    ) -> Opened:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, permissions=permissions
        )
        contexts.append(context)
        context.set_offline(True)
        result = Opened(page=context.new_page())
        pages.append(result)
        result.page.on("console", lambda message: result.complaints.append(message.text))
        result.page.on("pageerror", lambda error: result.complaints.append(str(error)))
        result.page.on("dialog", lambda dialog: result.complaints.append(f"dialog: {dialog.message}"))
        result.page.on("request", lambda request: result.requests.append(request.url))
        result.page.goto(report.url + address)
        result.wait()
        return result

    yield open_report
    for context in contexts:
        context.close()
    assert [result.complaints for result in pages] == [[] for _ in pages]


@pytest.fixture
def night(reports: Callable[..., Report]) -> Report:
    """A study with measured and failed trials, finals and lessons."""
    return reports("night", trials=70)
