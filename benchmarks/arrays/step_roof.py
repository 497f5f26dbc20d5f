# SPDX-License-Identifier: MIT
"""How near a step is to the least time that this machine needs for it.

The roof of a step: for each operator that the plain model's step calls, Adam included, the longer of its arithmetic at
the peak of matrix products and its bytes at the bandwidth of the nearest memory that holds them, added up. It is of
these operators: kernels that do several in one pass over memory can go past it. Which of the array's own operators hold
the rest is asked of torch's profiler, which itself costs some µs a call.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import pandas as pd
import torch
import variants
from plain import trainer
from setting import Setting
from step_work import operations
from ways import Way, repeat, timed
from work import roof
from workloads import Workload

from dnnsuite.profiler.cpu import observe_steps
from dnnsuite.profiler.roofline import Peaks, Roofline, measure_peaks

NEAR = 0.75  # of the roof: what a workload should reach
MOST = 10  # gaps to show
BETWEEN = "between operators"
_WARMUP, _SECONDS, _STEPS = 2, 1.0, (4, 40)  # steps to observe: what fits in a while, within bounds
_SIZE = 1024  # of the matrices
_PRECISION = {torch.bfloat16: "bf16", torch.float16: "bf16"}


class Gap(NamedTuple):
    """Seconds per model and step in an operator of the array, and the least that it needs."""

    operator: str
    phase: str
    seconds: float
    least_s: float

    @property
    def lost_s(self) -> float:
        return self.seconds - self.least_s


def peaks_now(setting: Setting, say: Callable[[str], None]) -> Peaks:
    """Peaks measured now, or before where that was better: a neighbour can only lower them."""
    if setting.on_gpu:
        import gpu_peaks

        return gpu_peaks.measure(setting.device, say)
    return measure_peaks(setting.threads, refresh=True, report=say)


def product(setting: Setting) -> Way:
    """A matrix product as a way among the others: its seconds tell what the neighbours leave of the peak."""
    a, b = torch.randn(2, _SIZE, _SIZE, device=setting.device)
    out = torch.empty_like(a)
    return repeat(lambda: torch.mm(a, b, out=out), setting.wait)


def paced(least_s: float, product_s: list[float], peaks: Peaks) -> list[float]:
    """The roof in each round, by the product's seconds in it: with half of the peak left it is twice as long."""
    best_s = 2 * _SIZE**3 / peaks.flops_per_s["fp32"]
    return [least_s * max(1.0, seconds / best_s) for seconds in product_s]


def least_seconds(workload: Workload, setting: Setting, peaks: Peaks) -> float:
    """The roof of a step of one model."""
    step = trainer(workload, 0, setting, fused=True)
    step()  # makes the optimizer's states
    return sum(roof(op.work, peaks, _PRECISION.get(op.dtype, "fp32")).seconds for op in operations(step))


def gaps(workload: Workload, B: int, setting: Setting, peaks: Peaks) -> list[Gap]:
    """Operators of the array's step, those that lose the most first."""
    way = variants.fused(workload, B, setting)
    way(_WARMUP)
    count = round(min(max(_SECONDS / timed(way, 1, time.perf_counter), _STEPS[0]), _STEPS[1]))
    observed = observe_steps(lambda: way(1), count)
    return gaps_of(observed.ops, observed.steps, peaks, B)


def gaps_of(ops: pd.DataFrame, steps: pd.DataFrame, peaks: Peaks, B: int) -> list[Gap]:
    """Gaps of the observed operators, of those of unknown work too, and of the time between them.

    The profiler has wall times, which a neighbour can only lengthen: the least of all steps counts.
    """
    found: dict[tuple[str, str], Gap] = {}
    for number in steps["step"]:
        for gap in _of_step(ops[ops["step"] == number], steps[steps["step"] == number], peaks):
            key = gap[:2]
            if key not in found or gap.seconds < found[key].seconds:
                found[key] = gap
    every = (gap._replace(seconds=gap.seconds / B, least_s=gap.least_s / B) for gap in found.values())
    return sorted(every, key=lambda gap: gap.lost_s, reverse=True)


