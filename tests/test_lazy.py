# SPDX-License-Identifier: MIT
"""Packages whose names are resolved when first used."""

import subprocess
import sys

import pytest

from dnnsuite import _lazy

LAZY = ["importers", "profiler", "profiler.counters", "training", "workflow"]


@pytest.mark.parametrize("package", LAZY)
def test_a_package_imports_nothing_slow_and_its_names_are_the_same_after_its_modules_were_imported(package):
    """A module of a name's name would take its place."""
    imports = f"import importlib, pkgutil, sys; package = importlib.import_module('dnnsuite.{package}');"
    modules = "[importlib.import_module(f'{package.__name__}.{m.name}') for m in pkgutil.iter_modules(package.__path__)"
    names = "print(*((n, type(getattr(package, n)).__name__, n in dir(package)) for n in package.__all__))"
    assert python(f"{imports} print({{'torch', 'numpy', 'pandas'}} & {{*sys.modules}})") == ["set()", ""]
    found = python(f"{imports} {names}")
    assert "False)" not in found[0]
    assert python(f"{imports} {modules} if m.name != '__main__']; {names}") == found


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split("\n")


def test_a_name_that_a_package_lacks_is_refused_and_another_is_found_under_its_own():
    get, names = _lazy.lazy("dnnsuite", {".errors": "Wrong=InvalidArgument"}, ("errors",))
    assert get("Wrong").__name__ == "InvalidArgument"
    assert {"Wrong", "errors"} <= {*names()}
    with pytest.raises(AttributeError, match="module 'dnnsuite' has no attribute 'nothing'"):
        get("nothing")
