# SPDX-License-Identifier: MIT
"""`.ci/release` refuses a tag that does not agree with the version and the changelog."""

import re
import runpy
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def release(root, *arguments):
    return subprocess.run(
        [sys.executable, ROOT / ".ci/release", *arguments, "--root", root], capture_output=True, text=True, check=False
    )


@pytest.fixture
def checkout(tmp_path):
    def make(version, changelog):
        (tmp_path / "pyproject.toml").write_text(f'[project]\nname = "dnnsuite"\nversion = "{version}"\n')
        (tmp_path / "CHANGELOG.md").write_text(f"# Changes\n\n{changelog}")
        return tmp_path

    return make


def test_a_tag_of_the_version_may_be_released(checkout):
    root = checkout("0.2.0", "## Unreleased\n\n## 0.2.0 (2027-01-01)\n\n- more\n\n## 0.1.0\n\n- first\n")
    assert release(root, "v0.2.0", "--check").returncode == 0
    assert release(root, "v0.2.0", "--notes").stdout == "- more\n"


@pytest.mark.parametrize(
    ("tag", "changelog", "reason"),
    [
        ("v0.3.0", "## 0.2.0\n\n- more\n", "the tag must be v0.2.0"),
        ("0.2.0", "## 0.2.0\n\n- more\n", "the tag must be v0.2.0"),
        ("v0.2.0", "## 0.1.0\n\n- first\n", "no section '## 0.2.0'"),
        ("v0.2.0", "## Unreleased\n\n- new\n\n## 0.2.0\n\n- more\n", "move them into the version's section"),
    ],
)
def test_others_are_refused_with_the_reason(checkout, tag, changelog, reason):
    done = release(checkout("0.2.0", changelog), tag, "--check")
    assert done.returncode == 2
    assert reason in done.stderr


def test_a_wheel_that_lacks_a_gpu_is_told(tmp_path):
    lacking = runpy.run_path(str(ROOT / ".ci/release"))["lacking"]
    wheel = tmp_path / "dnnsuite.whl"
    for numbers, missing in (((80, 90, 100, 120), []), ((80, 90), ["sm_100", "sm_120"]), ((), None)):
        entries = b"".join(struct.pack("<HHIQIIII", 2, 257, 64, 0, 0, 0, 0, number) + bytes(32) for number in numbers)
        with zipfile.ZipFile(wheel, "w") as files:
            files.writestr("dnnsuite/libdnnsuite_ops.so", b"")
            if missing is not None:
                files.writestr(
                    "dnnsuite/libdnnsuite_cuda.so", struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries
                )
        assert lacking(wheel) == (["sm_80", "sm_90", "sm_100", "sm_120"] if missing is None else missing)


def test_this_checkout_has_a_section_of_its_version():
    (version,) = re.findall(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    said = release(ROOT, f"v{version}", "--check").stderr.splitlines()
    assert [line for line in said if "Unreleased" not in line] == []


@pytest.mark.parametrize(
    ("requires", "options"),
    [
        ('"pytest>=1", "packaging"', ["--no-build-isolation"]),
        ('"pytest>=1", "no-such-package"', []),
        ('"pytest<1"', []),
    ],
)
def test_a_build_downloads_nothing_that_is_here(tmp_path, requires, options):
    (tmp_path / "pyproject.toml").write_text(f"[build-system]\nrequires = [{requires}]\n")
    if shutil.which("cmake") is None:
        options = []
    script = runpy.run_path(str(ROOT / ".ci/release"))
    assert script["isolation"](tmp_path) == options
