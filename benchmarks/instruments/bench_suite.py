# SPDX-License-Identifier: MIT
"""Cost of `dnnsuite run`: CPU time of it with everything that it starts, over that of the same training by itself.

python benchmarks/instruments/bench_suite.py [--job vae] [--rounds 3]

Both make the same steps of the same job in one process on one thread, in turns; the least of each is compared. By
itself a job is set up and stepped in a plain loop, with neither suite, monitor, shares nor records. The command's own
process is told apart from its workers: it imports torch once for a whole suite, which weighs on a single short job.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ALONE = """
import sys
from dnnsuite import jobs
import torch
torch.set_num_threads(1)
job = jobs.get(sys.argv[1], jobs.Training)
own = dict(job.defaults)
repeat, number = own.pop("repeat"), own.pop("number")
made = job(jobs.JobConfig(batch_size=own.pop("batch_size"), seed=100, data_seed=100, threads=1, options=own))
made.setup()
for _ in range(repeat):
    losses = []
    for _ in range(number):
        made.step()
        losses.append(made.last_loss)
    torch.stack([loss.detach().reshape(()).float() for loss in losses]).tolist()
made.metrics()
made.close()
"""

SUITE = """
import sys, time
from dnnsuite.cli.app import main
try:
    main(sys.argv[1:])
finally:
    print("own", time.process_time(), file=sys.stderr)
"""


def cpu_s(command: Sequence[str]) -> tuple[float, float]:
    """CPU time of a command with everything that it started and waited for, and of its own process where it tells."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = [float(line.split()[1]) for line in done.stderr.splitlines() if line.startswith("own ")]
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, sum(own)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--job", default="vae")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    alone: list[tuple[float, float]] = []
    suite: list[tuple[float, float]] = []
    for i in range(arguments.rounds):
        with tempfile.TemporaryDirectory() as folder:
            out = str(Path(folder, "out"))
            # Two shares of two cores, of which one is used: one thread, as the job by itself has.
            options = ["--alone", "--device", "cpu", "--no-loader", "--out", out]
            pair = [
                (alone, [sys.executable, "-c", ALONE, arguments.job]),
                (suite, [sys.executable, "-c", SUITE, "run", arguments.job, *options]),
            ]
            for times, command in pair if i % 2 == 0 else pair[::-1]:
                times.append(cpu_s(command))
                total, own = times[-1]
                print(
                    f"{'alone' if times is alone else 'suite'} {total:.2f} s, {own:.2f} s its own", flush=True
                )
    by_itself = min(total for total, _ in alone)
    workers, own = min(total - own for total, own in suite), min(own for _, own in suite)
    print(
        f"{arguments.job}: alone {by_itself:.2f} s; dnnsuite run: workers {workers:.2f} s "
        f"({workers / by_itself - 1:+.1%}), the command's own process {own:.2f} s ({own / by_itself:+.1%})"
    )


if __name__ == "__main__":
    main()
