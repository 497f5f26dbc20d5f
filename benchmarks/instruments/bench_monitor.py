# SPDX-License-Identifier: MIT
"""Cost of the monitor of a run: a process that trains, with another one sampling the machine beside it, and without.

    python benchmarks/instruments/bench_monitor.py [--cpus 0] [--rounds 8] [--nvml]

As in a run of dnnsuite the trainer is a process of its own, on the given CPUs, and the sampling is a thread of the
process that waits for it. The two take turns. What counts is the ratio of the best times of a step, by the trainer's wall time
(what a rate is made of) and by its CPU time; and the CPU time of the sampling itself.
"""

import argparse
import os
import statistics
import subprocess
import sys

from dnnsuite.profiler.monitor import Monitor

TRAINER = """
import sys, time
import torch
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256))
x = torch.randn(64, 256)
def step():
    model.zero_grad()
    model(x).square().mean().backward()
for _ in range(50):
    step()
print("ready", flush=True)
for line in sys.stdin:
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(int(line)):
        step()
    print(time.perf_counter() - wall, time.process_time() - cpu, flush=True)
"""


def ask(trainer: subprocess.Popen[str], steps: int) -> tuple[float, float]:
    """(wall s, CPU s) of so many steps."""
    assert trainer.stdin is not None
    assert trainer.stdout is not None
    trainer.stdin.write(f"{steps}\n")
    trainer.stdin.flush()
    wall, cpu = trainer.stdout.readline().split()
    return float(wall), float(cpu)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cpus", default="", help="CPUs of the trainer, as 0,1; all by default")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=1.0, help="of training in each turn")
    parser.add_argument("--nvml", action="store_true", help="sample GPUs too")
    arguments = parser.parse_args()
    cpus = {int(cpu) for cpu in arguments.cpus.split(",") if cpu} or os.sched_getaffinity(0)
    trainer = subprocess.Popen(
        [sys.executable, "-c", TRAINER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    os.sched_setaffinity(trainer.pid, cpus)
    assert trainer.stdout is not None
    trainer.stdout.readline()
    steps = max(1, round(100 * arguments.seconds / ask(trainer, 100)[0]))
    found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    used_pct = []
    for turn in range(2 * arguments.rounds):
        watched = turn % 4 in (1, 2)  # without, with, with, without
        monitor = Monitor("nvml" if arguments.nvml else "auto" if watched else "none", gpus=arguments.nvml)
        if watched:
            with monitor:
                monitor.follow(trainer.pid)
                found[True].append(ask(trainer, steps))
            used_pct.append(monitor.record()["cpu_pct"])
        else:
            found[False].append(ask(trainer, steps))
    trainer.kill()
    trainer.wait()
    for column, name in enumerate(("wall time", "CPU time")):
        values = {on: [turn[column] for turn in found[on]] for on in found}
        best = min(values[True]) / min(values[False])
        median = statistics.median(values[True]) / statistics.median(values[False])
        print(f"{name} of a step with the monitor / without: {best:.4f} (best), {median:.4f} (median)")
    print(f"the sampling used {min(used_pct):.2f} to {max(used_pct):.2f} % of one CPU")


if __name__ == "__main__":
    main()
