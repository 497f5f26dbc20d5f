# SPDX-License-Identifier: MIT
"""The checks of torch, of the package's own libraries and of what it needs."""

import importlib.metadata
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from dnnsuite._step.capture import script
from dnnsuite.doctor import _machine


def test_torch_in_and_out_of_the_tested_range(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch, "__version__", "2.12.1+cpu")
    assert _machine.torch().status == "ok"
    monkeypatch.setattr(torch, "__version__", "2.16.0+cu130")
    finding = _machine.torch()
    assert finding.status == "warning"
    assert "outside the tested range >=2.10,<2.16" in finding.detail
    assert finding.remedy == "pip install 'torch>=2.10,<2.16'"


def test_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert _machine.torch().status == "missing"
    assert "pip install" in _machine.torch().remedy


def test_broken_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dnnsuite._C", None)
    assert _machine.instruments().status == "missing"
    monkeypatch.setitem(sys.modules, "dnnsuite.ops", None)
    assert _machine.operators().status == "missing"
    assert "pip install ." in _machine.operators().remedy


def test_operators_that_compute_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong: Any = types.ModuleType("dnnsuite.ops")
    wrong.layer_norm = lambda x, weight, bias, eps: x
    monkeypatch.setitem(sys.modules, "dnnsuite.ops", wrong)
    finding = _machine.operators()
    assert finding.status == "missing"
    assert "instead of [-1, 1]" in finding.detail


def test_a_torch_under_which_steps_are_not_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "no_replay", None)
    assert _machine.operators().status == "ok"
    monkeypatch.setattr(
        script, "no_replay", "this build replays steps on a CPU under torch 2.13, and this is torch 9.9.0"
    )
    finding = _machine.operators()
    assert finding.status == "warning"
    assert finding.detail.endswith("under torch 2.13, and this is torch 9.9.0: they run eagerly")
    assert "pip install ." in finding.remedy


def test_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"torch": "2.13.0", "numpy": "2.0"}

    def version(name: str) -> str:
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    lines = ["torch<2.14,>=2.10", "numpy", "pytest; extra == 'test'"]
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: lines)
    monkeypatch.setattr(importlib.metadata, "version", version)
    assert _machine.packages() == ("ok", "torch 2.13.0, numpy 2.0", "")
    versions["torch"] = "2.9.1"
    assert _machine.packages()[:2] == ("warning", "torch 2.9.1 is not <2.14,>=2.10")
    del versions["numpy"]
    assert _machine.packages()[1:] == ("not installed: numpy", "pip install 'numpy'")


def test_package_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def requires(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", requires)
    assert _machine.packages().status == "missing"


def test_notebooks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert _machine.notebooks()[2] == "pip install '.[notebook]'"


@pytest.mark.parametrize(
    ("loads", "status", "words"),
    [
        (None, "missing", "pip install '.[jobs]'"),
        (False, "warning", "dnnsuite.data.import_torchvision()"),
        (True, "ok", ""),
    ],
)
def test_torchvision_beside_this_torch(
    monkeypatch: pytest.MonkeyPatch, loads: bool | None, status: str, words: str
) -> None:
    monkeypatch.setattr("dnnsuite.data.torchvision_loads", lambda: loads)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.28.0")
    finding = _machine.torchvision()
    assert finding.status == status
    assert words in finding.remedy


REPOSITORY = Path(__file__).resolve().parents[2]


def test_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DNNSUITE_CACHE", str(tmp_path / "a" / "b"))
    assert _machine.cache_folder() == ("ok", f"{tmp_path / 'a' / 'b'} (not made yet)", "")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("DNNSUITE_CACHE", "/proc/none")
    finding = _machine.cache_folder()
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
    finding = _machine.environment(variables)
    assert finding.status == status
    assert words in finding.detail


def test_a_misspelt_variable_is_guessed() -> None:
    assert _machine.environment({"DNNSUITE_CASHE": "/c"}).remedy == "did you mean DNNSUITE_CACHE?"


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
    assert found - internal <= set(_machine.VARIABLES)
