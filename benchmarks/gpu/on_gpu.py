# SPDX-License-Identifier: MIT
"""A session on a machine with a GPU, in 25 minutes: the tests that need one, and the measurements.

    python benchmarks/on_gpu.py                        # all parts, into benchmarks/results/gpu-NAME
    python benchmarks/on_gpu.py fused ops --minutes 10 --out /tmp/results

parts:
  tests    the GPU tests; one that is skipped fails
  fused    benchmarks/fused.py on every workload
  ops      benchmarks/ops/run.py
  bf16     benchmarks/fused.py under autocast, beside the variants of one process
  memory   benchmarks/fused.py --memory
  record   benchmarks/gpu/record_fixtures.py, into tests/fixtures

Each part has its time, and the next one comes also if it fails or is not done by then; fused and ops keep what they
have finished, and fused adds to what the folder has. It also gets machine.json (`dnnsuite doctor`) and PART.log.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
import command
from setting import Setting

from dnnsuite._files import write_text

BENCHMARKS = Path(__file__).parents[1]
GRACE_S = 30.0  # for what has to be put back: an MPS daemon, a file
_ONE_PROCESS = "serial,serial+fused_adam,serial+graph,hfta,vmap,dnnsuite"


def parts(out: Path) -> dict[str, tuple[float, list[str]]]:
    """In order: the most seconds, and the arguments of Python."""
    fused = [str(BENCHMARKS / "arrays/fused.py"), "--device", "cuda"]
    return {
        "tests": (300, ["-m", "pytest", "-q", "-m", "gpu", str(BENCHMARKS.parent / "tests")]),
        "fused": (660, [*fused, "--out", str(out)]),
        "ops": (240, [str(BENCHMARKS / "ops/run.py"), "--device", "cuda", "--out", str(out)]),
        "bf16": (240, [*fused, "--amp", "bf16", "--variants", _ONE_PROCESS, "--out", str(out)]),
        "memory": (300, [*fused, "--memory"]),
        "record": (120, [str(BENCHMARKS / "gpu/record_fixtures.py")]),
    }


def run(arguments: list[str], log: Path, limit_s: float) -> str:
    """Runs Python with its output in `log`; says how it ended."""
    argv = [sys.executable, *arguments]
    environment = {**os.environ, "DNNSUITE_REQUIRE_CUDA": "1", "PYTHONUNBUFFERED": "1"}
    with log.open("wb") as file:
        process = subprocess.Popen(
            argv,
            cwd=BENCHMARKS.parent,
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
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
    for number in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
            return


def describe(out: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-m", "dnnsuite", "doctor", "--json"], capture_output=True, text=True, check=False
    )
    write_text(out / "machine.json", found.stdout)


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = list(parts(Path()))
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(known)} (default: all)")
    parser.add_argument("--minutes", type=float, default=25.0, help="for all of them (default 25)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for the results")
    options = parser.parse_args()
    if unknown := [name for name in options.parts if name not in known]:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(known)}")
    Setting(device="cuda:0").enter()
    name = re.sub(r"\W+", "-", torch.cuda.get_device_name(0).lower())
    out = (options.out or BENCHMARKS / "results" / f"gpu-{name}").absolute()
    out.mkdir(parents=True, exist_ok=True)
    describe(out)
    until = time.monotonic() + 60 * options.minutes
    failed = False
    for part in options.parts or known:
        most_s, arguments = parts(out)[part]
        limit_s = min(most_s, until - time.monotonic())
        print(f"{part}: at most {max(limit_s, 0.0):.0f} s", flush=True)
        how = run(arguments, out / f"{part}.log", limit_s) if limit_s > 0 else "no time left"
        failed |= how != "done"
        print(f"{part}: {how}", flush=True)
    print(out)
    sys.exit(failed)


if __name__ == "__main__":
    command.run(main, "parts")
