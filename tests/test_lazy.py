# SPDX-License-Identifier: MIT
"""Packages whose names are resolved when first used."""

import subprocess
import sys

import pytest

from dnnsuite import _lazy

LAZY = ["importers", "profiler", "profiler.counters", "training", "workflow"]
# What is slow among all of them; then of each in a fork its names, and its names after its modules were imported.
NAMES = """
import importlib, os, pkgutil, sys
packages = [importlib.import_module(f"dnnsuite.{name}") for name in sys.argv[1:]]
print({"torch", "numpy", "pandas"} & {*sys.modules}, flush=True)
import torch, pandas  # once, before the forks
for package in packages:
    for modules in ([], [m.name for m in pkgutil.iter_modules(package.__path__) if m.name != "__main__"]):
        if os.fork() == 0:
            for module in modules:
                importlib.import_module(f"{package.__name__}.{module}")
            print(*((n, type(getattr(package, n)).__name__, n in dir(package)) for n in package.__all__), flush=True)
            os._exit(0)
        assert os.wait()[1] == 0, package
"""


def test_packages_import_nothing_slow_and_their_names_are_the_same_after_their_modules_were_imported():
    """A module of a name's name would take its place."""
    done = subprocess.run([sys.executable, "-c", NAMES, *LAZY], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    slow, *names = done.stdout.splitlines()
    assert slow == "set()"
    assert len(names) == 2 * len(LAZY)
    assert "False)" not in done.stdout
    assert names[::2] == names[1::2]


def test_a_name_that_a_package_lacks_is_refused_and_another_is_found_under_its_own():
    get, names = _lazy.lazy("dnnsuite", {".errors": "Wrong=InvalidArgument"}, ("errors",))
    assert get("Wrong").__name__ == "InvalidArgument"
    assert {"Wrong", "errors"} <= {*names()}
    with pytest.raises(AttributeError, match="module 'dnnsuite' has no attribute 'nothing'"):
        get("nothing")
