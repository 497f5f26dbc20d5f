# SPDX-License-Identifier: MIT
"""The page as a browser shows and prints it; skipped where there is none."""

import re
import subprocess

import pytest

from dnnsuite import report
from dnnsuite.errors import Unavailable
from dnnsuite.report._html import browser
from report_runs import record

needs_browser = pytest.mark.skipif(browser() is None, reason="no browser to print with")


@needs_browser
def test_the_page_prints_and_nothing_of_it_is_wider_than_a_window(mila_tree, tmp_path):
    page = report.html(report.make([mila_tree], "baselines", "RTX", title="A machine", price=9.0, currency="EUR"))
    path = tmp_path / "page.pdf"
    report.print_pdf(page, path)
    content = path.read_bytes()
    assert content.startswith(b"%PDF")
    pages = re.findall(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", content)
    assert pages
    assert all((round(float(w)), round(float(h))) == (595, 842) for w, h in pages)  # A4
    # A window of 1200 pixels has nothing beyond its edge.
    probe = "<script>document.title = document.documentElement.scrollWidth</script></body>"
    wide = tmp_path / "wide.html"
    wide.write_text(page.replace("</body>", probe))
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]
    command = [browser(), *options, "--window-size=1200,900", "--dump-dom", wide.as_uri()]
    said = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert int(re.search(r"<title>(\d+)</title>", said.stdout)[1]) <= 1200


def test_without_a_browser_it_says_what_would_help(monkeypatch, tmp_path, suite):
    monkeypatch.setenv("DNNSUITE_BROWSER", "no-such-browser")
    with pytest.raises(Unavailable, match=r"install chromium, or write \.html"):
        report.print_pdf(report.html(report.make([suite(record())])), tmp_path / "page.pdf")
    assert not (tmp_path / "page.pdf").exists()
