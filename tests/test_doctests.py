# SPDX-License-Identifier: MIT
"""Examples in docstrings print what they say."""

import doctest
import importlib
from pathlib import Path

import pytest

import dnnsuite

PACKAGE = Path(dnnsuite.__file__).parent
MODULES = sorted(
    ".".join(("dnnsuite", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    module = importlib.import_module(name)
    examples = [test for test in doctest.DocTestFinder().find(module) if test.examples]
    assert examples
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    said: list[str] = []
    for test in examples:
        runner.run(test, out=said.append)
    assert runner.failures == 0, "".join(said)
