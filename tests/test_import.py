# SPDX-License-Identifier: MIT
"""Importing is quick, quiet and needs no GPU, no CUDA library and no torch."""

import os
import platform
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import dnnsuite
from dnnsuite import _C

LOADER = Path("/lib64/ld-linux-x86-64.so.2")
SYSTEM_LIBRARIES = "/lib/x86_64-linux-gnu:/usr/lib/x86_64-linux-gnu:/lib64:/usr/lib64"


def python(code, *flags, env=None, launcher=(sys.executable,)):
    result = subprocess.run(
        [*launcher, *flags, "-c", code], capture_output=True, text=True, env={**os.environ, **(env or {})}, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


def test_importing_is_silent_and_brings_nothing_slow():
    code = "import dnnsuite, sys; print(*(m for m in sys.argv[1:] if m in sys.modules))"
    slow = ["torch", "numpy", "pandas", "matplotlib", "typer", "tokenizers", "pynvml"]
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *slow], capture_output=True, text=True, check=True
    )
    assert (result.stdout.strip(), result.stderr) == ("", "")


def test_the_instruments_need_no_torch_and_no_numpy():
    code = "import sys; from dnnsuite import timing; print(timing.now_ns() > 0, {'torch', 'numpy'} & {*sys.modules})"
    assert python(code) == ["True", "set()"]


@pytest.mark.skipif(platform.system() != "Linux", reason="/proc/self/maps is Linux's")
def test_importing_opens_no_cuda_library():
    code = """
import dnnsuite, dnnsuite._C
names = {line.split("/")[-1] for line in open("/proc/self/maps") if "/" in line}
print(*(name for name in names if name.startswith(("libcuda", "libnvidia", "libtorch"))))
"""
    assert python(code) == []


@pytest.mark.skipif(not LOADER.exists(), reason=f"the loader is not {LOADER}")
def test_the_libraries_load_where_no_cuda_toolkit_is_known():
    """A toolkit listed in ld.so.cache would hide a library that asks for it; --inhibit-cache shuts that out."""
    folder = Path(_C.__file__).parent
    code = f"""
import site
site.addsitedir({sysconfig.get_path("platlib")!r})  # no sys.path: it would hide an editable installation's finder
import ctypes, pathlib, torch, dnnsuite._C
for path in sorted(pathlib.Path({str(folder)!r}).glob("libdnnsuite_*.so"), reverse=True):  # _ops before _cuda
    ctypes.CDLL(str(path))
print(dnnsuite._C.now_ns() > 0, torch.ops.dnnsuite.layer_norm.default is not None)
"""
    loader = [str(LOADER), "--inhibit-cache", "--library-path", SYSTEM_LIBRARIES, os.path.realpath(sys.executable)]
    env = {"PYTHONPATH": "", "PYTHONHOME": sys.base_prefix, "LD_LIBRARY_PATH": ""}
    assert python(code, env=env, launcher=loader) == ["True", "True"]


@pytest.mark.parametrize("name", dnnsuite.__all__)
def test_every_public_name_is_there(name):
    assert getattr(dnnsuite, name) is not None
    assert name in dir(dnnsuite)


def test_other_names_are_refused_as_by_any_module():
    with pytest.raises(AttributeError, match="no attribute 'frobnicate'"):
        dnnsuite.frobnicate  # noqa: B018
