# SPDX-License-Identifier: MIT
"""The script that runs the tests under pairs of Python and torch: its table, its interpreters and its stubs."""

import ctypes
import importlib.machinery
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from dnnsuite.doctor._machine import TESTED_TORCH

SCRIPT = Path(__file__).parent.parent / ".ci/matrix"
pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="no part of a source distribution")


@pytest.fixture
def matrix(tmp_path, monkeypatch):
    loader = importlib.machinery.SourceFileLoader("ci_matrix", str(SCRIPT))
    spec = importlib.util.spec_from_loader("ci_matrix", loader)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setitem(sys.modules, "ci_matrix", module)
    loader.exec_module(module)
    monkeypatch.setattr(module, "TABLE", tmp_path / "matrix.md")
    return module


def row(matrix, python, torch, passed=5):
    return matrix.Row(python, torch, passed, 0, 1, "CPU build", "2026-11-22").line()


def test_a_new_row_leaves_the_others_and_takes_the_place_of_its_own(matrix):
    matrix.write_table(
        {("3.12", "2.9"): row(matrix, "3.12.1", "2.9.0"), ("3.9", "2.10"): row(matrix, "3.9.1", "2.10.0")}
    )
    matrix.write_table({**matrix.read_table(), ("3.12", "2.9"): row(matrix, "3.12.1", "2.9.1", passed=7)})
    assert list(matrix.read_table()) == [("3.12", "2.9"), ("3.9", "2.10")]
    lines = matrix.TABLE.read_text().splitlines()[-2:]
    assert lines == ["| 3.12.1 | 2.9.1 | 7 | 0 | 1 | 2026-11-22 | CPU build |", row(matrix, "3.9.1", "2.10.0")]


def test_the_table_of_the_project_can_be_read(matrix, monkeypatch):
    monkeypatch.setattr(matrix, "TABLE", SCRIPT.with_name("matrix.md"))
    if not matrix.TABLE.exists():
        pytest.skip("no pair was run yet")
    rows = matrix.read_table()
    assert rows
    for (python, torch), line in rows.items():
        assert f"{python}:{torch}" in matrix.PAIRS
        assert line.split("|")[4].strip() == "0", "a failed test is mended before the table is committed"
    ran = {f"{torch}.0" for _, torch in rows}
    assert ran == set(SpecifierSet(TESTED_TORCH).filter(f"2.{minor}.0" for minor in range(30)))


def test_the_tests_of_the_subset_exist(matrix):
    assert [name for name in matrix.TESTS if not (matrix.ROOT / name.partition("::")[0]).exists()] == []


def test_an_interpreter_is_found_by_its_version_or_not_at_all(matrix, tmp_path, monkeypatch):
    own = "{}.{}".format(*sys.version_info)
    (tmp_path / f"python{own}").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert matrix.interpreter(own) == str(tmp_path / f"python{own}")
    assert matrix.interpreter("99.9") is None
    assert matrix.try_pair("99.9", "2.13", matrix.Place(tmp_path, [], None)) is None


@pytest.mark.skipif(shutil.which("gcc") is None or shutil.which("readelf") is None, reason="needs gcc and binutils")
def test_a_library_loads_with_stubs_of_what_it_lacks(matrix, tmp_path):
    """One symbol with a version, one without, as torch asks CUDA's libraries for them."""
    absent, libraries, stubs = (tmp_path / name for name in ("absent", "libraries", "stubs"))
    absent.mkdir()
    libraries.mkdir()

    def build(path, code, *flags):
        source = path.with_suffix(".c")
        source.write_text(code)
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", path, source, f"-Wl,-soname,{path.name}", *flags], check=True)

    (tmp_path / "map").write_text("absent_1.2 { global: versioned; };")
    build(absent / "libabsent.so", "int versioned(void) { return 1; }", f"-Wl,--version-script={tmp_path / 'map'}")
    build(absent / "libplain.so", "int plain(void) { return 1; }")
    code = "int versioned(void); int plain(void); int both(void) { return versioned() + plain(); }"
    build(libraries / "libours.so", code, f"-L{absent}", "-labsent", "-lplain")
    assert matrix.make_stubs(libraries, stubs) == ["libabsent.so", "libplain.so"]
    for name in ("libabsent.so", "libplain.so"):
        ctypes.CDLL(str(stubs / name), mode=ctypes.RTLD_GLOBAL)
    assert ctypes.CDLL(str(libraries / "libours.so")).both() == 200
