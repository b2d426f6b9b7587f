"""The page of ``infcalc report`` in a real browser: no errors, no requests, any width, light and dark, on paper.

Runs where Chromium or Chrome is on the PATH (Debian: ``apt-get install chromium``).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from infcalc.report.page import page
from infcalc.report.page_style import DARK, LIGHT
from infcalc.report.review import review
from tests.report.reviews import CASES, review_of
from tests.report.test_page import EVIL, with_evil

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
BROWSER = next((path for name in _NAMES if (path := shutil.which(name))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason=f"no browser on the PATH: install one of {', '.join(_NAMES)}")
PHONE, SCREEN = 390, 1200
_DARK = ("--force-dark-mode", "--blink-settings=preferredColorScheme=0")
_LIGHT = ("--blink-settings=preferredColorScheme=1",)
_MOST_S = 120
HARNESS = """<!doctype html><meta charset="utf-8"><title>harness</title><link rel="icon" href="data:,">
<body><iframe src="report.html" width="390" height="900"></iframe>
<iframe src="report.html" width="1200" height="900"></iframe><pre id="found"></pre><script>
window.addEventListener("load", () => {
  const found = [...document.querySelectorAll("iframe")].map((frame) => {
    const page = frame.contentDocument, root = page.documentElement, view = frame.contentWindow;
    const box = (one) => one.getBoundingClientRect();
    const shown = (kind) => [...page.querySelectorAll("." + kind + " svg")].filter((one) => box(one).width > 0);
    const drawings = [...shown("wide"), ...shown("narrow")];
    const words = [...page.querySelectorAll("h1,h2,h3,p,li,dd,pre,figcaption,svg")];
    return {
      width: root.clientWidth, content: root.scrollWidth, title: page.querySelector("h1").textContent,
      wide: shown("wide").length, narrow: shown("narrow").length,
      letters: Math.min(...drawings.map((one) => 11.5 * box(one).width / one.viewBox.baseVal.width)),
      background: view.getComputedStyle(page.body).backgroundColor, color: view.getComputedStyle(page.body).color,
      overflowing: words.filter((one) => !one.closest(".scroll") && box(one).right > root.clientWidth + 1)
        .map((one) => one.textContent.slice(0, 60)),
    };
  });
  document.getElementById("found").textContent = JSON.stringify(found);
});
</script>"""
"""Loads the page at the width of a phone and of a screen, and says what is seen there."""


class _Counting(SimpleHTTPRequestHandler):
    asked: list[str]

    def __init__(self, *arguments: Any, asked: list[str], **options: Any) -> None:  # noqa: ANN401 - of the base class
        self.asked = asked
        super().__init__(*arguments, **options)

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self.asked.append(self.path)
        super().do_GET()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Path, str, list[str]]]:
    """Serve a folder on this machine alone: the folder, its address, and what was asked for."""
    folder = tmp_path / "site"
    folder.mkdir()
    asked: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Counting, asked=asked, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield folder, f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def browse(tmp_path: Path, *arguments: str) -> tuple[str, list[str]]:
    """Run the browser once; return what it printed, and what a page wrote to its console."""
    assert BROWSER is not None
    flags = ["--headless", "--disable-gpu", "--no-first-run", "--enable-logging=stderr", "--virtual-time-budget=5000"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        flags.append("--no-sandbox")
    ran = subprocess.run(
        [BROWSER, *flags, f"--user-data-dir={tmp_path / 'profile'}", *arguments],
        capture_output=True,
        text=True,
        timeout=_MOST_S,
        check=True,
    )
    return ran.stdout, [line for line in ran.stderr.splitlines() if "CONSOLE" in line]


def seen(tmp_path: Path, address: str, *flags: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Return what is seen of the page at both widths, and the console."""
    dom, console = browse(tmp_path, *flags, "--dump-dom", f"{address}/harness.html")
    found = re.search(r'<pre id="found">(.*?)</pre>', dom, re.DOTALL)
    assert found, dom[-2000:]
    frames: list[dict[str, Any]] = json.loads(found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    return frames, console


def colour(text: str) -> str:
    """Return what a browser calls a colour as a style sheet writes it."""
    return "#" + "".join(f"{int(part):02x}" for part in re.findall(r"\d+", text)[:3])


def test_an_error_of_a_page_would_be_seen(tmp_path: Path, site: tuple[Path, str, list[str]]) -> None:
    folder, address, asked = site
    (folder / "report.html").write_text(
        '<script>console.error("it is seen")</script><img src="x.png">', encoding="utf-8"
    )
    _, console = browse(tmp_path, "--dump-dom", f"{address}/report.html")
    assert any("it is seen" in line for line in console)
    assert "/x.png" in asked


@pytest.mark.parametrize("name", CASES)
def test_a_page_opens_without_errors_or_requests_at_any_width(
    name: str, tmp_path: Path, site: tuple[Path, str, list[str]]
) -> None:
    folder, address, asked = site
    answer = review_of(name)
    (folder / "report.html").write_text(page(review(answer)), encoding="utf-8")
    (folder / "harness.html").write_text(HARNESS, encoding="utf-8")
    (phone, screen), console = seen(tmp_path, address, *_LIGHT)
    assert console == []
    assert set(asked) == {"/harness.html", "/report.html"}
    for view, width in ((phone, PHONE), (screen, SCREEN)):
        assert view["width"] == pytest.approx(width, abs=20), "but for a scroll bar"
        assert view["content"] <= view["width"], "nothing but a table may be scrolled sideways"
        assert view["overflowing"] == []
        assert view["title"].startswith(f"Capacity review: {answer.result.memory.model} on ")
        assert view["letters"] >= 10.5, "letters of a drawing can be read"
        assert colour(view["background"]) == LIGHT["page"]
        assert colour(view["color"]) == LIGHT["text"]
    assert phone["narrow"] == screen["wide"] >= 2
    assert phone["wide"] == screen["narrow"] == 0


def test_a_page_is_dark_where_the_reader_wants_it_dark(tmp_path: Path, site: tuple[Path, str, list[str]]) -> None:
    folder, address, _ = site
    (folder / "report.html").write_text(page(review(review_of("users"))), encoding="utf-8")
    (folder / "harness.html").write_text(HARNESS, encoding="utf-8")
    views, console = seen(tmp_path, address, *_DARK)
    assert console == []
    for view in views:
        assert (colour(view["background"]), colour(view["color"])) == (DARK["page"], DARK["text"])


def test_no_name_becomes_a_script(tmp_path: Path, site: tuple[Path, str, list[str]]) -> None:
    folder, address, asked = site
    (folder / "report.html").write_text(page(review(with_evil(review_of("users")))), encoding="utf-8")
    (folder / "harness.html").write_text(HARNESS, encoding="utf-8")
    (phone, _), console = seen(tmp_path, address, *_LIGHT)
    assert console == []
    assert set(asked) == {"/harness.html", "/report.html"}
    assert phone["title"] == f"Capacity review: {EVIL} on 4 x {EVIL}"
    assert phone["content"] <= phone["width"]


def test_a_page_prints_to_pdf(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    report.write_text(page(review(review_of("users"))), encoding="utf-8")
    target = tmp_path / "report.pdf"
    _, console = browse(tmp_path, "--no-pdf-header-footer", f"--print-to-pdf={target}", report.as_uri())
    data = target.read_bytes()
    assert console == []
    assert data.startswith(b"%PDF-")
    assert 5 <= len(re.findall(rb"/Type\s*/Page\b", data)) <= 25
