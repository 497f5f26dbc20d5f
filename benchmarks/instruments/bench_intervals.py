# SPDX-License-Identifier: MIT
"""Coverage of 95 % intervals, and false verdicts of A/A comparisons, in simulation.

    python benchmarks/instruments/bench_intervals.py [--repeats 4000] [--markdown FILE]

Each line is a process whose true mean is known: independent values, first-order autoregressions, two modes, heavy and
skewed tails. For each number of values: of the intervals that are given, how many hold the true mean; how many are
given (the others say "too short"); and how many of all are given and wrong, which is what a reader is misled by.
"""

from __future__ import annotations

import argparse
import math
import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dnnsuite import timing

Values = NDArray[np.float64]
Process = Callable[[np.random.Generator, int], Values]

RUNS = (2, 3, 5, 6, 8, 10, 20, 30)
STEPS = (10, 20, 30, 50, 100, 200, 500)


def autoregression(phi: float) -> Process:
    """Values of unit variance and mean 0, each `phi` of the one before plus noise."""

    def draw(random: np.random.Generator, count: int) -> Values:
        noise = random.standard_normal(count) * math.sqrt(1 - phi * phi)
        noise[0] /= math.sqrt(1 - phi * phi)
        for i in range(1, count):
            noise[i] += phi * noise[i - 1]
        return noise

    return draw


def _two_modes(random: np.random.Generator, count: int) -> Values:
    return random.choice([-1.0, 1.0], count) + 0.2 * random.standard_normal(count)


INDEPENDENT: dict[str, Process] = {
    "normal": lambda random, count: random.standard_normal(count),
    "two modes": _two_modes,
    "heavy tails (t, 3 degrees)": lambda random, count: random.standard_t(3, count),
    "skewed (log-normal, 0.5)": lambda random, count: random.lognormal(0, 0.5, count) - math.exp(0.125),
    "the same, its logarithms, as rates are taken": lambda random, count: np.log(
        random.lognormal(0, 0.5, count)
    ),
}
SERIES = INDEPENDENT | {f"AR(1) {phi}": autoregression(phi) for phi in (0.3, 0.5, 0.7, 0.9)}


def coverage(process: Process, count: int, repeats: int, runs: bool) -> tuple[float, float, float]:
    """(share of the intervals given that hold 0, share given, share given and wrong)."""
    random = np.random.default_rng(count)
    given = held = 0
    for _ in range(repeats):
        values = process(random, count)
        found = timing.batch_means(values, independent=runs)
        given += found.enough
        held += found.enough and found.low <= 0 <= found.high
    return held / given if given else math.nan, given / repeats, (given - held) / repeats


def false_verdicts(process: Process, count: int, repeats: int, paired: bool, independent: bool) -> float:
    """Share of comparisons of one thing with itself, at 5 % noise, that call it faster or slower."""
    random = np.random.default_rng(count)
    wrong = 0
    for _ in range(repeats):
        first, second = (np.exp(0.05 * process(random, count)) for _ in range(2))
        found = timing.compare(first, second, paired=paired, independent=independent, threshold=0.001)
        wrong += found.verdict in ("faster", "slower")
    return wrong / repeats


def tables(repeats: int) -> Iterator[str]:
    """Markdown, table by table."""
    for title, processes, counts, runs in (
        ("Means of separate runs (`independent=True`)", INDEPENDENT, RUNS, True),
        ("Steps of one run, a series", SERIES, STEPS, False),
    ):
        yield f"\n## {title}\n"
        yield "coverage of the intervals given, % (share given, %; given and wrong, %)\n"
        yield from _header(counts)
        for name, process in processes.items():
            cells = (coverage(process, count, repeats, runs) for count in counts)
            yield f"| {name} | " + " | ".join(map(_cell, cells)) + " |"
    for title, processes, counts, paired, independent in (
        ("A/A of runs, unpaired (`independent=True`)", INDEPENDENT, RUNS[1:], False, True),
        ("A/A of runs or blocks, paired", INDEPENDENT, RUNS[1:], True, False),
        ("A/A of steps, unpaired", SERIES, STEPS, False, False),
        ("A/A of steps, paired", SERIES, STEPS[1:], True, False),
    ):
        yield f"\n## {title}\n"
        yield "verdicts that are wrong, %\n"
        yield from _header(counts)
        for name, process in processes.items():
            cells = (f"{100 * false_verdicts(process, n, repeats, paired, independent):.1f}" for n in counts)
            yield f"| {name} | " + " | ".join(cells) + " |"


def _header(counts: tuple[int, ...]) -> Iterator[str]:
    yield "| values | " + " | ".join(map(str, counts)) + " |"
    yield "|---" * (len(counts) + 1) + "|"


def _cell(found: tuple[float, float, float]) -> str:
    held, given, wrong = found
    if given < 0.02:
        return f"too short ({100 * wrong:.1f})"
    return f"{100 * held:.1f} ({100 * given:.0f}; {100 * wrong:.1f})"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=4000)
    parser.add_argument("--markdown", type=Path, help="write the tables into this file")
    asked = parser.parse_args(arguments)
    about = f"# Intervals in simulation\n\n{asked.repeats} repeats each, seeds fixed, {platform.machine()}."
    lines = [about]
    for line in tables(asked.repeats):
        print(line, file=sys.stdout, flush=True)
        lines.append(line)
    if asked.markdown is not None:
        asked.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
