"""The report in a real browser: what a person sees, points at, clicks on, copies and prints."""

import re
from collections.abc import Callable

import pytest
from builders import failure
from opened_report import Opened, Report
from playwright.sync_api import expect
from studies_made import NASTY

from autotune.domain.launch import shell_lines
from autotune.report.figures.text import shown
from autotune.report.page import page as report_page

pytestmark = pytest.mark.browser

Open = Callable[..., Opened]
Reports = Callable[..., Report]

TEXTS = """(host) => [...host.querySelectorAll('svg text')]
  .filter((text) => text.textContent.trim() && text.getClientRects().length && !text.closest('.hoverlayer'))
  .map((text) => {
    const { left, right, top, bottom } = text.getBoundingClientRect();
    // Letters leave at least so much of the height of their line free, above and below.
    const free = 0.2 * parseFloat(getComputedStyle(text).fontSize);
    return { text: text.textContent, left, right, top: top + free, bottom: bottom - free };
  })"""


def test_it_asks_for_nothing_but_itself(night: Report, opened: Open) -> None:
    seen = opened(night)
    assert seen.requests == [night.url]
    assert seen.page.locator("#trouble").is_hidden()


def test_pointing_at_a_marker_shows_its_whole_configuration(night: Report, opened: Open) -> None:
    said = opened(night).point_at(1)
    found = re.search(r"trial (\d+)", said)
    assert found
    record = night.view.records[int(found[1])]
    for name, value in record.configuration.values.items():
        assert f"{name} = {shown(value)}" in said


def test_a_click_on_a_marker_shows_the_trial_and_its_command_can_be_copied(
    night: Report, opened: Open
) -> None:
    seen = opened(night, permissions=("clipboard-read", "clipboard-write"))
    found = re.search(r"trial (\d+)", seen.point_at(2))
    assert found
    record = night.view.records[int(found[1])]
    seen.page.mouse.down()
    seen.page.mouse.up()
    expect(seen.drawer.get_by_role("heading", name=f"Trial {record.number}", exact=True)).to_be_visible()
    expect(seen.drawer.locator(".command")).to_have_text(shell_lines(record.argv, record.env))
    seen.drawer.get_by_role("button", name="Copy").click()
    expect(seen.drawer.get_by_role("button", name="Copied")).to_be_visible()
    assert seen.page.evaluate("navigator.clipboard.readText()") == shell_lines(record.argv, record.env)
    assert seen.page.url.endswith(f"#trial-{record.number}")
    rings = """() => document.getElementById('plot-front').data
      .filter((trace) => trace.meta === 'chosen' && trace.x.length).length"""
    assert seen.page.evaluate(rings) == 1
    seen.page.keyboard.press("Escape")
    expect(seen.drawer).to_be_hidden()
    assert seen.page.evaluate(rings) == 0


def test_the_command_of_the_verdict_can_be_copied(night: Report, opened: Open) -> None:
    seen = opened(night, permissions=("clipboard-read", "clipboard-write"))
    seen.page.locator("#verdict").get_by_role("button", name="Copy").click()
    best = night.view.best
    assert best is not None
    expect(seen.page.locator("#verdict").get_by_role("button", name="Copied")).to_be_visible()
    assert seen.page.evaluate("navigator.clipboard.readText()") == shell_lines(best.argv, best.env)


def test_a_failed_trial_tells_why(night: Report, opened: Open) -> None:
    record = next(record for record in night.view.records if record.failure)
    seen = opened(night, address=f"#trial-{record.number}")
    assert record.failure is not None
    for text in (record.failure.why, record.failure.cure, record.failure.root_line, str(record.failure.kind)):
        expect(seen.drawer).to_contain_text(str(text))


def test_every_plot_has_a_table_behind_it(night: Report, opened: Open) -> None:
    seen = opened(night)
    switches = seen.page.get_by_role("button", name="Table", exact=True)
    keys = [str(switch.get_attribute("id")).removeprefix("switch-") for switch in switches.all()]
    assert {"front", "ladders", "timeline", "failures", "hypervolume"} <= set(keys)
    for key in keys:
        plot, table = seen.page.locator(f"#plot-{key}"), seen.page.locator(f"#table-{key}")
        expect(plot).to_be_visible()
        seen.page.locator(f"#switch-{key}").click()
        expect(table.locator("tbody tr").first).to_be_visible()
        expect(plot).to_be_hidden()
        seen.page.locator(f"#switch-{key}").click()
        expect(plot.locator(".main-svg").first).to_be_visible()
        expect(table).to_be_hidden()


