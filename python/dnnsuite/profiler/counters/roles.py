# SPDX-License-Identifier: MIT
"""Roles of counters, their names on each chip, and sets of them: the names change from chip to chip, the roles do not.

A role lists names, the best first; CUPTI's library says which of them a chip has. :func:`overlaps` lists pipes that
share hardware, whose counts must not be added. :func:`select` takes presets, roles and names of metrics, which
:func:`validate` checks against the chip.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...errors import InvalidArgument, Unavailable, some_of
from .catalogue import accepts, host, metric_types, passes

OF_PEAK = ".avg.pct_of_peak_sustained_elapsed"

_NEAREST = 3  # names that are suggested for one that is unknown
CORES = ("fma", "fp16", "tensor", "sfu")
"""Kinds of cores in TBD's core utilisation, in the order of its output."""


@dataclass(frozen=True)
class Role:
    """A quantity: its definition and unit, and the metrics that measure it, over ranges and sampled over time."""

    name: str
    unit: str
    definition: str
    metrics: tuple[str, ...]
    sampled: tuple[str, ...] = ()


def _pct(name: str, definition: str, metrics: str, sampled: str = "") -> Role:
    full = tuple(metric if "." in metric else metric + OF_PEAK for metric in metrics.split())
    series = tuple(metric + OF_PEAK for metric in sampled.split())
    return Role(name, "%", definition, full, series)


