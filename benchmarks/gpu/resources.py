# SPDX-License-Identifier: MIT
"""Registers, spills, shared memory and occupancy of this package's CUDA kernels, from the compiler; needs nvcc, no GPU.

    python benchmarks/gpu/resources.py                       # all kernels, for sm_90
    python benchmarks/gpu/resources.py batch_norm --out DIR  # DIR/gpu-kernels.csv and .md

A kernel is compiled for several types of numbers: the table has the most registers of them, all their spills, and the
occupancy that the most registers leave. Occupancy is that of Hopper: the share of an SM's 64 warps that fit at a time.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pandas

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
import command

from dnnsuite._files import write_text
from dnnsuite.errors import Unavailable

CPP = Path(__file__).parents[2] / "cpp"
KERNELS = CPP / "fused/kernels"

THREADS = {"attention": 128, "layer_norm": 128, "rms_norm": 128}
"""Threads of a block by file; 256 elsewhere, and in kernels of sums."""
DYNAMIC_BYTES = {"layer_norm": 4 * 768 * 4, "rms_norm": 4 * 768 * 4}
"""Shared memory that a launch adds, of rows of 768 numbers, but for kernels of sums."""

_OPTIONS = ("-std=c++17", "-O3", "-arch=sm_90", "-Xptxas=-v", "-cubin")
_WARPS, _BLOCKS, _REGISTERS, _SHARED_BYTES, _BLOCK_BYTES = 64, 32, 65536, 227 * 1024, 1024


class Kernel(NamedTuple):
    """One compiled kernel."""

    name: str  # demangled
    registers: int
    spill_bytes: int
    shared_bytes: int


def occupancy(threads: int, registers: int, shared_bytes: int) -> float:
    """Return the share of an SM's warps that blocks like this one leave room for."""
    warps = -(-threads // 32)
    of_warp = -(-registers * 32 // 256) * 256
    by_registers = _REGISTERS // 4 // of_warp * 4 // warps  # an SM's registers are in four parts
    by_shared = _SHARED_BYTES // (shared_bytes + _BLOCK_BYTES)
    return min(by_registers, by_shared, _WARPS // warps, _BLOCKS) * warps / _WARPS


def parsed(text: str) -> Iterator[Kernel]:
    """Read the kernels in what `ptxas -v` says, names demangled."""
    for part in text.split("Compiling entry function '")[1:]:
        name = part.partition("' for '")[0]
        registers = re.search(r"Used (\d+) registers", part)
        spills = re.findall(r"(\d+) bytes spill", part)
        shared = re.search(r"(\d+) bytes smem", part)
        if registers:
            yield Kernel(name, int(registers[1]), sum(map(int, spills)), int(shared[1]) if shared else 0)


def compiled(file: Path, nvcc: str) -> list[Kernel]:
    """Compile one file for sm_90; return its kernels."""
    with tempfile.TemporaryDirectory() as folder:
        found = subprocess.run(
            [nvcc, *_OPTIONS, f"-I{CPP}", str(file), "-o", f"{folder}/kernels.cubin"],
            capture_output=True,
            text=True,
            check=False,
        )
    if found.returncode:
        raise Unavailable(f"{file.name} does not compile: {found.stderr.strip().splitlines()[-1]}", nvcc)
    return list(parsed(demangled(found.stderr)))


def demangled(text: str) -> str:
    tool = shutil.which("c++filt")
    if tool is None:
        return text
    return subprocess.run([tool], input=text, capture_output=True, text=True, check=True).stdout


def rows(stem: str, kernels: list[Kernel]) -> list[dict[str, object]]:
    """Join the types of each kernel of a file to a row of the table."""
    by_name: dict[str, list[Kernel]] = {}
    for kernel in kernels:
        short = re.search(r"(\w+)_kernel", kernel.name)
        by_name.setdefault(short[1] if short else kernel.name, []).append(kernel)
    found = []
    for name, own in by_name.items():
        whole = name.endswith("sums")
        threads = 256 if whole else THREADS.get(stem, 256)
        shared = max(k.shared_bytes for k in own) + (0 if whole else DYNAMIC_BYTES.get(stem, 0))
        registers = [k.registers for k in own]
        found.append(
            {
                "file": stem,
                "kernel": name,
                "variants": len(own),
                "threads": threads,
                "registers": max(registers),
                "least registers": min(registers),
                "spill bytes": sum(k.spill_bytes for k in own),
                "shared bytes": shared,
                "occupancy": occupancy(threads, max(registers), shared),
            }
        )
    return found


def text(table: pandas.DataFrame, version: str) -> str:
    """Return the table in Markdown."""
    lines = [
        "# CUDA kernels as compiled for sm_90",
        "",
        f"`python benchmarks/gpu/resources.py`, nvcc {version}, no GPU. Most (least) registers of a kernel's types, "
        "their spills together,",
        "shared memory (rows of 768 numbers where it depends on them), and the share of an SM's warps that fit.",
        "",
        "| file | kernel | types | threads | registers | spills, bytes | shared, bytes | occupancy |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in table.to_dict("records"):
        registers = f"{row['registers']} ({row['least registers']})"
        cells = [row["file"], row["kernel"], row["variants"], row["threads"], registers, row["spill bytes"]]
        cells += [row["shared bytes"], f"{row['occupancy']:.0%}"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = sorted(path.stem for path in KERNELS.glob("*.cu"))
    parser.add_argument("files", nargs="*", metavar="FILE", help=f"of {', '.join(known)} (default: all)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for gpu-kernels.csv and gpu-kernels.md")
    options = parser.parse_args()
    if unknown := [name for name in options.files if name not in known]:
        parser.error(f"no kernels {', '.join(unknown)}; there are {', '.join(known)}")
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        raise Unavailable("the kernels cannot be compiled: no nvcc", "PATH", "install the CUDA toolkit")
    told = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"release ([\d.]+)", told)
    found: list[dict[str, object]] = []
    for stem in options.files or known:
        found += rows(stem, compiled(KERNELS / f"{stem}.cu", nvcc))
        table = pandas.DataFrame(found)
        print(table[table["file"] == stem].to_string(index=False, header=stem == (options.files or known)[0]))
        if options.out:
            options.out.mkdir(parents=True, exist_ok=True)
            write_text(options.out / "gpu-kernels.csv", table.to_csv(index=False))
            write_text(options.out / "gpu-kernels.md", text(table, version[1] if version else "?"))


if __name__ == "__main__":
    command.run(main, "files")