def test_the_theme_follows_the_system_until_it_is_switched(night: Report, opened: Open) -> None:
    seen = opened(night, scheme="dark")
    colours = """() => [
      getComputedStyle(document.body).backgroundColor,
      getComputedStyle(document.querySelector('#plot-front .xtick text')).fill,
    ]"""
    dark = seen.page.evaluate(colours)
    seen.page.get_by_role("button", name="Light", exact=True).click()
    light = seen.page.evaluate(colours)
    assert all(before != after for before, after in zip(dark, light, strict=True))
    seen.page.reload()
    seen.wait()
    assert seen.page.evaluate(colours) == light
    assert opened(night, scheme="light").page.evaluate(colours) == light


def test_the_list_can_be_sorted_and_filtered(night: Report, opened: Open) -> None:
    seen = opened(night)
    listed = seen.page.locator("#all-trials tbody tr")
    numbers = seen.page.locator("#all-trials tbody tr td:first-child button")
    expect(listed).to_have_count(50)
    seen.page.locator("#all-trials").get_by_role("button", name="Next").click()
    expect(numbers.first).to_have_text("50")
    objective = night.view.info.objectives[0]
    values = {record.number: objective.value(record.points) for record in night.view.records}
    head = seen.page.locator("#all-trials th", has_text=str(objective))
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "descending")
    best = max((value, -number) for number, value in values.items() if value is not None)
    expect(numbers.first).to_have_text(str(-best[1]))
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "ascending")
    worst = min((value, number) for number, value in values.items() if value is not None)
    expect(numbers.first).to_have_text(str(worst[1]))
    failed = [record for record in night.view.records if record.failure]
    seen.page.locator("#filter-state").select_option("failed")
    expect(listed).to_have_count(len(failed))
    seen.page.locator("#filter").fill(f"kv_cache_too_small {failed[0].number}")
    matching = [r for r in failed if r.failure and r.failure.kind == "kv_cache_too_small"]
    assert matching
    seen.page.locator("#filter").fill("kv_cache_too_small")
    expect(listed).to_have_count(len(matching))
    seen.page.locator("#filter").fill("nothing has this in it")
    expect(listed).to_have_count(0)


def test_what_breaks_a_limit_is_marked_and_can_be_listed(reports: Reports, opened: Open) -> None:
    report = reports("limited", trials=14, limits=["ttft_p50@4<=180ms"])
    seen = opened(report)
    (limit,) = report.view.info.metric_limits
    breaking = [r.number for r in report.view.records if r.points and (limit.violation(r.points) or 0) > 0]
    assert breaking
    seen.page.locator("#filter-state").select_option("breaks")
    rows = seen.page.locator("#all-trials tbody tr")
    expect(rows).to_have_count(len(breaking))
    expect(rows.first.locator(".breaks-mark")).to_have_attribute("title", "Breaks a limit")
    expect(rows.first).to_contain_text(f"breaks {limit}: ")
    seen.page.locator("#filter-state").select_option("front")
    expect(rows).to_have_count(len(report.view.front))
    seen.page.locator("#filter-state").select_option("measured")
    expect(rows).to_have_count(sum(len(r.points) > 0 for r in report.view.records))


def test_a_click_in_the_list_and_on_a_number_opens_the_trial(night: Report, opened: Open) -> None:
    seen = opened(night)
    seen.page.locator("#all-trials tbody tr").nth(3).locator(".what").click()
    expect(seen.drawer.get_by_role("heading", name="Trial 3", exact=True)).to_be_visible()
    link = seen.page.locator("#failures [data-trial]").first
    link.click()
    number = link.get_attribute("data-trial")
    expect(seen.drawer.get_by_role("heading", name=f"Trial {number}", exact=True)).to_be_visible()
    seen.drawer.get_by_role("button", name="Close").click()
    expect(link).to_be_focused()


@pytest.mark.parametrize("width", [390, 1400])
def test_nothing_is_wider_than_the_window(width: int, night: Report, opened: Open) -> None:
    seen = opened(night, width=width, address="#trial-1")
    assert seen.page.evaluate("document.documentElement.scrollWidth") == width
    wider = (
        """(parts) => parts.filter((part) => part.scrollWidth > part.clientWidth).map((part) => part.id)"""
    )
    assert seen.page.locator("section, .metrics").evaluate_all(wider) == []
    box = seen.drawer.bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    assert seen.page.evaluate("(d => d.scrollWidth - d.clientWidth)(document.getElementById('trial'))") <= 0


