# SPDX-License-Identifier: MIT
"""Which GPUs the CUDA operators are built for: cpp/cmake/cuda.cmake with a stand-in for nvcc and nvidia-smi."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

MODULE = Path(__file__).parent.parent / "cpp/cmake/cuda.cmake"
PROJECT = """
cmake_minimum_required(VERSION 3.24)
project(choice LANGUAGES NONE)
set(DNNSUITE_CUDA AUTO CACHE STRING "")
macro(check_language name)
endmacro()
macro(enable_language name)
endmacro()
include({module})
message(NOTICE "CUDA=${{DNNSUITE_HAS_CUDA}} for ${{CMAKE_CUDA_ARCHITECTURES}}.")
"""
NVCC = """#!/bin/sh
[ "$1" = --version ] && echo 'Cuda compilation tools, release {release}, V{release}.88'
[ "$1" = --list-gpu-arch ] && printf 'compute_80\\ncompute_90\\n'
exit 0
"""
ALL = "80-real;90-real;100-real;120"


def script(path, text):
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


@pytest.fixture
def choose(tmp_path):
    """Configure with settings of CMake, variables of the environment, and the GPUs of the machine."""
    cmake = shutil.which("cmake") or pytest.skip("cmake is missing")
    (tmp_path / "CMakeLists.txt").write_text(PROJECT.format(module=MODULE), encoding="utf-8")
    (tmp_path / "bin").mkdir()
    (tmp_path / "torch").mkdir()

    def run(cuda="AUTO", gpus=None, nvcc="13.0", torch_cuda=None, definition=None, **environment):
        if gpus is None:
            script(tmp_path / "bin/nvidia-smi", "#!/bin/sh\necho NVIDIA-SMI has failed\nexit 9\n")
        else:
            script(tmp_path / "bin/nvidia-smi", f"#!/bin/sh\nprintf '{gpus}'\n")
        (tmp_path / "torch/version.py").write_text(f"cuda: Optional[str] = {torch_cuda!r}\n", encoding="utf-8")
        definitions = [f"-DDNNSUITE_CUDA={cuda}", f"-Dtorch_dir={tmp_path / 'torch'}"]
        if nvcc:
            script(tmp_path / "bin/nvcc", NVCC.format(release=nvcc))
            definitions.append(f"-DCMAKE_CUDA_COMPILER={tmp_path / 'bin/nvcc'}")
        if definition:
            definitions.append(f"-DCMAKE_CUDA_ARCHITECTURES={definition}")
        kept = {name: value for name, value in os.environ.items() if not re.search("CUDA", name)}
        kept |= {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", **environment}
        done = subprocess.run(
            [cmake, "-S", tmp_path, "-B", tmp_path / "build", *definitions],
            capture_output=True,
            text=True,
            check=False,
            env=kept,
        )
        text = " ".join((done.stdout + done.stderr).split())
        if done.returncode:
            return text
        found = re.search(r"CUDA=(\w+) for (\S*)\.", text)
        return found[2] if found[1] == "ON" else None

    return run


@pytest.mark.parametrize(
    ("asked", "built"),
    [
        ({}, None),  # a CPU torch would never load them
        ({"gpus": "9.0\\n9.0\\n"}, "90"),
        ({"gpus": "9.0\\n8.0\\n"}, "90;80"),
        ({"gpus": "12.1\\n"}, None),  # newer than the compiler
        ({"gpus": "12.1\\n", "cuda": "ON"}, ALL),
        ({"torch_cuda": "13.0"}, ALL),  # a machine without a GPU that builds for others
        ({"torch_cuda": "13.0", "gpus": "9.0\\n"}, "90"),
        ({"cuda": "all", "gpus": "9.0\\n"}, ALL),
        ({"cuda": "ON"}, ALL),
        ({"cuda": "all", "nvcc": "12.4"}, "80-real;90"),
        ({"cuda": "OFF", "gpus": "9.0\\n", "definition": "90"}, None),
        ({"definition": "86"}, "86"),
        ({"CMAKE_CUDA_ARCHITECTURES": "89;90", "TORCH_CUDA_ARCH_LIST": "8.0"}, "89;90"),
        ({"CUDAARCHS": "75"}, "75"),
        ({"TORCH_CUDA_ARCH_LIST": "8.0 9.0a;10.0+PTX"}, "80-real;90a-real;100"),
        ({"TORCH_CUDA_ARCH_LIST": "8.6", "gpus": "9.0\\n"}, "86-real"),
        ({"nvcc": None}, None),
    ],
    ids=str,
)
def test_which_gpus_are_built_for(choose, asked, built):
    assert choose(**asked) == built


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"TORCH_CUDA_ARCH_LIST": "Hopper"}, "TORCH_CUDA_ARCH_LIST has 'Hopper'"),
        ({"cuda": "perhaps"}, "DNNSUITE_CUDA must be AUTO, ON, OFF or all, not 'perhaps'"),
        ({"cuda": "ON", "nvcc": None}, "no CUDA compiler was found"),
        ({"cuda": "all", "nvcc": None}, "no CUDA compiler was found"),
    ],
    ids=str,
)
def test_what_cannot_be_built_is_refused(choose, asked, message):
    assert message in choose(**asked)
