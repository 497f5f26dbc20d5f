# SPDX-License-Identifier: MIT
"""Times variants of one computation against each other: in turns, in one process, by the CPU time of the thread.

CPU time, not wall time, so that a busy neighbour does not decide; turns, so that whatever drifts drifts for all. A
benchmark prints ratios: they carry over to other machines, milliseconds do not.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

Variants = dict[str, Callable[[], object]]


@dataclass(frozen=True)
class Timing:
    """CPU seconds of one call: the least and the median of the rounds."""

    min_s: float
    median_s: float


def interleaved(variants: Variants, rounds: int = 9, segment_s: float = 0.05) -> dict[str, Timing]:
    """Runs each variant for about `segment_s` in each round."""
    calls = {}
    for name, run in variants.items():
        run()
        begin = time.thread_time()
        run()
        run()
        one_s = max((time.thread_time() - begin) / 2, 1e-7)
        calls[name] = max(1, round(segment_s / one_s))
    samples: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, run in variants.items():
            begin = time.thread_time()
            for _ in range(calls[name]):
                run()
            samples[name].append((time.thread_time() - begin) / calls[name])
    return {name: Timing(min(values), statistics.median(values)) for name, values in samples.items()}


def report(title: str, variants: Variants, flops: float = 0.0, **options: float) -> None:
    """Prints one line: how many times faster the first variant is than each of the others, by min (by median).

    `flops`, the operations of one call, adds the first variant's rate.
    """
    timings = interleaved(variants, **options)  # type: ignore[arg-type]
    (own, mine), *others = timings.items()
    ratios = "  ".join(
        f"vs {name} {t.min_s / mine.min_s:.2f}x ({t.median_s / mine.median_s:.2f}x)" for name, t in others
    )
    rate = f" {flops / mine.min_s / 1e9:6.1f} GFLOP/s" if flops else ""
    print(f"{title:<44} {own} {mine.min_s * 1e6:9.1f} us{rate}  {ratios}", flush=True)


def start(description: str) -> argparse.Namespace:
    """One torch thread, a heap that keeps its pages, and the options all benchmarks have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--models", type=int, nargs="+", default=[1, 8], help="sizes of the array")
    arguments = parser.parse_args()
    import torch

    from dnnsuite import _C, ops

    torch.set_num_threads(1)
    torch.manual_seed(0)
    kept = _C.heap_retain()  # or page faults of fresh memory are most of what is measured
    print(
        f"# {description.splitlines()[0]} torch {torch.__version__}, {ops.instruction_set()}, one thread, "
        f"heap {'kept' if kept else 'as it is'}"
    )
    return arguments