@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("trials", [5, 200])
def test_no_text_in_a_plot_is_cut_off_or_lies_on_another(
    trials: int, width: int, reports: Reports, opened: Open
) -> None:
    seen = opened(reports(f"night{trials}", trials=trials, blocks=0 if trials == 5 else 3), width=width)
    plots = seen.page.locator(".plot").all()
    assert len(plots) >= 6
    for plot in plots:
        name, box = plot.get_attribute("id"), plot.bounding_box()
        texts = plot.evaluate(TEXTS)
        assert box is not None
        assert len(texts) > 3, name
        for text in texts:
            assert text["left"] >= box["x"] - 1, (name, text)
            assert text["right"] <= box["x"] + box["width"] + 1, (name, text)
        for position, one in enumerate(texts):
            for other in texts[position + 1 :]:
                across = min(one["right"], other["right"]) - max(one["left"], other["left"])
                down = min(one["bottom"], other["bottom"]) - max(one["top"], other["top"])
                assert min(across, down) <= 1, (name, one, other)


@pytest.mark.parametrize("text", NASTY, ids=["markup", "quotes", "terminal"])
def test_names_and_log_lines_are_text(text: str, reports: Reports, opened: Open) -> None:
    report = reports(
        f"nasty{NASTY.index(text)}",
        trials=8,
        blocks=0,
        model=text,
        failure=lambda number, _: failure(why=text, cure=text, root_line=text) if number % 3 == 2 else None,
    )
    seen = opened(report, address="#trial-2")
    words = " ".join(re.findall(r"\w+", text)[:2])
    for place in ("h1", "#failures", "#trial .log", "#all-trials", "#verdict .command"):
        content = seen.page.locator(place).first.text_content() or ""
        assert words.split()[0] in content, place
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e]", content), place
    assert seen.page.evaluate("document.querySelectorAll('img, a[href^=javascript]').length") == 0
    assert "<b>" not in text or seen.page.evaluate("document.querySelectorAll('h1 b').length") == 0
    assert text.split("/")[0].isprintable() is False or words.split()[0] in seen.point_at(0) + words


def test_a_page_that_is_kept_up_to_date_loads_the_new_one_where_it_was(
    reports: Reports, opened: Open
) -> None:
    report = reports("watched", renewed_every_s=3600.0, trials=6, blocks=0)
    seen = opened(report)
    seen.page.evaluate("scrollTo({ top: 900, behavior: 'instant' })")
    report.path.write_text(report_page(report.view), encoding="utf-8")
    with seen.page.expect_navigation():
        seen.page.evaluate("document.getElementById('renew').click()")
    seen.wait()
    assert seen.page.locator("#renewal").count() == 0
    seen.page.wait_for_function("scrollY === 900")


def test_it_prints_on_white_without_controls(night: Report, opened: Open) -> None:
    seen = opened(night, scheme="dark", width=794)
    seen.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    seen.page.emulate_media(media="print", color_scheme="dark")
    assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    for control in ("nav", "#theme", "#filter", "#switch-front"):
        expect(seen.page.locator(control)).to_be_hidden()
    svgs = seen.page.locator(".plot .main-svg")
    assert max(svgs.evaluate_all("(svgs) => svgs.map((svg) => svg.clientWidth)")) <= 700
    ink = seen.page.evaluate("getComputedStyle(document.querySelector('#plot-front .xtick text')).fill")
    assert max(map(int, re.findall(r"\d+", ink)[:3])) < 128


@pytest.mark.parametrize(
    "how",
    [
        {"trials": 1, "blocks": 0},
        {"trials": 4, "failure": lambda *_: failure()},
        {"trials": 8, "objectives": ("out_tok_s@16",)},
        {"trials": 30, "objectives": ("out_tok_s@16", "out_tok_s@1", "ttft_p50@16")},
        {"trials": 5, "blocks": 0, "outcome_of_last": "running"},
    ],
    ids=["single", "none", "one-objective", "three-objectives", "running"],
)
def test_any_study_is_shown_without_complaint(
    how: dict[str, object], request: pytest.FixtureRequest, reports: Reports, opened: Open
) -> None:
    seen = opened(reports(request.node.callspec.id, **how), width=390)
    expect(seen.page.locator("#all-trials tbody tr").first).to_be_visible()
    assert seen.page.locator(".plot .waiting").count() == 0
    assert seen.page.evaluate("document.documentElement.scrollWidth") == 390
