# SPDX-License-Identifier: MIT
"""Cost of sampling at 10 Hz: steps of torch with the CPU instrument's window open, against without.

    python benchmarks/instruments/bench_sampler.py [--interval 0.1] [--nvml]

The two take turns in one process. By the CPU time of the whole process, samplers included, and by wall time; the ratio
of the best of each counts, that of medians is in brackets. `--nvml` samples GPUs as well.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from dnnsuite.errors import Unavailable
from dnnsuite.profiler import Instrument
from dnnsuite.profiler.cpu import CpuInstrument
from dnnsuite.profiler.nvml import NvmlInstrument

ROUNDS, SEGMENT_S = 12, 0.5


def make_step() -> Callable[[], None]:
    """A small training step: matrix products and element-wise work."""
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256))
    x = torch.randn(64, 256)

    def step() -> None:
        model.zero_grad()
        model(x).square().mean().backward()

    return step


def seconds(step: Callable[[], None], calls: int, instruments: list[Instrument]) -> tuple[float, float]:
    """(wall s, CPU s) of a step."""
    for instrument in instruments:
        instrument.start()
    wall, cpu = time.perf_counter(), time.process_time()
    for i in range(calls):
        step()
        for instrument in instruments:
            instrument.step(i)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    for instrument in instruments:
        instrument.stop()
    return wall / calls, cpu / calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--interval", type=float, default=0.1, help="seconds between samples")
    parser.add_argument("--nvml", action="store_true", help="sample GPUs too")
    arguments = parser.parse_args()
    instruments: list[Instrument] = [CpuInstrument(arguments.interval)]
    if arguments.nvml:
        instruments.append(NvmlInstrument(arguments.interval))
    for instrument in list(instruments):
        try:
            instrument.open()
        except Unavailable as error:
            print(f"{instrument.name}: {error}")
            instruments.remove(instrument)
    torch.set_num_threads(1)  # threads that spin at a barrier would be most of the CPU time beside a busy neighbour
    step = make_step()
    one_s, _ = seconds(step, 20, [])
    calls = max(1, round(SEGMENT_S / one_s))
    found: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for _ in range(ROUNDS):
        for sampled in (False, True):
            found[sampled].append(seconds(step, calls, instruments if sampled else []))
    ratios = []
    for column in (1, 0):
        for best in (min, statistics.median):
            ratios.append(best(row[column] for row in found[True]) / best(row[column] for row in found[False]))
    print(
        f"a step with sampling every {arguments.interval:g} s / without: CPU time {ratios[0]:.3f}x ({ratios[1]:.3f}x), "
        f"wall time {ratios[2]:.3f}x ({ratios[3]:.3f}x)"
    )
    for instrument in instruments:
        print("\n".join(instrument.notes()))
        instrument.close()


if __name__ == "__main__":
    main()
