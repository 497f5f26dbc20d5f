# SPDX-License-Identifier: MIT
"""What a library of CUDA kernels runs on, read from bytes laid out as nvcc does, and from what nvcc makes."""

import shutil
import struct
import subprocess

import pytest

from dnnsuite.doctor._fat_binary import architectures, runs_on

MAGIC = 0xBA55ED50


def fat_binary(*entries):
    """Bytes of a fat binary; an entry is (kind, architecture, bytes of code)."""
    body = b"".join(
        struct.pack("<HHIQIIIII", kind, 257, 64, size, 0, 0, 0, number, 0) + bytes(64 - 36 + size)
        for kind, number, size in entries
    )
    return struct.pack("<IHHQ", MAGIC, 1, 16, len(body)) + body


def test_entries_of_several_files_are_one_list(tmp_path):
    library = tmp_path / "kernels.so"
    code = fat_binary((2, 80, 504), (2, 120, 8), (1, 120, 264)), fat_binary((2, 90, 1000))
    library.write_bytes(b"ELF" + code[0] + bytes(7) + code[1] + struct.pack("<I", MAGIC) + b"no more")
    assert architectures(library) == ["sm_80", "sm_90", "compute_120", "sm_120"]
    library.write_bytes(b"no kernels")
    assert architectures(library) == []
    for length in range(len(code[0])):  # cut off anywhere
        library.write_bytes(code[0][:length])
        assert architectures(library) == []


@pytest.mark.parametrize(
    ("built", "capability", "runs"),
    [
        (["sm_80", "sm_90"], (8, 0), True),
        (["sm_80", "sm_90"], (8, 6), True),
        (["sm_90"], (8, 0), False),
        (["sm_90"], (10, 0), False),
        (["sm_90", "compute_90"], (10, 0), True),
        (["sm_120", "compute_120"], (10, 0), False),
        ([], (9, 0), False),
    ],
)
def test_which_gpu_runs_it(built, capability, runs):
    assert runs_on(built, capability) is runs


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
def test_what_nvcc_makes(tmp_path):
    (tmp_path / "kernel.cu").write_text("__global__ void twice(float* x) { x[threadIdx.x] *= 2.0f; }\n")
    flags = ["-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_90,code=[sm_90,compute_90]"]
    made = tmp_path / "kernel.o"
    subprocess.run(["nvcc", *flags, "-c", "-o", made, tmp_path / "kernel.cu"], check=True, timeout=120)
    assert architectures(made) == ["sm_80", "compute_90", "sm_90"]
