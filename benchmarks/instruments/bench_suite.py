# SPDX-License-Identifier: MIT
"""Cost of `dnnsuite run`: time of it with everything that it starts, over that of the same training by itself.

python benchmarks/instruments/bench_suite.py [--jobs vae,recom] [--rounds 6] [--repeat 1] [--at-once]

Both make the same steps of the same jobs on one thread, in turns, each pair in the other order than the one before. By
itself a job is a process that sets it up and steps it in a plain loop, with neither suite, monitor, shares nor records.
CPU time is that of the whole tree of processes, which other work on the machine disturbs little; wall time is shown
beside it. `--repeat` runs the suite so often in one command, as it is used, and the jobs by themselves as often.
`--at-once` runs the two of a pair at the same time, on a CPU each, which they change from pair to pair: what other work
on the machine costs, it costs both.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from dnnsuite import timing

ALONE = """
import sys
from dnnsuite import jobs
import torch
torch.set_num_threads(1)
job = jobs.get(sys.argv[1])
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


class Cost(NamedTuple):
    """Seconds of commands, with all that they started: CPU, of this the first process's own where it tells, wall."""

    cpu: float
    own: float
    wall: float

    def __add__(self, other: tuple[float, ...]) -> Cost:  # type: ignore[override]
        return Cost(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


def cost(command: Sequence[str], cpus: Collection[int]) -> Cost:
    """Seconds of one command, which may use `cpus`."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with tempfile.TemporaryFile("w+") as errors:
        begin = time.monotonic()
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=errors)
        os.sched_setaffinity(process.pid, cpus)  # long before it has a thread
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.monotonic() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        told = errors.read()
    if process.returncode:
        raise SystemExit(f"{' '.join(command[:2])} ended with {process.returncode}:\n{told[-2000:]}")
    own = [float(line.split()[1]) for line in told.splitlines() if line.startswith("own ")]
    return Cost(usage.ru_utime + usage.ru_stime, sum(own), wall)


def alone(jobs: Sequence[str], repeat: int, cpus: Collection[int]) -> Cost:
    """Seconds of each job by itself, so often."""
    total = Cost(0.0, 0.0, 0.0)
    for job in [*jobs] * repeat:
        total += cost([sys.executable, "-c", ALONE, job], cpus)
    return total


def suite(jobs: Sequence[str], repeat: int, cpus: Collection[int]) -> Cost:
    """Seconds of one command that runs the jobs so often."""
    with tempfile.TemporaryDirectory() as folder:
        # Two shares of two cores, of which one is used: one thread, as the job by itself has.
        options = ["--alone", "--device", "cpu", "--no-loader", "--repeat", str(repeat)]
        names = ["baselines", "--name", ",".join(jobs)]
        out = str(Path(folder, "out"))
        return cost([sys.executable, "-c", SUITE, "run", *names, *options, "--out", out], cpus)


def told(name: str, plain: Sequence[float], whole: Sequence[float]) -> str:
    """One line: by how much the second is more, with a 95 % interval over pairs."""
    mean = sum(plain) / len(plain)
    ratio, interval = sum(whole) / sum(plain), ""
    if len(plain) > 1:
        found = timing.compare(whole, plain)  # of speeds: the plain one is faster by what the other adds
        ratio, interval = found.ratio, f" [{found.low - 1:+.1%}, {found.high - 1:+.1%}]"
    return f"{name}: {mean:.2f} s by themselves, {ratio - 1:+.1%}{interval} in a suite"


def _in_turns(jobs: Sequence[str], repeat: int, i: int) -> tuple[Cost, Cost]:
    """(by themselves, in a suite), one after the other; each pair in the other order than the one before."""
    cpus = os.sched_getaffinity(0)
    if i % 2:
        last = suite(jobs, repeat, cpus)
        return alone(jobs, repeat, cpus), last
    return alone(jobs, repeat, cpus), suite(jobs, repeat, cpus)


def _at_once(jobs: Sequence[str], repeat: int, i: int) -> tuple[Cost, Cost]:
    """The same at the same time, on a CPU each."""
    one, other, *_ = sorted(os.sched_getaffinity(0))
    mine, its = ({one}, {other}) if i % 2 else ({other}, {one})
    with ThreadPoolExecutor(2) as both:
        runs = both.submit(alone, jobs, repeat, mine), both.submit(suite, jobs, repeat, its)
        return runs[0].result(), runs[1].result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", default="vae")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--at-once", action="store_true")
    arguments = parser.parse_args()
    jobs = arguments.jobs.split(",")
    plain: list[Cost] = []
    whole: list[Cost] = []
    for i in range(arguments.rounds):
        pair = _at_once(jobs, arguments.repeat, i) if arguments.at_once else _in_turns(jobs, arguments.repeat, i)
        plain.append(pair[0])
        whole.append(pair[1])
        print("  ".join(f"{each.cpu:.2f} s CPU {each.wall:.2f} s" for each in (plain[-1], whole[-1])), flush=True)
    print(f"{', '.join(jobs)}, {arguments.repeat} times, {arguments.rounds} pairs")
    workers = [each.cpu - each.own for each in whole]
    print(told("CPU time of the jobs' processes", [each.cpu for each in plain], workers))
    print(told("CPU time of all", [each.cpu for each in plain], [each.cpu for each in whole]))
    print(told("wall time", [each.wall for each in plain], [each.wall for each in whole]))
    print(f"the command's own process: {min(each.own for each in whole):.2f} s of CPU time")


if __name__ == "__main__":
    main()
