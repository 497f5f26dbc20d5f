# SPDX-License-Identifier: MIT
"""Cost of a profile, beside torch.profiler's: steps under each, against steps without.

    python benchmarks/instruments/bench_profile.py [--steps 20] [--rounds 9]

Each round opens a window of `--steps` steps under each way in turn, in one process. By the CPU time of the thread, the
window's opening and closing left out; the ratio of medians to plain steps counts, that to torch.profiler is printed
beside it. `profile, phases` is what a loop pays for the phases alone, without operators.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from dnnsuite import profiler
from dnnsuite.profiler.phases import PhasesInstrument


def make_step() -> Callable[[], None]:
    """A training step of many small operators, where recording costs most."""
    model = torch.nn.Sequential(
        *(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.LayerNorm(64), torch.nn.ReLU()) for _ in range(8))
    )
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(32, 64)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def plain(step: Callable[[], None], steps: int) -> float:
    begin = time.thread_time_ns()
    for _ in range(steps):
        step()
    return (time.thread_time_ns() - begin) / steps


def under_torch(step: Callable[[], None], steps: int) -> float:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as recorder:
        begin = time.thread_time_ns()
        for _ in range(steps):
            step()
            recorder.step()
        return (time.thread_time_ns() - begin) / steps


def under_profile(step: Callable[[], None], steps: int) -> float:
    with profiler.profile() as p:
        for _ in range(steps):
            step()
            p.step()
    return sum(each.thread_cpu_ns for each in p.active) / steps


def under_phases(step: Callable[[], None], steps: int) -> float:
    instrument = PhasesInstrument()
    instrument.open()
    instrument.start()
    try:
        return plain(step, steps)
    finally:
        instrument.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=9)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    step = make_step()
    ways = {"plain": plain, "profile, phases": under_phases, "profile": under_profile, "torch.profiler": under_torch}
    samples: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(asked.rounds + 1):
        for name, way in ways.items():
            samples[name].append(way(step, asked.steps))
    medians = {name: statistics.median(values[1:]) for name, values in samples.items()}  # the first round warms up
    for name, value in medians.items():
        beside = f"{value / medians['plain']:5.2f}× plain  {value / medians['torch.profiler']:5.2f}× torch.profiler"
        print(f"{name:<16} {value / 1e3:9.1f} us/step  {beside}")


if __name__ == "__main__":
    main()
