# SPDX-License-Identifier: MIT
"""Bank conflicts of this package's CUDA kernels, counted where they run on the host; needs g++, GoogleTest, no GPU.

    python benchmarks/gpu/banks.py             # every access to shared memory that takes more than one turn
    python benchmarks/gpu/banks.py --out DIR   # DIR/gpu-banks.csv and .md: the worst of each kernel

The tests of tests/cpp/fused/kernels are compiled with the compiler's instrumentation of memory accesses, and run. Lanes
of a warp that want different words of one of the 32 banks at a time take turns: 1 is as good as it gets. It takes
minutes.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pandas

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
import command

from dnnsuite._files import write_text
from dnnsuite.errors import Unavailable

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests/cpp/fused/kernels"
_FILTER = "*/0.*:*/2.*-OptimizerStep*"  # float and bfloat16; an optimizer's threads all read the same rule
_INCLUDES = [f"-I{TESTS}/host_cuda", f"-I{ROOT}/tests/cpp", f"-I{ROOT}/cpp"]
_OPTIONS = ["-std=c++20", "-O1", "-g1", "-fno-pie", "-w", *_INCLUDES]


class Access(NamedTuple):
    """A place in a kernel that accesses shared memory; turns of the worst access of a warp, and of the mean one."""

    file: str
    kernel: str
    line: int
    bytes: int
    most: int
    mean: float


def sources() -> list[tuple[Path, list[str]]]:
    """List what has to be compiled, with its options."""
    watched = ["-fsanitize=thread"]
    found = [(path, ["-xc++", *watched]) for path in sorted((ROOT / "cpp/fused/kernels").glob("*.cu"))]
    found += [(path, watched) for path in sorted(TESTS.glob("*_test.cpp"))]
    found += [(path, ["-DDNNSUITE_ISA=generic"]) for path in sorted((ROOT / "cpp/fused/cpu").glob("*_kernel.cpp"))]
    return [*found, *((TESTS / "host_cuda" / name, []) for name in ("runtime.cpp", "banks.cpp"))]


def built(folder: Path) -> Path:
    """Compile the tests with counters; return the program."""
    compiler = os.environ.get("CXX") or shutil.which("g++")
    if compiler is None:
        raise Unavailable("the kernels cannot be compiled: no g++", "PATH", "install it, or set CXX")

    def compiled(given: tuple[Path, list[str]]) -> str:
        source, options = given
        target = f"{folder}/{source.parent.name}-{source.stem}.o"
        call([compiler, *_OPTIONS, *options, "-c", str(source), "-o", target])
        return target

    def call(words: list[str]) -> None:
        found = subprocess.run(words, capture_output=True, text=True, check=False)
        if found.returncode:
            raise Unavailable(f"the kernels do not compile: {found.stderr.strip().splitlines()[-1]}", words[0])

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compiled, sources()))
    program = folder / "counted"
    call([compiler, "-no-pie", *objects, "-lgtest", "-lgtest_main", "-lpthread", "-o", str(program)])
    return program


def counted(program: Path) -> list[tuple[int, int, int, float]]:
    """Run it; return address, bytes, most turns, and mean turns of each place."""
    out = program.with_name("banks.txt")
    words = [str(program), f"--gtest_filter={_FILTER}", "--gtest_brief=1"]
    subprocess.run(words, env=os.environ | {"BANKS_OUT": str(out)}, check=True)
    lines = (line.split() for line in out.read_text().splitlines())
    return [(int(address, 16), int(size), int(most), float(mean)) for address, size, most, mean in lines]


def named(program: Path, found: list[tuple[int, int, int, float]]) -> list[Access]:
    """Say of each place which line of which kernel it is; those in no kernel are left out."""
    addresses = "".join(f"{address - 1:#x}\n" for address, *_ in found)  # of the call, not of what follows it
    told = subprocess.run(
        ["addr2line", "-aifC", "-e", str(program)], input=addresses, capture_output=True, text=True, check=True
    )
    parts = re.split(r"^0x[0-9a-f]+\n", told.stdout, flags=re.MULTILINE)[1:]
    places = (placed(part, *rest) for part, (_, *rest) in zip(parts, found, strict=True))
    return [access for access in places if access is not None]


def placed(frames: str, size: int, most: int, mean: float) -> Access | None:
    """Read addr2line's frames of one place, from the innermost function to the kernel."""
    lines = frames.splitlines()
    kernel = next((name for name in (re.search(r"(\w+)_kernel\b", text) for text in lines[::2]) if name), None)
    where = re.search(r"([^/]+):(\d+)", lines[1])
    file = next(
        (found[1] for found in (re.search(r"(\w+)\.cuh?:", text) for text in reversed(lines[1::2])) if found), None
    )
    if where is None or file is None:
        return None
    return Access(file, kernel[1] if kernel else function(lines[-2]), int(where[2]), size, most, mean)


def function(name: str) -> str:
    """Return the bare name of a function that is no part of a kernel's code: the compiler kept it apart."""
    text = name.replace("(anonymous namespace)::", "").partition("(")[0]
    while (shorter := re.sub(r"<[^<>]*>", "", text)) != text:
        text = shorter
    return text.split("::")[-1]


def worst(accesses: list[Access]) -> pandas.DataFrame:
    """Return the worst of each kernel, over its types of numbers."""
    table = pandas.DataFrame(accesses, columns=Access._fields)
    rows = table.sort_values("most", ascending=False).groupby(["file", "kernel"], sort=True)
    found = rows.agg(places=("line", "nunique"), most=("most", "max"), mean=("mean", "max"), line=("line", "first"))
    return found.reset_index()


def text(table: pandas.DataFrame) -> str:
    """Return the table in Markdown."""
    lines = [
        "# Bank conflicts of the CUDA kernels",
        "",
        "`python benchmarks/gpu/banks.py`: counted on the host, no GPU. Turns that accesses of a warp to shared "
        "memory take:",
        "the most in all shapes and types of numbers of the tests, and the worst mean of one line; 1 is no conflict.",
        "",
        "| file | kernel, or function of several | lines with accesses | most turns | worst mean |",
        "|---|---|---|---|---|",
    ]
    for row in table.to_dict("records"):
        lines.append(f"| {row['file']} | {row['kernel']} | {row['places']} | {row['most']} | {row['mean']:.2f} |")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for gpu-banks.csv and gpu-banks.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = built(Path(folder))
        accesses = named(program, counted(program))
    for access in sorted(set(accesses)):
        if access.most > 1:
            where = f"{access.file}, {access.kernel}, line {access.line}"
            print(f"{where}: {access.most} turns, {access.mean:.2f} in the mean")
    table = worst(accesses)
    print(table.to_string(index=False))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        write_text(options.out / "gpu-banks.csv", table.to_csv(index=False))
        write_text(options.out / "gpu-banks.md", text(table))


if __name__ == "__main__":
    command.run(main, "tables")
