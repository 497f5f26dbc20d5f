# SPDX-License-Identifier: MIT
"""The checks of torch, of the package's own libraries and of what it needs."""

import importlib.metadata
import sys
import types
from typing import Any

import pytest

from dnnsuite.doctor import _software


def test_torch_in_and_out_of_the_tested_range(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch, "__version__", "2.12.1+cpu")
    assert _software.torch().status == "ok"
    monkeypatch.setattr(torch, "__version__", "2.16.0+cu130")
    finding = _software.torch()
    assert finding.status == "warning"
    assert "outside the tested range >=2.10,<2.16" in finding.detail
    assert finding.remedy == "pip install 'torch>=2.10,<2.16'"


def test_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert _software.torch().status == "missing"
    assert "pip install" in _software.torch().remedy


def test_broken_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dnnsuite._C", None)
    assert _software.instruments().status == "missing"
    monkeypatch.setitem(sys.modules, "dnnsuite.ops", None)
    assert _software.operators().status == "missing"
    assert "pip install ." in _software.operators().remedy


def test_operators_that_compute_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong: Any = types.ModuleType("dnnsuite.ops")
    wrong.layer_norm = lambda x, weight, bias, eps: x
    monkeypatch.setitem(sys.modules, "dnnsuite.ops", wrong)
    finding = _software.operators()
    assert finding.status == "missing"
    assert "instead of [-1, 1]" in finding.detail


def test_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"torch": "2.13.0", "numpy": "2.0"}

    def version(name: str) -> str:
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    lines = ["torch<2.14,>=2.10", "numpy", "pytest; extra == 'test'"]
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: lines)
    monkeypatch.setattr(importlib.metadata, "version", version)
    assert _software.packages() == ("ok", "torch 2.13.0, numpy 2.0", "")
    versions["torch"] = "2.9.1"
    assert _software.packages()[:2] == ("warning", "torch 2.9.1 is not <2.14,>=2.10")
    del versions["numpy"]
    assert _software.packages()[1:] == ("not installed: numpy", "pip install 'numpy'")


def test_package_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def requires(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", requires)
    assert _software.packages().status == "missing"


def test_notebooks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert _software.notebooks()[2] == "pip install '.[notebook]'"


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
    finding = _software.torchvision()
    assert finding.status == status
    assert words in finding.remedy