ROLES: dict[str, Role] = {
    role.name: role
    for role in (
        Role("time", "ns", "duration of the range on the GPU", ("gpu__time_duration.sum",)),
        Role("cycles", "cycle", "elapsed cycles of the busiest GPC: TBD's weight", ("gpc__cycles_elapsed.max",)),
        Role("clock", "Hz", "clock of the SMs, averaged: % of peak hides how high the peak was",
             ("gpc__cycles_elapsed.avg.per_second",)),
        _pct("gpu_active", "cycles in which the GPU had any work, of all cycles", "gr__cycles_active",
             "FE_B.TriageCompute.gr__cycles_active gr__cycles_active"),
        _pct("sm_active", "cycles in which an SM had a warp, of all cycles, averaged over SMs", "sm__cycles_active",
             "TPC.TriageCompute.sm__cycles_active sm__cycles_active"),
        _pct("fma", "warp instructions on the FP32 pipes (they also multiply integers), of the pipes' peak",
             "sm__inst_executed_pipe_fma",
             "TPC.TriageCompute.sm__inst_executed_pipe_fma_realtime sm__inst_executed_pipe_fma_realtime "
             "sm__inst_executed_pipe_fma"),
        _pct("fp16", "warp instructions in half precision outside of the tensor cores, of their pipes' peak",
             "sm__inst_executed_pipe_fp16 sm__inst_executed_pipe_fma_type_fp16",
             "sm__inst_executed_pipe_fp16 sm__inst_executed_pipe_fma_type_fp16"),
        # Cycles, not instructions: one warp-group instruction keeps the pipe busy for many cycles.
        _pct("tensor", "cycles in which the tensor pipe was active, of all cycles",
             "sm__pipe_tensor_cycles_active_v2 sm__pipe_tensor_cycles_active",
             "TPC.TriageCompute.sm__pipe_tensor_cycles_active_realtime sm__pipe_tensor_cycles_active_v2 "
             "sm__pipe_tensor_cycles_active"),
        _pct("sfu", "warp instructions on the XU pipe: transcendental functions, and conversions of types, of its peak",
             "sm__inst_executed_pipe_xu",
             "SM_A.TriageCompute.sm__inst_executed_pipe_xu_realtime sm__inst_executed_pipe_xu"),
        _pct("alu", "warp instructions on the ALU pipe: integers, logic, comparisons, of its peak",
             "sm__inst_executed_pipe_alu",
             "TPC.TriageCompute.sm__inst_executed_pipe_alu_realtime sm__inst_executed_pipe_alu"),
        _pct("fp64", "cycles in which the FP64 pipe was active, of all cycles", "sm__pipe_fp64_cycles_active",
             "TPC.TriageCompute.sm__pipe_fp64_cycles_active_realtime sm__pipe_fp64_cycles_active"),
        _pct("lsu", "warp instructions on the load/store pipe, of its peak", "sm__inst_executed_pipe_lsu"),
        _pct("tma", "cycles in which the tensor memory accelerator was active, of all cycles",
             "sm__pipe_tma_cycles_active"),
        _pct("issue", "cycles in which a scheduler issued an instruction, of all cycles", "sm__issue_active"),
        _pct("occupancy", "resident warps of the most possible, over cycles in which the SM was active",
             "sm__warps_active.avg.pct_of_peak_sustained_active",
             "TPC.TriageCompute.tpc__warps_active_realtime sm__warps_active"),
        _pct("fma_active", "cycles in which the FP32 pipes were active, of cycles in which the SM was: nvprof's "
             "single_precision_fu_utilization, whose level is a tenth of it", "smsp__pipe_fma_cycles_active"
             ".avg.pct_of_peak_sustained_active"),
        _pct("dram", "bytes moved to and from the GPU's memory, of the most that it can move", "dram__throughput",
             "dram__throughput"),
        Role("dram_read", "byte", "bytes read from the GPU's memory",
             ("dram__bytes_read.sum", "dram__bytes_op_read.sum"),
             ("FBSP.TriageCompute.dramc__read_throughput" + OF_PEAK,
              "FBSP.TriageCompute.dram__read_throughput" + OF_PEAK, "dram__read_throughput" + OF_PEAK)),
        Role("dram_write", "byte", "bytes written to the GPU's memory",
             ("dram__bytes_write.sum", "dram__bytes_op_write.sum"),
             ("FBSP.TriageCompute.dramc__write_throughput" + OF_PEAK,
              "FBSP.TriageCompute.dram__write_throughput" + OF_PEAK, "dram__write_throughput" + OF_PEAK)),
        _pct("l2", "sectors looked up in the L2 cache, of the most possible", "lts__t_sectors", "lts__t_sectors"),
        Role("l2_bytes", "byte", "bytes that the L2 cache was asked for", ("lts__t_bytes.sum",)),
        Role("l2_hit", "%", "sectors found in the L2 cache, of those looked up", ("lts__t_sector_hit_rate.pct",)),
        Role("l1_hit", "%", "sectors found in the L1 cache, of those looked up", ("l1tex__t_sector_hit_rate.pct",)),
        Role("pcie_read", "byte", "bytes that the GPU received over PCIe", ("pcie__read_bytes.sum",),
             ("PCI.TriageCompute.pcie__read_bytes" + OF_PEAK, "pcie__read_bytes" + OF_PEAK)),
        Role("pcie_write", "byte", "bytes that the GPU sent over PCIe", ("pcie__write_bytes.sum",),
             ("PCI.TriageCompute.pcie__write_bytes" + OF_PEAK, "pcie__write_bytes" + OF_PEAK)),
        Role("nvlink_rx", "byte", "bytes received over NVLink", ("nvlrx__bytes.sum",)),
        Role("nvlink_tx", "byte", "bytes sent over NVLink", ("nvltx__bytes.sum",)),
    )
}  # fmt: skip


def role(name: str) -> Role:
    """Return a role by name. Raises InvalidArgument listing the known ones."""
    if name not in ROLES:
        raise InvalidArgument(f"role {name!r}; the roles are {', '.join(ROLES)}")
    return ROLES[name]


def names(name: str, collection: str = "ranges") -> tuple[str, ...]:
    """List all metrics that may measure the role, the best first."""
    return role(name).metrics if collection == "ranges" else role(name).sampled


@functools.cache
def resolve(name: str, chip: str, collection: str = "ranges") -> str:
    """Return the full metric name of a role on a chip.

    Raises:
        Unavailable: the chip has none of the role's metrics, as an integrated GPU has no memory controller of its own.
    """
    candidates = names(name, collection)
    for metric in candidates:
        if accepts(metric, chip, collection):
            return metric
    how = "counter" if collection == "ranges" else "counter to sample"
    looked = ", ".join(candidates) or "none is defined"
    raise Unavailable(
        f"{chip} has no {how} for the role {name!r}",
        looked,
        f"`dnnsuite metrics roles --chip {chip}` lists those it has",
    )


