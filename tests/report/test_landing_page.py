"""The landing page of the site as built, in a real browser: what it says first, and where its links lead."""

from __future__ import annotations

import functools
import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the site, whose tutorials' code was not run."""
    for needed in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(needed, reason="no MkDocs: pip install 'pdocrl[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    quick = {**os.environ, "PDOCRL_DOCS_RUN": "0", "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=quick, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
def test_its_doors_examples_and_page_lead_where_they_say(browser, site: str, width: int, scheme: str) -> None:
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    trouble: list[str] = []
    page.on("console", lambda message: trouble.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith((site, "data:")) else trouble.append(request.url))
    page.goto(site)
    heads = page.locator("article h2").evaluate_all("heads => heads.map(head => head.firstChild.textContent)")
    assert heads == ["Three doors", "Three examples", "How sure", "How to cite"]
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.locator("article img").first.evaluate("image => image.naturalWidth") > 0
    for link, title in (
        ("Tutorial: a log of your own", "A log of your own"),
        ("Tutorial: a dataset of your own", "A dataset of your own"),
        ("Tutorial: choosing without a simulator", "Choosing a policy without a simulator"),
        ("Shop inventory", "Shop inventory: finite states, two limits"),
    ):
        page.locator("article").get_by_role("link", name=link).click()
        assert page.locator("article h1").evaluate("head => head.firstChild.textContent") == title
        page.goto(site)
    page.locator("article").get_by_role("link", name="Turn the dial").click()
    slider = page.get_by_role("slider")
    slider.press("End")
    assert slider.get_attribute("aria-valuetext").startswith("limit 80: predicted cost at most")
    page.close()
    assert trouble == []
