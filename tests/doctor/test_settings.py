# SPDX-License-Identifier: MIT
"""The cache folder and the environment variables."""

import re
from pathlib import Path

import pytest

from dnnsuite.doctor import _settings

REPOSITORY = Path(__file__).resolve().parents[2]


def test_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DNNSUITE_CACHE", str(tmp_path / "a" / "b"))
    assert _settings.cache_folder() == ("ok", f"{tmp_path / 'a' / 'b'} (not made yet)", "")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("DNNSUITE_CACHE", "/proc/none")
    finding = _settings.cache_folder()
    assert finding.status == "warning"
    assert "/proc/none cannot be written" in finding.detail


@pytest.mark.parametrize(
    ("variables", "status", "words"),
    [
        ({"HOME": "/"}, "ok", "no DNNSUITE_ variable is set"),
        ({"DNNSUITE_ISA": "avx2", "DNNSUITE_CACHE": "/c"}, "ok", "DNNSUITE_CACHE=/c; DNNSUITE_ISA=avx2"),
        ({"DNNSUITE_ISA": "sse9"}, "warning", "DNNSUITE_ISA is ignored"),
        ({"DNNSUITE_CASHE": "/c"}, "warning", "not a variable of this package: DNNSUITE_CASHE"),
    ],
)
def test_environment(variables: dict[str, str], status: str, words: str) -> None:
    finding = _settings.environment(variables)
    assert finding.status == status
    assert words in finding.detail


def test_a_misspelt_variable_is_guessed() -> None:
    assert _settings.environment({"DNNSUITE_CASHE": "/c"}).remedy == "did you mean DNNSUITE_CACHE?"


def test_list_of_variables_is_that_of_the_code() -> None:
    """Every variable that the code reads is listed, so that the doctor calls none of ours unknown."""
    read = re.compile(r"""(?:environ(?:\.get\(|\[)|getenv\(|\benv = )\s*["'](DNNSUITE_\w+)["']""")
    files = [
        path
        for folder in ("python", "cpp", "_backend", "tests", "notebooks")
        for path in (REPOSITORY / folder).rglob("*")
        if path.suffix in (".py", ".cpp", ".hpp", ".ipynb") and path != Path(__file__)
    ]
    found = {name for path in [*files, REPOSITORY / "pyproject.toml"] for name in read.findall(path.read_text())}
    internal = {name for name in found if name.endswith("_FD")}  # from a workflow to its own workers
    assert {"DNNSUITE_CACHE", "DNNSUITE_ISA", "DNNSUITE_CUDA"} <= found
    assert found - internal <= set(_settings.VARIABLES)
