"""The pages in a real browser: quiet, offline, sortable, filterable, readable in the dark and on a phone."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pdocrl.bench.results import make_runs, read_rows
from pdocrl.report import report
from pdocrl.report.chart import SHAPES
from pdocrl.report.statistics import standings
from pdocrl.report.vector import SVG

PHONE, DESKTOP = {"width": 360, "height": 740}, {"width": 1280, "height": 900}

# WCAG 2 contrast of every piece of text with the ground it stands on; returns those below 4.5.
LOW_CONTRAST = """() => {
  const parse = (text) => {
    const n = text.match(/-?[\\d.]+(?:e-?\\d+)?/g).map(Number);
    const scale = text.startsWith("color(") ? 1 : 255;
    return {rgb: n.slice(0, 3).map((v) => v / scale), alpha: n.length > 3 ? n[3] : 1};
  };
  const luminance = (rgb) => rgb
    .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const found = parse(getComputedStyle(at).backgroundColor);
      if (found.alpha > 0) return found.rgb;
    }
    return [1, 1, 1];
  };
  const low = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !element.checkVisibility() || element.closest("title, desc, script, style, option")) continue;
    const style = getComputedStyle(element);
    const ink = parse(element instanceof SVGElement ? style.fill : style.color).rgb;
    const [a, b] = [luminance(ink), luminance(ground(element))].sort((x, y) => x - y);
    const contrast = (b + 0.05) / (a + 0.05);
    const words = element.textContent.trim().slice(0, 30);
    if (contrast < 4.5) low.push(`${element.tagName} ${words}: ${contrast.toFixed(2)}`);
  }
  return low;
}"""


@pytest.fixture
def visit(browser, suite_folder) -> Iterator[Callable]:
    """`visit(…)` opens the page as a browser of these options would, and fails if it complains or asks the network."""
    trouble: list[str] = []
    contexts = []

    def open_page(*, folder: Path | None = None, **options: object):
        address = report(folder or suite_folder()).as_uri()
        context = browser.new_context(**{"viewport": DESKTOP} | options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: trouble.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: trouble.append(f"error: {error}"))
        page.on("request", lambda request: trouble.append(request.url) if not _own(request.url, address) else None)
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert trouble == []


def _own(url: str, address: str) -> bool:
    return url == address or url.startswith("data:")


def _column(page, table: str, index: int) -> list[str]:
    return page.eval_on_selector_all(
        f'[aria-label="{table}"] tbody tr', f"rows => rows.map(row => row.cells[{index}].dataset.value ?? '')"
    )


def test_the_page_is_quiet_and_asks_nothing_of_the_network(visit):
    page = visit()
    assert page.title() == "Benchmark: toy"
    assert page.locator("svg.chart").count() == 25


def test_a_column_sorts_both_ways_and_says_so(visit):
    page, table = visit(), "Results at each limit"
    head = page.locator(f'[aria-label="{table}"] th', has_text="Limit 20")
    before = _column(page, table, 3)
    assert head.get_attribute("aria-sort") == "none"
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    falling = _column(page, table, 3)
    assert falling == sorted(before, key=float, reverse=True) != before
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert _column(page, table, 3) == falling[::-1]
    page.locator(f'[aria-label="{table}"] th', has_text="Safe at").get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "none"


def test_what_has_no_value_sorts_last_either_way(visit):
    page, table = visit(), "Results of all methods on all tasks"
    button = page.locator(f'[aria-label="{table}"] th', has_text="CarCircle").get_by_role("button")
    for _ in range(2):
        button.click()
        assert _column(page, table, 3)[-1] == ""  # cpq failed on CarCircle


def test_words_sort_by_their_letters_and_the_keyboard_is_enough(visit):
    page, table = visit(), "Results of all methods on all tasks"
    button = page.locator(f'[aria-label="{table}"] th', has_text="Method").get_by_role("button")
    button.focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    page.keyboard.press("Space")
    names = page.locator(f'[aria-label="{table}"] tbody th').all_inner_texts()
    assert names == ["pdocrl", "cpq", "bc-safe"]


def test_filters_hide_what_belongs_to_others_and_bring_it_back(visit):
    page = visit()
    rows = page.locator('[aria-label="Results at each limit"] tbody tr:visible')
    runs = page.locator('svg[aria-labelledby^="plane"] use:visible')
    assert (rows.count(), runs.count()) == (5, 45)  # six pairs, one of which failed; nine runs each
    page.get_by_role("combobox", name="Method").select_option("pdocrl")
    assert (rows.count(), runs.count()) == (2, 18)
    page.get_by_role("combobox", name="Task").select_option("BallRun")
    assert (rows.count(), runs.count()) == (1, 9)
    assert page.locator("figure:visible h3").all_inner_texts() == ["BallRun"] * 7
    page.get_by_role("combobox", name="Limit").select_option("20")
    assert (rows.count(), runs.count()) == (1, 3)
    heads = page.locator('[aria-label="Results at each limit"] th:visible[scope=col]').all_inner_texts()
    assert [head for head in heads if head.startswith("Limit")] == ["Limit 20"]
    said = "Shown: method pdocrl, task BallRun, limit 20. Results, profile and improvement stay means over all limits."
    assert page.locator("output").inner_text() == said
    assert page.get_by_role("heading", name="What did not work").is_hidden()  # that was cpq on CarCircle
    page.get_by_role("button", name="Show everything").click()
    page.wait_for_function("document.querySelector('output').textContent === 'Everything is shown.'")
    assert (rows.count(), runs.count()) == (5, 45)


def test_a_chosen_limit_shows_its_own_curves_instead_of_the_mean_s(visit):
    page = visit()
    curves = page.locator('svg[aria-labelledby^="reward-0"] path.line:visible')
    assert curves.count() == 3
    mean = curves.first.get_attribute("d")
    page.get_by_role("combobox", name="Limit").select_option("10")
    assert curves.count() == 3
    assert curves.first.get_attribute("d") != mean


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["benchmark", "training", "solved"])
def test_all_text_has_a_contrast_of_4_5(visit, make_run, answered_folder, scheme, kind):
    page = visit(
        color_scheme=scheme, folder={"benchmark": None, "training": make_run(), "solved": answered_folder}[kind]
    )
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(245, 247, 248)", "dark": "rgb(17, 22, 28)"}[scheme]
    assert page.evaluate(LOW_CONTRAST) == []


@pytest.mark.parametrize(("kind", "cells"), [("benchmark", 3 * 3), ("training", 2 * 4), ("solved", 2 * 6)])
def test_a_phone_shows_the_page_without_sideways_scrolling(visit, make_run, answered_folder, kind, cells):
    page = visit(viewport=PHONE, folder={"benchmark": None, "training": make_run(), "solved": answered_folder}[kind])
    width = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert width == [360, 360]
    for box in page.locator(".scroll").all():
        assert box.evaluate("box => box.scrollWidth <= box.clientWidth")  # numbers are seen without scrolling
    assert page.get_by_role("table").first.get_by_role("cell").count() == cells  # still a table for who cannot see it


def test_on_a_desktop_no_table_of_the_benchmark_is_cut(visit):
    wide = "boxes => boxes.filter(b => b.scrollWidth > b.clientWidth).map(b => b.innerText.slice(0, 40))"
    assert visit().eval_on_selector_all(".scroll", wide) == []


def test_without_scripts_the_page_is_whole(visit):
    page = visit(java_script_enabled=False)
    assert page.locator("form.filters").is_hidden()
    assert page.locator("th button").count() == 0
    assert page.locator('[aria-label="Results at each limit"] tbody tr:visible').count() == 5
    assert page.locator('svg[aria-labelledby^="reward-0"] path.line:visible').count() == 3


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_a_solved_log_shows_what_was_asked_of_it(visit, answered_folder: Path, viewport) -> None:
    page = visit(folder=answered_folder, viewport=viewport)
    assert page.locator("svg.chart use").count() >= 3  # one mark for each limit along the frontier
    heads = page.locator("h2").all_inner_texts()
    asked = ["What the limit on cost costs", "Policies by one log", "In state s1"]
    assert [head for head in heads if head in asked] == asked
    assert "Where more rows would help most" in heads
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    assert page.evaluate(LOW_CONTRAST) == []


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_slider_moves_limit_marks_and_numbers(visit, make_run, viewport):
    page = visit(folder=make_run({1.0: [0.0, 1.0], 3.0: [2.0, 6.0]}), viewport=viewport)
    slider, line = page.get_by_role("slider"), page.locator('[data-part="cost-limit"]')
    before = line.get_attribute("transform")
    assert slider.get_attribute("aria-valuetext").startswith("limit 1: played: mean cost 0.5, satisfied")
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext").startswith("limit 3: played: mean cost 4.0, violated")
    assert page.locator(".says").inner_text() == "Limit 3: played: mean cost 4.0, violated"
    assert (
        page.locator('[aria-label="At the chosen limit"] tr', has_text="Played").inner_text().split()[:3][-1] == "4.0"
    )
    assert float(line.get_attribute("transform")[10:].split()[0]) > float(before[10:].split()[0])
    page.get_by_role("button", name="1", exact=True).click()
    assert line.get_attribute("transform") == before
    box = slider.bounding_box()
    page.mouse.move(box["x"] + 8, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 4, box["y"] + box["height"] / 2, steps=4)
    page.mouse.up()
    assert page.locator(".says").inner_text() == "Limit 3: played: mean cost 4.0, violated"


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_policy_moves_along_the_frontier_and_a_state_explains_itself(visit, answered_folder: Path, viewport):
    page = visit(folder=answered_folder, viewport=viewport)
    cells, slider = page.locator(".heat-map tbody td"), page.locator(".policy-map").get_by_role("slider")
    tight = cells.all_inner_texts()
    slider.focus()
    page.keyboard.press("End")
    assert page.locator(".policy-map .says").inner_text().startswith("Limit on cost 0.3: reward")
    assert cells.all_inner_texts() != tight
    page.get_by_role("button", name="s1", exact=True).click()
    rows = page.locator(".explained tbody tr")
    assert rows.count() == 2
    assert rows.first.locator("td").all_inner_texts()[1:3] == ["50 %", "100"]  # of the log, and its rows
    cells.first.hover()
    assert page.locator(".pointed").inner_text().startswith("s0, action a0: policy")
    page.get_by_role("searchbox").fill("S1")
    assert page.locator(".heat-map tbody tr:visible th").all_inner_texts() == ["s1"]


def test_a_picture_is_saved_as_svg_and_printed_as_pdf_in_light_colours(visit, make_run, tmp_path):
    page = visit(folder=make_run(), color_scheme="dark")
    save = page.locator(".picture", has=page.locator('[aria-labelledby="turned-cost-t"]')).locator(".save")
    save.get_by_label("Save the picture: Cost against the limit").press("Enter")
    with page.expect_download() as download:
        save.get_by_role("button", name="SVG").click()
    assert download.value.suggested_filename == "turned-cost.svg"
    saved = ET.parse(download.value.path()).getroot()
    shapes = [part.get("d") for part in saved.iter(f"{{{SVG}}}path")]
    marks = page.locator('[aria-labelledby="turned-cost-t"] use').count()
    assert sum(shape == SHAPES[0] for shape in shapes) == marks > 1
    assert {part.get("fill") for part in saved.iter(f"{{{SVG}}}text")} == {"rgb(90, 101, 112)", "rgb(31, 41, 51)"}
    page.evaluate("window.print = () => {}")
    save.get_by_role("button", name="PDF").click()
    sheet = page.pdf(prefer_css_page_size=True)
    assert sheet.count(b"/Type /Page\n") == 1  # the picture alone
    assert b"/MediaBox [0 0 258 " in sheet  # three quarters of a point for a unit
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert (page.title(), page.locator(".sheet").count()) == ("pdocrl on Toy", 0)


@pytest.mark.parametrize("chosen", [("BallRun", None), (None, "10"), ("CarCircle", "40")])
def test_filters_change_the_ranks_to_those_of_what_is_chosen(visit, suite_folder, chosen):
    task, limit = chosen
    folder = suite_folder(shift=lambda method, task: 0.9 if (method, task) == ("pdocrl", "BallRun") else 0.0)
    page, ranks = visit(folder=folder), '[aria-label="Methods over all tasks"] tbody tr'
    everything = page.locator(ranks).all_inner_texts()
    for name, value in (("Task", task), ("Limit", limit)):
        if value is not None:
            page.get_by_role("combobox", name=name).select_option(value)
    rows = [row for row in read_rows(folder) if task in (None, row.task)]
    rows = [row for row in rows if limit in (None, f"{row.cost_limit[0]:g}")]
    expected = [
        [s.method, f"{s.rank:.2f}", f"{s.safe_limits} of {s.limits}", f"{s.reward:.2f}", f"{s.cost:.2f}"]
        for s in standings(make_runs(rows))
    ]
    shown = [row.locator("th, td").all_inner_texts() for row in page.locator(ranks).all()]
    assert [[row[i].strip() for i in (0, 1, 4, 6, 8)] for row in shown] == expected
    page.get_by_role("button", name="Show everything").click()
    page.wait_for_function("document.querySelector('output').textContent === 'Everything is shown.'")
    assert page.locator(ranks).all_inner_texts() == everything
