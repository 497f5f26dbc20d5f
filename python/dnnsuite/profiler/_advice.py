# SPDX-License-Identifier: MIT
"""Advice derived from a profile's numbers by rules that say why they fired, and the facts that the rules look at."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .._lazy import pandas as pd
from ._breakdown import TRANSPARENT
from .cpu import is_compiled

if TYPE_CHECKING:
    from ._profile import Profile
    from .phases import OptimizerSeen


_MEMORY_BOUND = ("elementwise", "norm", "copy", "softmax", "random", "reduction", "pooling")
_PRODUCTS = ("gemm", "conv", "attention", "recurrence")


@dataclass(frozen=True)
class Facts:
    """Inputs of the rules; None or empty where something was not measured."""

    shares: Mapping[str, float]  # class → percent of the step
    on_gpu: bool = False
    loader_workers: int | None = None
    ops_per_step: float | None = None
    mean_op_us: float | None = None
    overhead_pct: float | None = None
    precision: str | None = None
    cpu_busy_pct: float | None = None  # of the CPUs that the process may use
    cpus: int | None = None
    displaced_pct: float | None = None  # of the wall time, the loop's thread waited for a CPU
    optimizer: OptimizerSeen | None = None  # the last that stepped
    compiled: bool = False  # torch.compile is in use
    graphs: bool = False  # CUDA graphs are
    models: int = 0  # B of a fused array; 0 for a plain model
    memory_shares: Mapping[str, float] = field(default_factory=dict)

    def share(self, *classes: str) -> float:
        """Percent of the step in all of `classes` together."""
        return sum(self.shares.get(name, 0.0) for name in classes)


@dataclass(frozen=True)
class Advice:
    """Advice: a thing to do, with the rule and the figures behind it."""

    rule: str
    because: str
    action: str
    weight: float  # percent of the step that it is about


_DOUBTS = ("perturbed",)

Text = str | Callable[[Facts], str]


@dataclass(frozen=True)
class _Share:
    """Rule on a share of the step: it fires where `classes` together have `least` percent of it or more."""

    classes: tuple[str, ...]
    least: int
    does: Text  # what that share of a step does
    action: Text

    def advice(self, name: str, facts: Facts) -> Advice | None:
        share = facts.share(*self.classes)
        if share < self.least:
            return None
        does, action = (text if isinstance(text, str) else text(facts) for text in (self.does, self.action))
        return Advice(name, f"{share:.0f} % of a step {does} (rule: {self.least} % or more)", action, share)


def advise(facts: Facts, most: int = 4) -> list[Advice]:
    """Apply all rules to `facts`; the advice on the largest share of the step comes first. Never empty."""
    of_shares = (rule.advice(name, facts) for name, rule in _RULES.items())
    found = [*filter(None, of_shares), *_other_advice(facts)]
    found.sort(key=lambda advice: -advice.weight)
    doubts = [advice for advice in found if advice.rule in _DOUBTS]  # on the figures themselves: after what they say
    found = [advice for advice in found if advice not in doubts][:most] + doubts
    if found:
        return found
    why = "no class of work is above the threshold of a rule"
    return [Advice("balanced", why, "compare with other batch sizes (--batch-sizes 1,2,4,...) and precisions", 0.0)]


def _feed(facts: Facts) -> str:
    if facts.loader_workers == 0:
        return "load data in other processes: DataLoader(num_workers=2 or more, persistent_workers=True)"
    if facts.loader_workers:
        return (
            f"the loader has {facts.loader_workers} workers: give it more, or make a sample cheaper (decode and "
            "resize once, ahead of time); raise prefetch_factor if the waits come in bursts"
        )
    return "prepare batches ahead of time, in another thread or process"


def _fewer_launches(facts: Facts) -> str:
    if facts.models:
        return "raise B: each operator then serves more models for the same dispatch; keep StepRunner(capture=True)"
    if facts.on_gpu:
        capture = "" if facts.graphs else " a CUDA graph,"
    else:
        capture = "" if facts.compiled else " torch.compile,"
    return (
        f"do more per operator: a larger batch,{capture} or train several models as one array (dnnsuite.fuse with "
        "dnnsuite.StepRunner, which replays a step without Python)"
    )


def _what_moves(facts: Facts) -> str:
    parts = sorted(((facts.shares.get(name, 0.0), name) for name in _MEMORY_BOUND), reverse=True)[:3]
    return "moves memory rather than computes: " + ", ".join(
        f"{name} {each:.0f} %" for each, name in parts if each >= 1
    )


def _fewer_bytes(facts: Facts) -> str:
    ways = [] if facts.compiled else ["torch.compile fuses them"]
    ways += [] if facts.on_gpu or facts.compiled else ["in-place activations"]
    ways += ["channels_last for convolutions"] if facts.share("conv") >= 1 else []
    ways += ["mixed precision to halve the bytes"] if facts.on_gpu and facts.precision in (None, "fp32") else []
    return "; ".join([*ways, "fewer casts, copies and operators that read a tensor once more"])


def _fewer_updates(facts: Facts) -> str:
    seen, in_one_pass = facts.optimizer, "dnnsuite.optim updates in one pass, also the models of an array"
    if facts.models:
        return "accumulate gradients over several batches: StepRunner(accumulate=k)"
    if seen is None:
        return f"update all parameters in one call: an optimizer of torch.optim with fused=True does; {in_one_pass}"
    if seen.fused is None:
        return (
            f"{seen.name} has no fused form in torch: update all parameters in one call (torch's foreach "
            f"functions take lists), or compile its step with torch.compile; {in_one_pass}"
        )
    if seen.fused:
        return f"{seen.name} updates in one pass already: update less often, accumulating gradients over batches"
    return f"{seen.name}(..., fused=True) updates in one pass; so does dnnsuite.optim, also the models of an array"


def _faster_products(facts: Facts) -> str:
    if facts.on_gpu and facts.precision in (None, "fp32", "tf32"):
        return "use the tensor cores: --precision amp (bfloat16), or TF32"
    narrow = "" if facts.on_gpu else "; bfloat16 where the CPU has it, or a GPU"
    return "the work itself: compare its rate with the machine's peak (dnnsuite roofline)" + narrow


_RULES: dict[str, _Share] = {
    "data-wait": _Share(("data wait",), 10, "waits for data", _feed),
    "host-bound": _Share(
        ("host",), 20,
        lambda facts: f"has no {'kernel' if facts.on_gpu else 'operator'} at work: Python and dispatch take the time",
        _fewer_launches,
    ),
    "memory-bound": _Share(_MEMORY_BOUND, 25, _what_moves, _fewer_bytes),
    "copies": _Share(
        ("copy",), 10, "copies",
        lambda facts: "find .contiguous(), .to(), cat and transposes in table `ops_by_name`; keep one memory layout"
        + ("; copy from pinned memory with non_blocking=True" if facts.on_gpu else ""),
    ),
    "optimizer": _Share(("optimizer",), 10, "updates parameters", _fewer_updates),
    "compute-bound": _Share(_PRODUCTS, 50, "is matrix products and convolutions", _faster_products),
    "communication": _Share(
        ("communication",), 10, "only communicates",
        "overlap it: larger gradient buckets, gradients in 16 bits, accumulate over several batches (no_sync)",
    ),
    "compiled": _Share(
        ("compiled",), 50, "is in graphs that torch.compile made",
        "the work itself: TORCH_LOGS=output_code shows the loops that were generated; mode='max-autotune' tries "
        "others, and fewer or narrower numbers (bfloat16) are less to compute",
    ),
    "custom": _Share(
        ("custom",), 25, "is in operators and autograd functions of other libraries",
        "find them in table `ops_by_name` (class custom): a profiler of their language looks inside",
    ),
    "unknown": _Share(
        ("other",), 10, "is work whose name no rule knows",
        "see its names in table `ops_by_name` or `kernels_by_name`, class other",
    ),
}  # fmt: skip


def _other_advice(facts: Facts) -> Iterator[Advice]:
    """Yield advice of the rules that look at more than a share of the step."""
    count, mean_us, displaced = facts.ops_per_step, facts.mean_op_us, facts.displaced_pct or 0.0
    if not facts.on_gpu and count is not None and mean_us is not None and count >= 200 and mean_us < 50:
        share = 100 - facts.share("data wait", "idle", "host")
        because = f"{count:.0f} operators per step take {mean_us:.0f} us each (rule: 200 or more, below 50 us)"
        yield Advice("small-operators", because, _fewer_launches(facts), share * (50 - mean_us) / 50)
    idle = facts.share("idle")
    if idle - displaced >= 10:  # where others have the CPU, that is said
        because = f"in {idle:.0f} % of a step nothing runs and the loop's thread is off the CPU (rule: 10 % or more)"
        action = "look for sleeps, printing, checkpoints, locks, input and output between the steps, and for .item()"
        yield Advice("idle", because, action, idle)
    if displaced >= 10:
        because = f"for {displaced:.0f} % of a step the loop's thread was ready and had no CPU (rule: 10 % or more)"
        action = "others want the same CPUs: stop them, give it its own (dnnsuite pin), or use fewer threads"
        yield Advice("contended", because, action, displaced)
    busy, waits = facts.cpu_busy_pct, facts.share("idle", "data wait", "communication") >= 25
    if not facts.on_gpu and busy is not None and (facts.cpus or 0) >= 2 and busy < 60 and displaced < 10 and not waits:
        because = f"the process keeps {busy:.0f} % of its {facts.cpus} CPUs busy (rule: below 60 %)"
        action = (
            "give threads more to do: a larger batch, or several models at once (dnnsuite.fuse, a thread per model)"
        )
        yield Advice("idle-cpus", because, action, (100 - busy) / 2)
    if (cost := facts.overhead_pct) is not None and cost >= 25:
        because = f"the instruments make a step {cost:.0f} % longer (rule: 25 % or more)"
        action = "read shares, not times: short operators look longer than they are"
        yield Advice("perturbed", because, action, min(cost, 100.0))
    if (maps := facts.memory_shares.get("feature maps", 0.0)) >= 60:
        because = f"{maps:.0f} % of the memory of the model holds feature maps (rule: 60 % or more)"
        action = "for larger batches recompute them (torch.utils.checkpoint), or accumulate over smaller ones"
        yield Advice("feature-maps", because, action, maps / 10)


_COMPUTED = ("gemm", "conv", "attention")
_NARROW = r"(?i)bf16|f16|half|s884|s1688(?!tf32)|e4m3|fp8"  # in names of kernels that compute with 8 or 16 bits


def facts(profile: Profile) -> Facts:
    """Return the facts of a profile that has observed at least one step."""
    tables, steps = profile.tables, len(profile.active)
    table = tables.get("breakdown")
    shares = dict(zip(table["class"], table["share_pct"], strict=True)) if table is not None else {}
    ops = tables.get("ops")
    count = mean_us = None
    if ops is not None and len(ops) and steps:
        working = ops.loc[~ops["class"].isin(TRANSPARENT), "self_ns"]
        count = len(working) / steps
        mean_us = float(working.mean()) / 1e3 if len(working) else None
    cost = profile.overhead
    kernels = tables.get("kernels")
    return Facts(
        shares=shares,
        on_gpu=kernels is not None and len(kernels) > 0,
        loader_workers=profile.loader_workers,
        ops_per_step=count,
        mean_op_us=mean_us,
        overhead_pct=cost.pct if cost and cost.resolved else None,
        optimizer=profile.optimizer,
        compiled=ops is not None and any(map(is_compiled, ops["name"].astype(str).unique())),
        graphs=kernels is not None and "graph_id" in kernels and bool((kernels["graph_id"] != 0).any()),
        precision=profile.about.get("precision") or _precision(tables),
        cpu_busy_pct=cpu_busy_pct(profile),
        cpus=len(os.sched_getaffinity(0)),
        displaced_pct=displaced_pct(profile),
        models=profile.about.get("B", 0),
        memory_shares=_memory_shares(profile),
    )


def cpu_busy_pct(profile: Profile) -> float | None:
    """Compute CPU time of the process over (wall time x usable CPUs) in the observed steps, percent."""
    if not profile.wall_ns:
        return None
    cpu_ns = sum(step.process_cpu_ns for step in profile.active)
    return 100 * cpu_ns / profile.wall_ns / len(os.sched_getaffinity(0))


def displaced_pct(profile: Profile) -> float | None:
    """Compute the time for which the loop's thread was runnable without a CPU, percent of the observed steps' wall
    time."""
    if not profile.wall_ns:
        return None
    return 100 * sum(step.displaced_ns for step in profile.active) / profile.wall_ns


def _precision(tables: Mapping[str, pd.DataFrame]) -> str | None:
    """Precision in which most products and convolutions were computed, by operators' types or kernels' names; None
    where neither tells."""
    ops, kernels = tables.get("ops"), tables.get("kernels")
    if ops is not None and "dtype" in ops and len(products := ops[ops["class"].isin(_COMPUTED)]):
        times = (products["t1_ns"] - products["t0_ns"]).astype(float)
        narrow = products["dtype"].isin(["c10::BFloat16", "c10::Half"])
        return "amp" if times[narrow].sum() > 0.5 * times.sum() else "fp32"
    if kernels is not None and len(products := kernels[kernels["class"].isin(_COMPUTED)]):
        times = (products["t1_ns"] - products["t0_ns"]).astype(float)
        narrow = products["name"].astype(str).str.contains(_NARROW)
        return "amp" if times[narrow].sum() > 0.5 * times.sum() else None
    return None


def _memory_shares(profile: Profile) -> dict[str, float]:
    table = profile.tables.get("memory")
    if table is None or table.empty:
        return {}
    table = table[table["class"] != "workspace and other"]
    whole = max(1, table["bytes"].sum())
    return {str(name): 100 * value / whole for name, value in zip(table["class"], table["bytes"], strict=True)}
