# SPDX-License-Identifier: MIT
"""Training steps of B models of each workload: the fused array against every other way to train them, in one run.

The ways take turns; milliseconds are of a step of one model, ratios are over `serial`. With one thread CPU time is
counted, with several wall time. All ways train on the same shared batch with Adam.

    python benchmarks/bench_workloads.py mlp_s pn_256x8 --B 1 8
    python benchmarks/bench_workloads.py --B 8 --threads 2 --csv workloads.csv
    python benchmarks/bench_workloads.py mlp_m --memory

Ways: `serial` (torch, one model after the other), `foreach`, `fused_adam` (the same with torch's other Adams),
`channels_last` (with fused_adam), `compile` (serial under torch.compile), `concurrent` (B processes that share the
threads), `vmap` (torch.func over stacked models), `vmap_compile`, `fused` (dnnsuite). `--peer MODULE:FUNCTION` adds
one of your own: a function (B, workload) that returns one that trains one step of all B models; `workload` has
`make()`, `batch()` and `loss`. `--memory` prints peak memory instead: an array over B separate models, each in a
process of its own.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import ways as machinery
from ways import Way
from workloads import WORKLOADS, Workload

import dnnsuite

LR = 1e-3


def built(workload: Workload, seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return workload.make()


def drawn(workload: Workload) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    return workload.batch()


def trainer(
    workload: Workload,
    seed: int,
    prepare: Callable[[torch.nn.Module], torch.nn.Module] = lambda model: model,
    compiled: bool = False,
    **adam: Any,
) -> Callable[[], None]:
    """One step of one plain model."""
    model = prepare(built(workload, seed))
    optimizer = torch.optim.Adam(model.parameters(), lr=LR * (1 + seed), **adam)
    batch = drawn(workload)
    loss = torch.compile(workload.loss) if compiled else workload.loss

    def step() -> None:
        optimizer.zero_grad()
        loss(model, *batch).backward()
        optimizer.step()

    return step


def in_turns(steps: list[Callable[[], None]]) -> Way:
    def all_models() -> None:
        for step in steps:
            step()

    return machinery.repeat(all_models)


def serial(workload: Workload, B: int, threads: int, **options: Any) -> Way:
    return in_turns([trainer(workload, seed, **options) for seed in range(B)])


def _replica(name: str, seed: int) -> Way:
    return machinery.repeat(trainer(WORKLOADS[name], seed))


def concurrent(workload: Workload, B: int, threads: int) -> Way:
    return machinery.concurrent(_replica, [(workload.name, seed) for seed in range(B)], threads)


def vmap(workload: Workload, B: int, threads: int, compiled: bool = False) -> Way:
    base = [built(workload, seed) for seed in range(B)]
    parameters, buffers = torch.func.stack_module_state(base)
    optimizer = torch.optim.Adam(parameters.values(), lr=LR)
    batch = drawn(workload)

    def model(own: Any, its: Any) -> Callable[..., Any]:
        return lambda *args, **kwargs: torch.func.functional_call(base[0], (own, its), args, kwargs)

    def loss(own: Any, its: Any, *inputs: torch.Tensor) -> torch.Tensor:
        if workload.vmap_loss is None:
            return workload.loss(model(own, its), *inputs)
        frozen = {name: value.detach() for name, value in own.items()}
        return workload.vmap_loss(model(own, its), model(frozen, its), *inputs)

    gradients = torch.vmap(
        torch.func.grad(loss), in_dims=(0, 0, *(None for _ in batch)), randomness="different"
    )
    if compiled:
        gradients = torch.compile(gradients)

    def step() -> None:
        found = gradients(parameters, buffers, *batch)
        for name, parameter in parameters.items():
            parameter.grad = found[name]
        optimizer.step()

    return machinery.repeat(step)


def fused(workload: Workload, B: int, threads: int) -> Way:
    array = dnnsuite.fuse([built(workload, seed) for seed in range(B)])
    rates = [LR * (1 + seed) for seed in range(B)]
    optimizer = dnnsuite.optim.Adam(array.parameters(), lr=rates)
    batch = [dnnsuite.stack(x, B) for x in drawn(workload)]
    runner = dnnsuite.StepRunner(array, optimizer, workload.losses, threads=threads)
    return machinery.repeat(lambda: runner.step(*batch), runner.synchronize)


def _last(model: torch.nn.Module) -> torch.nn.Module:
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


WAYS: dict[str, Callable[[Workload, int, int], Way]] = {
    "serial": serial,
    "foreach": lambda w, B, threads: serial(w, B, threads, foreach=True),
    "fused_adam": lambda w, B, threads: serial(w, B, threads, fused=True),
    "channels_last": lambda w, B, threads: serial(w, B, threads, prepare=_last, fused=True),
    "compile": lambda w, B, threads: serial(w, B, threads, compiled=True, fused=True),
    "concurrent": concurrent,
    "vmap": vmap,
    "vmap_compile": lambda w, B, threads: vmap(w, B, threads, compiled=True),
    "fused": fused,
}
DEFAULT = "serial,fused_adam,concurrent,vmap,fused"


def peer(name: str) -> Callable[[Workload, int, int], Way]:
    return lambda workload, B, threads: machinery.repeat(machinery.load(name)(B, workload))


def _peak(connection: Any, name: str, workload: str, B: int) -> None:
    """Sends the peak bytes that B models need in this fresh process, above the empty process's."""
    torch.set_num_threads(1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    WAYS[name](WORKLOADS[workload], B, 1)(3)
    connection.send((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)


def peak_bytes(name: str, workload: str, B: int) -> int:
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=_peak, args=(theirs, name, workload, B))
    process.start()
    theirs.close()
    peak = mine.recv()
    process.join()
    return int(peak)


def print_memory(names: list[str], counts: list[int]) -> None:
    print(
        "peak memory of a process, MiB above the imports: B separate models, the array, and the array's share"
    )
    for name in names:
        for B in counts:
            separate, array = (peak_bytes(way, name, B) for way in ("serial", "fused"))
            print(
                f"{name:>12}  B={B:<3} {separate / 2**20:9.1f} {array / 2**20:9.1f}  {array / separate:6.3f}"
            )


def rate(
    workload: Workload, B: int, makers: dict[str, Any], options: argparse.Namespace
) -> machinery.Seconds:
    """Seconds of every way that can run this workload; one that cannot is left out with a line."""
    ready: dict[str, Way] = {}
    for name, make in makers.items():
        try:
            way = make(workload, B, options.threads)
            way(2)
        except Exception as error:  # a way that refuses one workload must not cost the others' rates
            print(f"{name:>20}  {type(error).__name__}: {str(error).splitlines()[0][:90]}", flush=True)
        else:
            ready[name] = way
    clock = machinery.clock_for(options.threads)
    return machinery.measure(ready, B, options.rounds, options.warmup, clock, segment_s=options.segment)


def write_csv(path: Path, rows: list[tuple[Any, ...]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["workload", "B", "threads", "clock", "way", "round", "seconds_per_model_step"])
        writer.writerows(rows)


def print_scaling(seconds: dict[int, machinery.Seconds]) -> None:
    """How the cost of a model changes with B, where there is more than one B."""
    best = {B: min(found["fused"]) for B, found in seconds.items() if "fused" in found}
    if len(best) > 1:
        first = best[min(best)]
        print(
            "    fused, cost of a model by B: " + "  ".join(f"{B}: {v / first:.3f}" for B, v in best.items())
        )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workloads", nargs="*", help=f"of {', '.join(WORKLOADS)} (default: all)")
    parser.add_argument("--B", type=int, nargs="+", default=[8], help="models (default 8)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--warmup", type=int, default=8, help="steps before the first round (default 8)")
    parser.add_argument("--segment", type=float, default=0.3, help="seconds of each way in a round")
    parser.add_argument("--ways", default=DEFAULT, help=f"of {', '.join(WAYS)} (default: {DEFAULT})")
    parser.add_argument("--peer", action="append", default=[], metavar="MODULE:FUNCTION")
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--memory", action="store_true")
    options = parser.parse_args()
    options.workloads = options.workloads or list(WORKLOADS)
    unknown = set(options.workloads) - set(WORKLOADS) | set(options.ways.split(",")) - set(WAYS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    return options


def main() -> None:
    options = parse()
    sys.path.insert(0, str(Path.cwd()))  # where a --peer lives
    if options.memory:
        print_memory(options.workloads, options.B)
        return
    torch.set_num_threads(options.threads)
    makers = {name: WAYS[name] for name in options.ways.split(",")} | {n: peer(n) for n in options.peer}
    clock = "cpu" if options.threads == 1 else "wall"
    rows: list[tuple[Any, ...]] = []
    for name in options.workloads:
        found: dict[int, machinery.Seconds] = {}
        for B in options.B:
            found[B] = rate(WORKLOADS[name], B, makers, options)
            machinery.report(f"{name}, B={B}, {options.threads} threads, {clock} time", found[B])
            for way, values in found[B].items():
                rows += [(name, B, options.threads, clock, way, number, v) for number, v in enumerate(values)]
            if options.csv:
                write_csv(options.csv, rows)
        print_scaling(found)


if __name__ == "__main__":
    main()