def _of_step(ops: pd.DataFrame, step: pd.DataFrame, peaks: Peaks) -> list[Gap]:
    table = Roofline(peaks, ops, step).table
    table = table.assign(least_s=table["time_s"] * table["attainable_pct"] / 100)
    known = table.groupby(["name", "phase"], observed=True)[["time_s", "least_s"]].sum()
    gaps = [Gap(name, phase, row["time_s"], row["least_s"]) for (name, phase), row in known.iterrows()]
    return gaps + [Gap(name, phase, ns / 1e9, 0.0) for (name, phase), ns in _outside(ops).items()]


def _outside(ops: pd.DataFrame) -> pd.Series:
    """Own ns of what is neither counted nor within an operator that is, by name and phase."""
    rest = []
    for _, lane in ops.groupby("thread"):
        counted = lane[lane["counted"]].sort_values("t0_ns")
        begins, ends = counted["t0_ns"].to_numpy(), counted["t1_ns"].to_numpy()
        others = lane[~lane["counted"]].astype({"name": str, "phase": str})
        place = begins.searchsorted(others["t0_ns"].to_numpy(), side="right") - 1
        within = [at >= 0 and end <= ends[at] for at, end in zip(place, others["t1_ns"], strict=True)]
        rest.append(others[[not inside for inside in within]])
    outside = pd.concat(rest)
    steps = ~outside["name"].str.contains("::")  # the step itself, around its operators
    outside.loc[steps, ["name", "phase"]] = BETWEEN, ""
    return outside.groupby(["name", "phase"])["self_ns"].sum()


def lines(found: list[Gap]) -> list[str]:
    """The largest gaps, a line each."""
    total_s = sum(gap.seconds for gap in found)
    head = f"  {'largest gaps of the array':<48} {'ms':>8} {'its roof':>9} {'lost':>7}"
    return [
        head,
        *(
            f"  {gap.operator[:36]:<36} {gap.phase[:11]:<11} {1e3 * gap.seconds:8.3f} {1e3 * gap.least_s:9.3f} "
            f"{100 * gap.lost_s / total_s:5.1f} %"
            for gap in found[:MOST]
        ),
    ]


_UNCOUNTED = "exponentials and random numbers, which the roof does not count"
_WHY: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("aten::convolution", "aten::_convolution", "aten::mkldnn"),
        "the library's, below the peak of products where channels are few or maps small",
    ),
    (("aten::mm", "aten::addmm", "aten::bmm"), "the library's products"),
    (
        ("dnnsuite::linear", "dnnsuite::matmul"),
        "products with few rows or columns: packing a weight and parts of tiles count",
    ),
    (
        ("dnnsuite::batch_norm", "dnnsuite::layer_norm", "dnnsuite::group_norm"),
        "passes before and after the statistics are known, the roof has one",
    ),
    (("dnnsuite::cross_entropy", "dnnsuite::attention", "dnnsuite::draw", "aten::tanh", "aten::gelu"), _UNCOUNTED),
    (("dnnsuite::optimizer_step_",), "seven streams from memory at once, the roof's bandwidth is that of three"),
)
_ELSE = "small operators: a call and a pass over memory each"


def why(operator: str) -> str:
    """The reason why an operator stays below its roof."""
    return next((reason for begins, reason in _WHY if operator.startswith(begins)), _ELSE)


def sentence(found: list[Gap]) -> str:
    """The gaps that matter, as shares of the step, with the reason of each."""
    total_s = sum(gap.seconds for gap in found)
    parts: dict[str, list[str]] = {}
    for gap in found[:MOST]:
        if gap.lost_s > 0.02 * total_s:
            text = f"{' '.join(filter(None, gap[:2]))} {100 * gap.lost_s / total_s:.0f} %"
            parts.setdefault(why(gap.operator), []).append(text)
    named = "; ".join(f"{', '.join(texts)} ({reason})" for reason, texts in parts.items())
    return f"of the step above the operators' own roofs: {named}"