def same_role(metric: str, chip: str, collection: str = "ranges") -> str | None:
    """Return this chip's name of a metric that other chips call `metric`; None if it belongs to no role."""
    base = metric.partition(".")[0]
    for name in ROLES:
        if base in (other.partition(".")[0] for other in names(name, collection)):
            try:
                return resolve(name, chip, collection)
            except Unavailable:
                return None
    return None


def remarks(selection: Selection) -> list[str]:
    """List what a selection leaves out, and values of its that must not be added."""
    present = {*selection.roles.values()}
    doubled = [why for roles, why in overlaps(selection.chip).items() if len(present & {*roles}) > 1]
    return [*selection.left_out, *doubled]


@functools.cache
def overlaps(chip: str) -> dict[tuple[str, ...], str]:
    """Find roles of this chip that must not be added, with the reason, from its metrics and their descriptions."""
    found: dict[tuple[str, ...], str] = {}
    if "pipe_fma_type" in resolve("fp16", chip):
        found["fp16", "fma"] = "half precision runs on the FMA pipes: fp16 is a part of fma"
    if accepts("sm__pipe_shared_cycles_active" + OF_PEAK, chip):
        pipes = re.search(r"\(([\w+]+)\)", host(chip).describe("sm__pipe_shared_cycles_active")["description"])
        sharing = tuple(pipe for pipe in pipes[1].split("+") if pipe in ROLES) if pipes else ()
        if len(sharing) > 1:
            found[sharing] = (
                f"{', '.join(sharing)} issue through one shared pipe: their shares of it, not of three pipes"
            )
    return found


def validate(names: Iterable[str], chip: str, collection: str = "ranges") -> None:
    """Check full names with their submetrics one by one, because CUPTI refuses a set without naming the wrong one.

    Raises:
        InvalidArgument: some names cannot be collected; the message lists them all, with the nearest names of this
            chip.
    """
    wrong = [name for name in dict.fromkeys(names) if not accepts(name, chip, collection)]
    if wrong:
        raise InvalidArgument("\n".join(_complaint(name, chip, collection) for name in wrong))


def _complaint(name: str, chip: str, collection: str) -> str:
    near = suggestions(name, chip, collection)
    hint = f"; did you mean {', '.join(near)}?" if near else f"; `dnnsuite metrics list --chip {chip}` lists them"
    how = "" if collection == "ranges" else " by sampling"
    return f"metric {name!r} cannot be collected{how} on {chip}{hint}"


def suggestions(name: str, chip: str, collection: str = "ranges") -> list[str]:
    """List full names of this chip that are nearest to `name`; its name of the same role comes first."""
    base, _, submetric = name.partition(".")
    if "Triage" in name:  # these names have dots of their own
        return []
    known = metric_types(chip, collection)
    if base in known:
        return _with_submetrics(base, submetric, chip, collection, _NEAREST)
    other = same_role(name, chip, collection)
    near = difflib.get_close_matches(base, known, n=_NEAREST, cutoff=0.6)
    found = [_with_submetrics(close, submetric, chip, collection, 1)[0] for close in near]
    return list(dict.fromkeys([*([other] if other else []), *found]))[:_NEAREST]


def _with_submetrics(base: str, submetric: str, chip: str, collection: str, count: int) -> list[str]:
    possible = [part.lstrip(".") for part in host(chip, collection).submetrics(base)]
    if submetric in possible:
        return [f"{base}.{submetric}"]
    usual = ("avg", "sum", "pct", "avg.pct_of_peak_sustained_elapsed", "ratio")
    order = difflib.get_close_matches(submetric, possible, n=count) if submetric else []
    order += [part for part in usual if part in possible]
    return [f"{base}.{part}" for part in dict.fromkeys([*order, *possible])][:count]


