# SPDX-License-Identifier: MIT
"""Times variants of one computation against each other: in turns, in one process, by the CPU time of the thread.

CPU time, not wall time, so that a busy neighbour does not decide; on a GPU the time between two events of its stream.
Turns, so that whatever drifts drifts for all. A benchmark prints ratios: they carry over to other machines,
milliseconds do not. Benchmarks of operators also print what was reached of the measured roofline, by one thread or by
the GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dnnsuite._runs.monitor import all_cores
from dnnsuite._runs.turn_session import Way, take_turns_here
from dnnsuite._runs.turns import Goal
from dnnsuite.errors import Error

if TYPE_CHECKING:
    from work import Work

    from dnnsuite.profiler.roofline import Peaks

Variants = dict[str, Callable[[], object]]
Stopwatch = Callable[[Callable[[], object], int], float]  # (call, how often) → seconds


@dataclass(frozen=True)
class Timing:
    """CPU seconds of one call: the least and the median of the rounds."""

    min_s: float
    median_s: float


@dataclass(frozen=True)
class Case:
    """One operator on one shape: ours first, then the peers that do the same work.

    `precision` names the variants that do not compute in fp32.
    """

    name: str
    shape: str
    variants: Variants
    work: Work
    precision: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Rate:
    """Rates of a variant of a case. `ratio` is how many times as fast ours is, by the least times; `median_ratio`
    by the medians. `roof_pct` is of the least time this machine needs, `bound` what that is for."""

    name: str
    shape: str
    variant: str
    us: float
    gflop_per_s: float
    gb_per_s: float
    roof_pct: float
    bound: str
    ratio: float
    median_ratio: float
    device: str


@dataclass(frozen=True)
class Place:
    """A device on which operators are timed, with its peaks."""

    device: str
    peaks: Peaks
    stopwatch: Stopwatch

    @property
    def clock(self) -> str:
        return "CPU time" if self.device == "cpu" else f"CUDA events on {self.device}"


Cases = Callable[[int], Iterable[Case]]  # of B models


def thread_seconds(call: Callable[[], object], times: int) -> float:
    begin = time.thread_time()
    for _ in range(times):
        call()
    return time.thread_time() - begin


def interleaved(
    variants: Variants, rounds: int = 9, segment_s: float = 0.05, stopwatch: Stopwatch = thread_seconds
) -> dict[str, Timing]:
    """Runs each variant for about `segment_s` in each round, in a fresh random order."""
    found = take_turns_here(
        {name: repeated(run) for name, run in variants.items()},
        Goal(rounds=rounds),
        cores=all_cores(),
        stopwatch=stopwatch,
        by_cpu_time=True,  # of this thread, or of the GPU: neighbours do not count
        segment_s=segment_s,
    )
    samples = {name: found.seconds(name) for name in variants}
    return {name: Timing(min(values), statistics.median(values)) for name, values in samples.items()}


def repeated(run: Callable[[], object]) -> Way:
    """The function, so many times."""

    def several(times: int) -> None:
        for _ in range(times):
            run()

    return several


def report(title: str, variants: Variants, **options: float) -> None:
    """Prints one line: how many times faster the first variant is than each of the others, by min (by median)."""
    timings = interleaved(variants, **options)  # type: ignore[arg-type]
    (own, mine), *others = timings.items()
    ratios = "  ".join(
        f"vs {name} {t.min_s / mine.min_s:.2f}x ({t.median_s / mine.median_s:.2f}x)" for name, t in others
    )
    print(f"{title:<44} {own} {mine.min_s * 1e6:9.1f} us  {ratios}", flush=True)


def rates(case: Case, timings: dict[str, Timing], place: Place) -> list[Rate]:
    from work import roof

    peaks = place.peaks
    mine = next(iter(timings.values()))
    found = []
    for variant, t in timings.items():
        least = roof(case.work, peaks, case.precision.get(variant, "fp32"))
        flop_per_s, bytes_per_s = (amount / t.min_s for amount in case.work)
        found.append(Rate(
            case.name, case.shape, variant, 1e6 * t.min_s, flop_per_s / 1e9, bytes_per_s / 1e9,
            100 * least.seconds / t.min_s, least.bound, t.min_s / mine.min_s, t.median_s / mine.median_s,
            place.device,
        ))  # fmt: skip
    return found


def show(found: list[Rate]) -> None:
    """A line for ours and each peer."""
    print(f"{found[0].name} {found[0].shape}")
    for rate in found:
        ratio = "" if rate is found[0] else f"  ours {rate.ratio:.2f}x ({rate.median_ratio:.2f}x) as fast"
        print(
            f"  {rate.variant:<24} {rate.us:10.1f} us {rate.gflop_per_s:8.2f} GFLOP/s {rate.gb_per_s:7.2f} GB/s "
            f"{rate.roof_pct:5.1f} % of the {rate.bound} roof{ratio}",
            flush=True,
        )


def run(cases: Cases, sizes: list[int], place: Place, options: argparse.Namespace) -> Iterator[list[Rate]]:
    """Times and shows each case in turn."""
    for B in sizes:
        for case in placed(cases(B), place.device):
            variants = case.variants if place.device == "cpu" else able(case)
            timings = interleaved(variants, options.rounds, options.segment, place.stopwatch)
            if timings:
                found = rates(case, timings, place)
                show(found)
                yield found


def placed(cases: Iterable[Case], device: str) -> Iterator[Case]:
    """The cases with their tensors on `device`. Nothing is timed while it is torch's default, which makes each call of
    torch slower."""
    import torch

    remaining = iter(cases)
    while True:
        with contextlib.nullcontext() if device == "cpu" else torch.device(device):
            case = next(remaining, None)
        if case is None:
            return
        yield case


def able(case: Case) -> Variants:
    """The variants that can run here, on standard error why others cannot; none without ours, which is the first."""
    found = {}
    for name, call in case.variants.items():
        try:
            call()
        except RuntimeError as error:
            print(f"{case.name} {case.shape}, {name}: left out: {str(error).splitlines()[0]}", file=sys.stderr)
        else:
            found[name] = call
    return found if next(iter(case.variants)) in found else {}


def parser(description: str) -> argparse.ArgumentParser:
    """The options that all benchmarks of operators have."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--models", type=int, nargs="+", default=[1, 8], help="sizes of the array (default 1 8)")
    made.add_argument("--rounds", type=int, default=9, help="in which each variant has its turn (default 9)")
    made.add_argument("--segment", type=float, default=0.05, help="seconds of a turn (default 0.05)")
    made.add_argument("--device", default="cpu", help="cpu (default), cuda or cuda:NUMBER")
    return made


