# SPDX-License-Identifier: MIT
"""A page printed to PDF by a browser of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from .._files import replacing
from ..errors import Unavailable

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
_TIMEOUT_S = 120


def browser() -> str | None:
    """Path of the first browser that prints without a window, or of `$DNNSUITE_BROWSER`; None if there is none."""
    named = os.environ.get("DNNSUITE_BROWSER")
    return next(filter(None, map(shutil.which, (named,) if named else BROWSERS)), None)


def print_pdf(page: str, path: Path) -> None:
    """Print an HTML page to a PDF file. The file is complete or absent, and nothing is fetched from a network.

    Raises:
        Unavailable: there is no browser, or it cannot print.
        OutputError: the file cannot be written.
    """
    program = browser()
    if program is None:
        raise Unavailable(
            "a browser that prints the page to PDF",
            f"{', '.join(BROWSERS)} on the PATH",
            "install chromium, or write .html and print that",
        )
    with tempfile.TemporaryDirectory() as folder, replacing(path) as temporary:
        source, made = Path(folder, "page.html"), Path(folder, "page.pdf")
        source.write_text(page, encoding="utf-8")
        # Root, as in a container, has no sandbox; the page is ours, without scripts.
        options = ["--headless", "--disable-gpu", "--no-pdf-header-footer", f"--user-data-dir={folder}/profile"]
        options += ["--no-sandbox"] if os.geteuid() == 0 else []
        command = [program, *options, f"--print-to-pdf={made}", source.as_uri()]
        try:
            said = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"a PDF of the page: {program} failed ({error})") from error
        if not made.is_file():
            last = (said.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise Unavailable(f"a PDF of the page: {program} ended with {said.returncode}: {last}")
        shutil.copyfile(made, temporary)