SHARED = ("time", "cycles", "gpu_active")
"""Denominators of other roles, counted with every group of metrics that has room for them."""
PRESETS: dict[str, tuple[str, ...]] = {
    "cores": (*SHARED, "sm_active", *CORES),
    "fp32": (*SHARED, "fma", "fma_active"),
    "memory": (*SHARED, "dram", "dram_read", "dram_write", "l2_bytes", "l2_hit", "l1_hit"),
    "timeline": ("gpu_active", "sm_active", "tensor", "fma", "dram_read", "dram_write", "sfu", "occupancy", "alu",
                 "fp64", "pcie_read", "pcie_write"),
    "all": tuple(ROLES),
}  # fmt: skip
"""Roles of each preset, by name. `timeline` is sampled over time, with the most important roles first; the others are
counted over ranges."""

SAMPLED = ("timeline",)


@dataclass(frozen=True)
class Selection:
    """The metrics of a request on one chip: full names, their roles if they have one, and roles that were left out."""

    chip: str
    collection: str
    metrics: tuple[str, ...]
    roles: dict[str, str]  # by metric
    left_out: tuple[str, ...]  # one line each


def select(asked: str | Sequence[str], chip: str, collection: str | None = None) -> Selection:
    """Find the metrics of `chip` for any mixture of presets, roles and full metric names.

    A role of a preset that the chip does not have is left out and noted; a role that was named is an error.

    Args:
        asked: the names, as a list or separated by commas.
        chip: name of the chip.
        collection: "ranges" or "sampling"; by default that of the preset.

    Raises:
        InvalidArgument: a name is none of the three (the nearest is named), or a sampled preset is mixed with others.
        Unavailable: there is no CUPTI, the chip is unknown, or it does not have a role that was named.
    """
    words = [asked] if isinstance(asked, str) else list(asked)
    words = list(dict.fromkeys(part for word in words for part in word.split(",") if part))
    if not words:
        raise InvalidArgument(f"no metrics named; presets: {', '.join(PRESETS)}")
    sampled = [word for word in words if word in SAMPLED]
    if sampled and len(words) > 1:
        raise InvalidArgument(f"{sampled[0]!r} is sampled over time and goes with no other: ask for it alone")
    if sampled and collection != "ranges":
        return _fit_one_pass(words[0], chip)
    return _each(words, chip, collection or "ranges")


def _each(words: list[str], chip: str, collection: str) -> Selection:
    host(chip, collection)  # an unknown chip before unknown names
    metrics: dict[str, str] = {}
    left_out, plain = [], []
    for word in words:
        if word in PRESETS:
            for role in PRESETS[word]:
                try:
                    metrics[resolve(role, chip, collection)] = role
                except Unavailable as missing:
                    left_out.append(missing.what)
        elif word in ROLES:
            metrics[resolve(word, chip, collection)] = word
        elif "__" in word:
            plain.append(word)
        else:
            near = difflib.get_close_matches(word, [*PRESETS, *ROLES], n=3)
            hint = f"did you mean {', '.join(near)}? " if near else ""
            raise InvalidArgument(
                f"{word!r} is not a preset, a role or a metric; {hint}"
                f"presets: {', '.join(PRESETS)}; roles: {some_of(ROLES, '`dnnsuite metrics roles`')}"
            )
    validate(plain, chip, collection)
    chosen = tuple(dict.fromkeys([*metrics, *plain]))
    return Selection(chip, collection, chosen, metrics, tuple(dict.fromkeys(left_out)))


def _fit_one_pass(preset: str, chip: str) -> Selection:
    """Take each role by the first of its names that fits beside those before it: sampling has one pass."""
    host(chip, "sampling")  # an unknown chip is an error, and not a chip without roles
    metrics: dict[str, str] = {}
    left_out = []
    for role in PRESETS[preset]:
        possible = [metric for metric in names(role, "sampling") if accepts(metric, chip, "sampling")]
        fitting = (metric for metric in possible if passes((*metrics, metric), chip, "sampling") == 1)
        chosen = next(fitting, None)
        if chosen:
            metrics[chosen] = role
        else:
            why = "does not fit into the one pass" if possible else "cannot be sampled"
            left_out.append(f"role {role!r} {why} on {chip}")
    return Selection(chip, "sampling", tuple(metrics), metrics, tuple(left_out))
