# SPDX-License-Identifier: MIT
"""A session on a machine with a GPU, in phases of at most nine minutes, the most valuable first.

    python benchmarks/on_gpu.py first          # is it right? the tests, first rates, recordings for machines without
    python benchmarks/on_gpu.py table          # benchmarks/fused.py, B = 8, every workload against every rival
    python benchmarks/on_gpu.py deep           # operators, growth with B, 16 bits, kernels of a step, memory
    python benchmarks/on_gpu.py table kernels --out /tmp/results --minutes 12
    python benchmarks/on_gpu.py first --pack /tmp/first.tgz   # and all results so far as one file, after each part

A phase is a list of parts; a part can be asked for alone. Each has its time, and the next one comes also if it fails or
is not done by then; fused and ops keep what they have finished, and fused adds to what the folder has. The folder
(default: benchmarks/results/gpu-NAME) also gets machine.json (`dnnsuite doctor`), PART.log, and in choices/ the ways
that were measured to be the fastest (DNNSUITE_CACHE, if it is set, names another folder). It is ready to be committed
but for fixtures/, whose files belong into tests/fixtures and tests/profiler/*/recorded.

Nothing here changes the machine: compute mode, MIG, clocks, power and persistence stay as they are.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
import command
from setting import Setting
from workloads import WORKLOADS

from dnnsuite._files import replacing, write_text
from dnnsuite.errors import Unavailable

BENCHMARKS = Path(__file__).parents[1]
PHASE_S = 9 * 60.0
GRACE_S = 25.0  # for what has to be put back: an MPS daemon, a file
KILL_S = 5.0
_ONE_PROCESS = "serial,serial+fused_adam,serial+graph,serial+graph+streams,hfta,vmap,dnnsuite"
_TABLE = f"{_ONE_PROCESS},concurrent+mps"
_COMPILED = "serial,serial+compile,serial+autotuned,vmap+compile,vmap+compile+graph,dnnsuite"
_GRAPHS = "tests/_step/capture/test_cuda.py"
_KERNELS = "ops/test_operators.py"
_CHECKED = "equals_separate and odd"  # of the tests of kernels, those whose sizes are no multiple of anything
_MEMCHECK = ("compute-sanitizer", "--tool", "memcheck", "--error-exitcode", "9")
# The most telling workloads first: a phase that is cut short has them.
_ORDER = ["mlp_s", "bert", "resnet18", "mobilenet_v3_small", "pointnet", "lstm", "dcgan", "transformer_lm", "mlp_m"]


class Part(NamedTuple):
    """A command of a session: the most seconds, the arguments of Python, and the tool that Python runs under."""

    most_s: float
    arguments: list[str]
    tool: tuple[str, ...] = ()


def parts(out: Path) -> dict[str, Part]:
    """List all parts, in the order of a session."""
    tests, fixtures = BENCHMARKS.parent / "tests", out / "fixtures"
    fused = [str(BENCHMARKS / "arrays/fused.py"), "--device", "cuda", "--rounds", "5", "--segment", "0.2"]
    pytest = ["-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", "--timeout", "100"]
    pytest += ["--continue-on-collection-errors", "-W", "default"]  # other versions of libraries are no failure
    apart = [f"--ignore={tests / name}" for name in ("profiler", "benchmarks", "test_install.py")]
    growth = [*fused, "mlp_s", "bert", "--B", "1", "4", "16", "64", "--variants", "serial,serial+graph,dnnsuite"]
    return {
        "graphs": Part(60, [*pytest, str(BENCHMARKS.parent / _GRAPHS)]),
        "tests": Part(210, [*pytest, "-n", "8", *apart, str(tests)]),
        "profiler": Part(60, [*pytest, str(tests / "profiler")]),
        "rates": Part(75, [*fused, *_ORDER[:3], "--variants", "serial,serial+graph,vmap,dnnsuite", "--out", str(out)]),
        "record": Part(40, [str(BENCHMARKS / "gpu/record_fixtures.py"), "--out", str(fixtures)]),
        "activity": Part(25, [str(BENCHMARKS / "gpu/record_activity.py"), str(fixtures / "activity.npz")]),
        "nvml": Part(25, [str(BENCHMARKS / "gpu/record_nvml.py"), str(fixtures / "nvml.csv")]),
        "fused": Part(490, [*fused, *_ordered(), "--variants", _TABLE, "--out", str(out)]),
        "ops": Part(130, [str(BENCHMARKS / "ops/run.py"), "--device", "cuda", "--out", str(out)]),
        "kernels": Part(40, [str(BENCHMARKS / "gpu/step_kernels.py"), *_ORDER[:3], "--out", str(out)]),
        "growth": Part(80, [*growth, "--out", str(out / "growth")]),
        "bf16": Part(70, [*fused, *_ORDER[1:4], "--amp", "bf16", "--variants", _ONE_PROCESS, "--out", str(out)]),
        "compiled": Part(80, [*fused, "mlp_s", "bert", "--variants", _COMPILED, "--out", str(out / "compiled")]),
        "memory": Part(40, [*fused, *_ORDER[:3], "--memory"]),
        "memcheck": Part(50, [*pytest, "-p", "no:xdist", str(tests / _KERNELS), "-k", _CHECKED], _MEMCHECK),
    }


PHASES = {
    "first": ["graphs", "tests", "profiler", "rates", "record", "activity", "nvml"],
    "table": ["fused"],
    "deep": ["ops", "kernels", "growth", "bf16", "compiled", "memory", "memcheck"],
}


def _ordered() -> list[str]:
    return [*_ORDER, *(name for name in WORKLOADS if name not in _ORDER)]


def chosen(names: Sequence[str]) -> list[str]:
    """List the parts that `names`, phases and parts, stand for; all for none."""
    return list(dict.fromkeys(part for name in names or PHASES for part in PHASES.get(name, [name])))


def run(arguments: Sequence[str], log: Path, limit_s: float, tool: Sequence[str] = ()) -> str:
    """Runs Python, under a tool if one is given, with its output in `log`; says how it ended."""
    if tool and shutil.which(tool[0]) is None:
        return f"no {tool[0]} on PATH"
    argv = [*tool, sys.executable, *arguments]
    environment = {"DNNSUITE_CACHE": str(log.parent / "choices"), **os.environ}
    environment |= {"DNNSUITE_REQUIRE_CUDA": "1", "PYTHONUNBUFFERED": "1"}
    with log.open("wb") as file:
        process = subprocess.Popen(
            argv, cwd=BENCHMARKS.parent, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            end(process)
            return f"stopped after {limit_s:.0f} s"
        except BaseException:
            end(process)
            raise
    return "done" if status == 0 else f"failed with status {status}, see {log}"


def end(process: subprocess.Popen[bytes]) -> None:
    """As Ctrl-C does, so that it puts back what it has changed; with force where that does not help."""
    for number, most_s in ((signal.SIGINT, GRACE_S), (signal.SIGKILL, KILL_S)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(most_s)
            return


def describe(out: Path) -> None:
    command = [sys.executable, "-m", "dnnsuite", "doctor", "--json"]
    with contextlib.suppress(subprocess.TimeoutExpired):
        found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        write_text(out / "machine.json", found.stdout)


def pack(out: Path, file: Path) -> None:
    """Writes the folder as one compressed file, whole or not at all."""
    with replacing(file) as path, tarfile.open(path, "w:gz") as archive:
        archive.add(out, out.name)


def asked() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = [*PHASES, *parts(Path())]
    parser.add_argument("parts", nargs="*", metavar="PHASE|PART", help=f"of {', '.join(known)} (default: all phases)")
    parser.add_argument("--minutes", type=float, help="for all that is asked for (default: 9 per phase)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for the results")
    parser.add_argument("--pack", type=Path, metavar="FILE", help="also all of it as FILE (.tgz), after each part")
    options = parser.parse_args()
    if options.pack and options.out and options.pack.absolute().is_relative_to(options.out.absolute()):
        parser.error(f"--pack {options.pack} lies in the folder that is packed: name a file outside of it")
    if unknown := [name for name in options.parts if name not in known]:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(known)}")
    return options


def main() -> None:
    begin = time.monotonic()
    import torch

    options = asked()
    seconds = PHASE_S * max(1, len([p for p in options.parts or PHASES if p in PHASES]))
    until = begin + (60 * options.minutes if options.minutes else seconds) - GRACE_S - KILL_S
    if not torch.cuda.is_available():
        raise Unavailable(
            "there is no session on a GPU without one", "cuda:0", "`dnnsuite doctor` says what is missing"
        )
    Setting(device="cuda:0").enter()
    name = re.sub(r"\W+", "-", torch.cuda.get_device_name(0).lower())
    out = (options.out or BENCHMARKS / "results" / f"gpu-{name}").absolute()
    (out / "fixtures").mkdir(parents=True, exist_ok=True)
    describe(out)
    failed = False
    for part in chosen(options.parts):
        most_s, arguments, tool = parts(out)[part]
        limit_s = min(most_s, until - time.monotonic())
        print(f"{part}: at most {max(limit_s, 0.0):.0f} s", flush=True)
        how = run(arguments, out / f"{part}.log", limit_s, tool) if limit_s > 0 else "no time left"
        failed |= how != "done"
        print(f"{part}: {how}", flush=True)
        if options.pack:
            pack(out, options.pack)
    print(out)
    sys.exit(failed)


if __name__ == "__main__":
    command.run(main, "parts")
