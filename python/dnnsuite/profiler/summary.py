# SPDX-License-Identifier: MIT
"""Summary of a profile as text and as a record, with its roofline under peaks that were measured before."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from .._lazy import pandas as pd
from .._shown import WIDTH, duration, number, percent, wrapped
from .._shown import rate as shown_rate
from ..errors import InvalidArgument
from ..timing import batch_means
from . import _windows
from ._advice import Advice, advise, cpu_busy_pct, displaced_pct, facts
from ._breakdown import REMARK
from ._windows import FOREIGN, LoopStep, Phase
from .counters.gpu_counters import utilization_lines, utilization_record

if TYPE_CHECKING:
    from ._profile import Profile
    from .roofline import Roofline

_BAR = 10
_OPERATORS = 8


@dataclass(frozen=True)
class Rate:
    """Steps per second with a 95 % interval; NaN bounds where the steps are too few, or drift."""

    steps_per_s: float
    low: float
    high: float
    steps: int
    quiet: bool  # from steps without instruments
    why: str = ""  # there is no interval
    unseen: str = ""  # which rare events so few steps cannot have seen


def advice(profile: Profile) -> list[Advice]:
    """Return the things to do next, each with the rule that asks for it."""
    return advise(facts(profile))


def rate(profile: Profile) -> Rate | None:
    """Compute the rate of the steps without instruments if there are at least two, else of the observed ones."""
    quiet = profile.quiet
    steps: Sequence[LoopStep] = quiet if len(quiet) > 1 else profile.active
    if not steps:
        return None
    seconds = [(step.t1_ns - step.t0_ns) * 1e-9 for step in steps]
    of = batch_means(seconds)
    # Half of it on the logarithm: a rate is never negative.
    half = math.nan if of.why else (of.high - of.low) / 2 / of.mean
    speed = 1 / of.mean
    return Rate(speed, speed * math.exp(-half), speed * math.exp(half), len(steps), steps is quiet, of.why, of.unseen)


def record(profile: Profile) -> dict[str, Any]:
    """Return everything but the tables, as JSON has it."""
    table = profile.tables.get("breakdown")
    roof = under_the_roofs(profile)
    found, cost = rate(profile), profile.overhead
    return {
        "about": profile.about,
        "metrics": profile.metrics,
        "schedule": asdict(profile.schedule) if profile.schedule else None,
        "steps": len(profile.active),
        "rate": asdict(found) if found else None,
        "instruments": profile.instruments.to_dict("records"),
        "cpu_busy_pct": cpu_busy_pct(profile),
        "displaced_pct": displaced_pct(profile),
        "flops_per_s": flops_per_s(profile),
        "roofline": asdict(roof.summary) if roof is not None else None,
        "overhead": {**asdict(cost), "resolved": cost.resolved, "definition": _windows.DEFINITION} if cost else None,
        "breakdown": table.to_dict("records") if table is not None else [],
        "utilization": utilization_record(profile.tables.get("utilization")),
        "advice": [asdict(each) for each in advice(profile)] if profile.active else [],
        "notes": profile.notes,
    }


def summary(profile: Profile) -> str:
    """Return the page of text, the most important first."""
    return "\n".join(_lines(profile)) + "\n"


def _lines(profile: Profile) -> Iterator[str]:
    yield from wrapped(_title(profile), rest="  ")
    yield ""
    if not profile.active:
        yield from wrapped("no step was observed: " + _why_nothing(profile), rest="  ")
        return
    if "step_is" in profile.about:
        yield from wrapped(profile.about["step_is"], f"  {'steps':<12} ")
    yield from _facts_lines(profile)
    yield ""
    yield from _breakdown_lines(profile.tables.get("breakdown"))
    yield from _operator_lines(profile.tables.get("ops_by_name"))
    yield from _memory_lines(profile.tables.get("memory"))
    yield from utilization_lines(profile.tables.get("utilization"))
    yield ""
    yield "what to do next"
    for place, each in enumerate(advice(profile), 1):
        yield from wrapped(each.action, f"  {place}. ")
        yield from wrapped(f"{each.because} [{each.rule}]", "     because ")
    if profile.notes:
        yield ""
        yield "notes"
        for note in profile.notes:
            yield from wrapped(note, "  - ")


def _title(profile: Profile) -> str:
    about = profile.about
    name = about.get("job") or about.get("command") or "this loop"
    extra = [
        f"batch size {about['batch_size']}" if "batch_size" in about else "",
        f"B={about['B']}" if about.get("B") else "",
        str(about.get("precision", "")),
        str(about.get("device", "")),
        f"a step ends with {about['step_ends']}" if about.get("step_ends", "optimizer") != "optimizer" else "",
    ]
    known = ", ".join(part for part in extra if part)
    return f"profile of {name}" + (f" ({known})" if known else "")


def _why_nothing(profile: Profile) -> str:
    ran = profile.ran
    steps = profile.tables.get("steps")
    if steps is not None and (steps["phase"] == FOREIGN).any():
        return "the program's own torch.profiler recorded in all of them; observe others, or run it without"
    first = profile.schedule.first_active if profile.schedule else 0
    return f"the loop made {ran} steps and the first window opens after {first}; ask for an earlier start"


def _facts_lines(profile: Profile) -> Iterator[str]:
    found = rate(profile)
    if found is not None:
        how = "without instruments" if found.quiet else "under the instruments"
        text = f"{_rate_text(found, profile.about)}, over {found.steps} steps {how}"
        if found.unseen and not found.why:
            text += f"; {found.unseen}"
        yield from wrapped(text, f"  {'rate':<12} ")
    observed = profile.active
    windows = len({step.window for step in observed})
    steps = f"{len(observed)} step{'s' if len(observed) > 1 else ''}"
    plural = "s" if windows > 1 else ""
    yield f"  {'observed':<12} {steps} in {windows} window{plural}, from step {observed[0].step}"
    busy, displaced = cpu_busy_pct(profile), displaced_pct(profile)
    if busy is not None and displaced is not None:
        text = f"{percent(busy)} busy with this process; its loop waited {percent(displaced)} of the time"
        yield from wrapped(text, f"  {'CPUs':<12} ")
    yield from _arithmetic_lines(profile)
    cost = profile.overhead
    unknown = "not measured: no step ran without instruments beside a window; give the schedule some, e.g. wait=5"
    yield from wrapped(str(cost or unknown), f"  {'overhead':<12} ")
    for row in profile.absent:
        yield from wrapped(f"unavailable: {row.why}" + (f"; {row.remedy}" if row.remedy else ""), f"  {row.name:<12} ")


def _arithmetic_lines(profile: Profile) -> Iterator[str]:
    speed = flops_per_s(profile)
    if speed is None:
        return
    roof = under_the_roofs(profile)
    near = "dnnsuite roofline measures the peak"
    if roof is not None:
        near = f"{percent(roof.summary.pct_of_peak)} of the measured peak"
    yield from wrapped(f"{number(speed / 1e9)} GFLOP/s (analytic), {near}", f"  {'arithmetic':<12} ")


def _rate_text(found: Rate, about: dict[str, Any]) -> str:
    items, unit = about.get("items_per_step"), about.get("unit", "items")
    scale, name = (float(items), f"{unit}/s") if items else (1.0, "steps/s")
    text = shown_rate(scale * found.steps_per_s, name, scale * found.low, scale * found.high)
    if found.why:
        return f"{text} (no interval: {found.why})"
    return text


def _breakdown_lines(table: pd.DataFrame | None) -> Iterator[str]:
    if table is None:
        text = "where the time goes is not known: no instrument saw operators or kernels (--metrics timeline does)"
        yield from wrapped(text, rest="  ")
        return
    whole_ms = table["ms_per_step"].sum()
    yield f"where the {duration(whole_ms / 1e3)} of a step go"
    for row in table.itertuples(index=False):
        name, ms, share, meaning = row
        bar = "#" * round(_BAR * share / 100)
        yield from wrapped(meaning, f"  {name:<13}{share:6.1f} %{ms:10.3f} ms  {bar:<{_BAR}} ")
    yield f"  {'':<13}{table['share_pct'].sum():6.1f} %{whole_ms:10.3f} ms"
    yield from wrapped(REMARK, "  ")


def _operator_lines(table: pd.DataFrame | None) -> Iterator[str]:
    if table is None or table.empty:
        return
    yield ""
    yield f"operators with the most self time (of {len(table)})"
    for row in table.head(_OPERATORS).itertuples(index=False):
        name, kind, calls, ms, share = row
        line = f"  {share:5.1f} %{ms:10.3f} ms{calls:9.1f} calls  {kind:<13} {name}"
        yield line if len(line) <= WIDTH else line[: WIDTH - 3] + "..."


def _memory_lines(table: pd.DataFrame | None) -> Iterator[str]:
    if table is None:
        return
    yield ""
    yield "memory at its peak in a step"
    for row in table.to_dict("records"):
        size, each = float(row["bytes"]), float(row["bytes_per_model"])
        own = "" if size == each else f" ({each / 1e6:.3f} MB per model)"
        yield from wrapped(row["definition"] + own, f"  {row['class']:<20}{size / 1e6:11.3f} MB  ")


def flops_per_s(profile: Profile) -> float | None:
    """Compute analytic FLOPs of the observed operators over the wall time of their steps; None if they are not
    known."""
    ops = profile.tables.get("ops")
    if ops is None or "flops" not in ops.columns or not profile.wall_ns:
        return None
    return float(ops["flops"].sum()) * 1e9 / profile.wall_ns


def under_the_roofs(profile: Profile) -> Roofline | None:
    """Place the operators under peaks measured before; None without operators or without peaks.

    Peaks are not measured here: that takes seconds of a quiet machine, and is the work of `dnnsuite roofline`.
    """
    ops = profile.tables.get("ops")
    if ops is None or "counted" not in ops.columns:
        return None
    from .roofline import Roofline
    from .roofline.peaks import known_peaks

    peaks = known_peaks(threads_in_use())
    if peaks is None:
        return None
    steps = profile.tables["steps"]
    steps = steps[steps["phase"] == Phase.ACTIVE.value]
    try:
        return Roofline(peaks, ops, steps.assign(cpu_ns=steps["process_cpu_ns"]))
    except InvalidArgument:  # nothing of known size ran
        return None


def threads_in_use() -> int:
    allowed = len(os.sched_getaffinity(0))
    torch = sys.modules.get("torch")
    return min(allowed, torch.get_num_threads()) if torch is not None else allowed
