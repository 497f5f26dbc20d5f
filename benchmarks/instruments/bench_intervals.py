# SPDX-License-Identifier: MIT
"""Coverage of 95 % intervals, and false verdicts of A/A comparisons, in simulation.

    python benchmarks/instruments/bench_intervals.py [--repeats 4000] [--markdown FILE]

Each line is a process whose true mean is known: independent values, autoregressions, moving averages, a slow wander
under noise, a drift, two modes, heavy and skewed tails. Rates are those of records, from the times of a run's steps.
For each number of values: of the intervals that are given, how many hold the true mean; how many are given (the others
say "too short"); and how many of all are given and wrong, which is what a reader is misled by. A cell outside of 93 to
97 % is marked.
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
from dnnsuite._runs import rates

Values = NDArray[np.float64]
Process = Callable[[np.random.Generator, int, int], Values]  # (random, repeats, count) -> [repeats, count], mean 10

TIME_S = 0.05  # of a step, where a rate is of concern
RUNS = (2, 3, 5, 6, 8, 10, 15, 20, 30)
STEPS = (20, 30, 50, 70, 100, 150, 200, 300, 500)
COVERED = (93.0, 97.0)
LEAST_GIVEN = 0.02  # share of intervals below which a process counts as refused


def independent(draw: Callable[[np.random.Generator, tuple[int, int]], Values]) -> Process:
    """Independent values about 10."""
    return lambda random, repeats, count: 10 + draw(random, (repeats, count))


def lognormal(sigma: float) -> Process:
    """Independent times, skewed; their mean is 10."""
    scale = 10 / math.exp(sigma * sigma / 2)
    return lambda random, repeats, count: scale * random.lognormal(0, sigma, (repeats, count))


def logarithms(sigma: float) -> Process:
    """The logarithms of such times."""
    return independent(lambda random, size: np.log(random.lognormal(0, sigma, size)))


def autoregression(phi: float, noise: float = 0.0) -> Process:
    """Values about 10 of unit variance, each `phi` of the one before plus noise, and white noise on top of it."""

    def draw(random: np.random.Generator, repeats: int, count: int) -> Values:
        values = random.standard_normal((repeats, count)) * math.sqrt(1 - phi * phi)
        values[:, 0] /= math.sqrt(1 - phi * phi)
        for i in range(1, count):
            values[:, i] += phi * values[:, i - 1]
        return 10 + values + noise * random.standard_normal((repeats, count))

    return draw


def moving_average(theta: float) -> Process:
    """Values about 10, each with `theta` of the noise of the one before."""

    def draw(random: np.random.Generator, repeats: int, count: int) -> Values:
        noise = random.standard_normal((repeats, count + 1))
        return 10 + noise[:, 1:] + theta * noise[:, :-1]

    return draw


def drift(deviations: float) -> Process:
    """Independent values that rise by so many standard deviations from the first to the last."""
    return lambda random, repeats, count: (
        10 + random.standard_normal((repeats, count)) + deviations * np.linspace(-0.5, 0.5, count)
    )


def _two_modes(random: np.random.Generator, size: tuple[int, int]) -> Values:
    return random.choice([-1.0, 1.0], size) + 0.2 * random.standard_normal(size)


def _rare_mode(random: np.random.Generator, size: tuple[int, int]) -> Values:
    return random.choice([-0.5, 4.5], size, p=[0.9, 0.1]) + 0.5 * random.standard_normal(size)


INDEPENDENT: dict[str, Process] = {
    "normal": independent(lambda random, size: random.standard_normal(size)),
    "two modes": independent(_two_modes),
    "a rare second mode (10 %)": independent(_rare_mode),
    "heavy tails (t, 3 degrees)": independent(lambda random, size: random.standard_t(3, size)),
    "skewed (log-normal, 0.25)": lognormal(0.25),
    "skewed (log-normal, 0.5)": lognormal(0.5),
    "skewed (log-normal, 1)": lognormal(1),
    "logarithms of log-normal 1, as rates are taken": logarithms(1),
}
SERIES = (
    INDEPENDENT
    | {f"AR(1) {phi}": autoregression(phi) for phi in (-0.3, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)}
    | {f"MA(1) {theta}": moving_average(theta) for theta in (-0.5, 0.5, 0.9)}
    | {f"AR(1) {phi} under white noise of {noise}": autoregression(phi, noise) for phi, noise in ((0.8, 1), (0.95, 2))}
    | {f"drift by {deviations} deviations": drift(deviations) for deviations in (0.5, 1, 2)}
)


# Of times: all are positive.
RATES: dict[str, Process] = {"normal": INDEPENDENT["normal"]}
RATES |= {name: SERIES[name] for name in ("a rare second mode (10 %)", "skewed (log-normal, 0.5)")}
RATES |= {f"AR(1) {phi}": SERIES[f"AR(1) {phi}"] for phi in (-0.3, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)}


def coverage(process: Process, count: int, repeats: int, runs: bool) -> tuple[float, float, float]:
    """(share of the intervals given that hold 10, share given, share given and wrong)."""
    given = held = 0
    for values in process(np.random.default_rng(count), repeats, count):
        found = timing.batch_means(values, independent=runs)
        given += found.enough
        held += found.enough and found.low <= 10 <= found.high
    return held / given if given else math.nan, given / repeats, (given - held) / repeats


def rate_coverage(process: Process, count: int, repeats: int, copies: int, ten: bool) -> tuple[float, float, float]:
    """As :func:`coverage`, of the rate of `copies` that train at once, from the times of `count` steps of each.

    `ten`: the interval of ten blocks that are taken as independent, which records had before.
    """
    given = held = 0
    values = process(np.random.default_rng(count), repeats * copies, count).reshape(repeats, copies, count)
    for of_copies in values:
        replicas = [_steps(each) for each in of_copies]
        if ten:
            blocks = rates.block_rates(replicas, min(10, count))
            found = timing.batch_means(blocks, batches=len(blocks), independent=True)
            low, high = (None, None) if found.why else (found.low, found.high)
        else:
            low, high = rates.interval(replicas)[:2]
        if low is not None and high is not None:
            given += 1
            held += low <= copies / TIME_S <= high
    return held / given if given else math.nan, given / repeats, (given - held) / repeats


def _steps(values: Values) -> rates.Steps:
    """Steps of an item each whose times are `values`, about 10, in units that make them 50 ms, one after the other."""
    edges = np.concatenate([[0], np.cumsum(values * TIME_S / 10 * 1e9)]).astype(np.int64)
    ones = np.ones(len(values), np.int64)
    return rates.Steps(edges[:-1], edges[1:], ones, 0 * ones)


def false_verdicts(process: Process, count: int, repeats: int, paired: bool, runs: bool) -> float:
    """Share of comparisons of one thing with itself, at 5 % noise, that call it faster or slower."""
    random = np.random.default_rng(count)
    noise = [process(random, repeats, count) - 10 for _ in range(2)]
    first, second = (np.exp(0.05 * each / each.std()) for each in noise)
    wrong = 0
    for a, b in zip(first, second, strict=True):
        found = timing.compare(a, b, paired=paired, independent=runs, threshold=0.001)
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
    for title, copies, ten in (
        ("Rates of one run", 1, False),
        ("Rates of three copies at once", 3, False),
        ("Ten blocks taken as independent", 1, True),
    ):
        yield f"\n## {title}\n"
        yield "coverage of the intervals given, % (share given, %; given and wrong, %)\n"
        yield from _header(STEPS)
        for name, process in RATES.items():
            found = (rate_coverage(process, n, max(repeats // 2, 1), copies, ten) for n in STEPS)
            yield f"| {name} | " + " | ".join(map(_cell, found)) + " |"
    for title, processes, counts, paired, independent in (
        ("A/A of runs, unpaired (`independent=True`)", INDEPENDENT, RUNS, False, True),
        ("A/A of runs or blocks, paired", INDEPENDENT, RUNS, True, False),
        ("A/A of steps, unpaired", SERIES, STEPS, False, False),
        ("A/A of steps, paired", SERIES, STEPS, True, False),
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
    if given < LEAST_GIVEN:
        return f"too short ({100 * wrong:.1f})"
    mark = "" if COVERED[0] <= 100 * held <= COVERED[1] else " !"
    return f"{100 * held:.1f}{mark} ({100 * given:.0f}; {100 * wrong:.1f})"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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
