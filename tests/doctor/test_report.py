# SPDX-License-Identifier: MIT
"""The doctor's list: complete on any machine, honest about what is broken, printable."""

import json
import os
import subprocess
import sys

import pytest

from dnnsuite import doctor
from dnnsuite.doctor import _report
from dnnsuite.doctor._finding import Finding, ok


@pytest.fixture(scope="module")
def checks() -> list[doctor.Check]:
    return doctor.report()


def test_every_check_says_something(checks: list[doctor.Check]) -> None:
    assert [check.group for check in checks] == sorted(
        (check.group for check in checks), key=("software", "gpu", "machine", "settings").index
    )
    assert len({check.name for check in checks}) == len(checks) >= 20
    for check in checks:
        assert check.status in ("ok", "warning", "missing"), check
        assert check.detail, check
        assert bool(check.remedy) != check.ok, check


def test_essentials_work_here(checks: list[doctor.Check]) -> None:
    status = {check.name: check.status for check in checks if check.essential}
    assert set(status) == {"torch", "instruments", "operators"}
    assert "missing" not in status.values()
    assert doctor.exit_code(checks) == 0


def test_as_json(checks: list[doctor.Check]) -> None:
    record = json.loads(json.dumps(doctor.to_dict(checks)))
    assert record["ok"] is True
    assert [doctor.Check(**entry) for entry in record["checks"]] == checks


@pytest.mark.parametrize("width", [60, 110, 200])
def test_text_keeps_to_its_width(checks: list[doctor.Check], width: int) -> None:
    text = doctor.render(checks, width)
    for check in checks:
        assert check.name in text
    long_words = max(len(word) for check in checks for word in f"{check.detail} {check.remedy}".split())
    assert max(map(len, text.splitlines())) <= max(width, 40 + long_words)
    assert text.splitlines()[-1].endswith("nothing essential is missing")


def test_a_check_that_fails_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> Finding:
        raise OSError("the file\nis gone")

    monkeypatch.setattr(_report, "CHECKS", (("gpu", "odd", fails), ("software", "torch", lambda: ok("1.0"))))
    odd, torch = doctor.report()
    assert (odd.status, odd.detail) == ("missing", "the check failed: OSError: the file is gone")
    assert torch.ok
    assert doctor.exit_code([odd, torch]) == 0


def test_something_essential_is_broken() -> None:
    broken = doctor.Check("operators", "software", "missing", "no library", "reinstall", essential=True)
    assert doctor.exit_code([broken]) == 2
    assert doctor.to_dict([broken])["ok"] is False
    text = doctor.render([broken])
    assert "-> reinstall" in text
    assert "0 ok, 0 warnings, 0 optional parts not here; broken: operators" in text


def test_bare_surroundings_break_nothing() -> None:
    """No PATH, no home, no torch: the list is still complete, and says that torch is missing."""
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from dnnsuite import doctor\n"
        "checks = doctor.report()\n"
        "print(len(checks), doctor.exit_code(checks), [c.status for c in checks if c.name == 'torch'])"
    )
    bare = {"PATH": "", "HOME": "/nonexistent", "LC_ALL": "C", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env=bare, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    assert done.stdout.strip() == f"{len(_report.CHECKS)} 2 ['missing']"