def start(device: str) -> Place:
    """Measure the peaks of `device`.

    Raises InvalidArgument for a name that is none, Unavailable where there is no such device.
    """
    import torch
    from setting import Setting, device_name

    setting = Setting(device=device_name(device))
    setting.enter()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    place = _gpu(setting.device) if setting.on_gpu else _cpu()
    print(f"# {roofs(place)}")
    return place


def _cpu() -> Place:
    """One torch thread, and a heap that keeps its pages."""
    import torch

    from dnnsuite import _C, ops
    from dnnsuite.profiler.roofline import measure_peaks

    kept = _C.heap_retain()  # or page faults of fresh memory are most of what is measured
    peaks = measure_peaks(1, report=_say)
    print(f"# torch {torch.__version__}, {ops.instruction_set()}, one thread, heap {'kept' if kept else 'as it is'}")
    return Place("cpu", peaks, thread_seconds)


def _gpu(device: str) -> Place:
    import gpu_peaks
    import torch

    torch.backends.cudnn.allow_tf32 = False  # fp32 is what is rated
    print(f"# torch {torch.__version__}, {torch.cuda.get_device_name(device)}")
    return Place(device, gpu_peaks.measure(device, _say), gpu_peaks.event_seconds)


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def roofs(place: Place) -> str:
    """The peaks as a line of prose, and whether they can be trusted."""
    peaks, who = place.peaks, "one thread" if place.device == "cpu" else place.device
    flops = ", ".join(f"{name} {value / 1e9:.0f} GFLOP/s" for name, value in peaks.flops_per_s.items())
    moved = ", ".join(f"{name} {value / 1e9:.0f} GB/s" for name, value in peaks.bytes_per_s.items())
    busy = " (measured beside busy neighbours: the true roofs are higher)" * peaks.contention.busy
    return f"roofs of {who}: {flops}; {moved}{busy}"


def main(description: str, cases: Cases) -> None:
    """One benchmark of an operator as a command."""
    options = parser(description).parse_args()
    try:
        place = start(options.device)
    except Error as error:
        sys.exit(str(error))
    for _ in run(cases, options.models, place, options):
        pass
