# SPDX-License-Identifier: MIT
"""Any models: the width that a StepRunner finds against each fixed one, an array against its best plain peer, and the
cost of its first three steps.

    PYTHONPATH=DIR python benchmarks/arrays/cases.py MODULE:CASES [MODULE ...] [--only NAME ...] [--B 8] [--rounds 5]

CASES is a dict of name to class. One has `make()`, a model whose forward returns its loss, and `batch(generator)`, the
tuple of that forward's arguments; `images` is True where a loop gains by channels last, `after(module)` what its user
does after each step, `after_vmap(module, parameters)` the same to stacked parameters. Further modules are imported
first, for they may add cases. Without a name all run, each in a process of its own that knows no choice by measurement.

Ways take turns in each round, by CPU time of one thread: `loop` (fused AdamW), `loop_cl` (and channels last), `vmap`
(torch.func over stacked state, fused AdamW), `hand`, `runner`, and `width=N` for each power of two. Printed are
medians over rounds of ratios within a round, so that neither a busy neighbour nor a slow minute decides:

* `found`: the best fixed width's time over the runner's, and the widths that they have (bar: 0.9);
* `x runner`, `x hand`: the best peer's time over ours (bars: 0.97, 0.95), and which peer it is;
* `first 3`: CPU time of the runner's first three steps over the loop's.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

import command
import ways
from fresh_process import answer
from setting import cpu_clock

import dnnsuite
from dnnsuite import optim

PEERS = ("loop", "loop_cl", "vmap")
_LR = 1e-4
_BY_HAND = 48  # steps until an array has chosen between all models at once and a loop: some of them are loops
_SETTLED, _SETTLED_S = 64, 20.0  # steps and seconds until every choice is made, at most
Step = Callable[[], object]
After = Callable[[torch.nn.Module], object]


def of_module(names: Sequence[str]) -> dict[str, Any]:
    """Import the modules and return the cases."""
    *more, first = reversed(names)
    found = ways.load(first)
    for name in more:
        importlib.import_module(name)
    return dict(found)


def trained(module: torch.nn.Module) -> list[torch.nn.Parameter]:
    return [p for p in module.parameters() if p.requires_grad]


def nothing(*_: object) -> None:
    """What a user does after a step, of most cases."""


def loop(
    models: Sequence[torch.nn.Module], batches: Sequence[tuple[torch.Tensor, ...]], after: After, images: bool = False
) -> Step:
    """Return a step of plain models, one after the other; `images` in channels-last order."""
    order: Any = {"memory_format": torch.channels_last} if images else {}
    own = [copy.deepcopy(model).to(**order) for model in models]
    optimizers = [torch.optim.AdamW(trained(model), lr=_LR, fused=True) for model in own]
    if images:
        batches = [tuple(t.contiguous(**order) if t.dim() == 4 else t for t in batch) for batch in batches]

    def step() -> None:
        for model, optimizer, batch in zip(own, optimizers, batches, strict=True):
            optimizer.zero_grad()
            model(*batch).backward()
            optimizer.step()
            after(model)

    return step


def vmap(models: Sequence[torch.nn.Module], batch: tuple[torch.Tensor, ...], after: Callable[..., object]) -> Step:
    """Return a step of torch.func over stacked models."""
    parameters, buffers = torch.func.stack_module_state([copy.deepcopy(model) for model in models])
    base, optimizer = copy.deepcopy(models[0]), torch.optim.AdamW(
        [p for p in parameters.values() if p.requires_grad], lr=_LR, fused=True
    )  # fmt: skip
    losses = torch.vmap(lambda p, b, *x: torch.func.functional_call(base, (p, b), x), randomness="different")

    def step() -> None:
        optimizer.zero_grad()
        losses(parameters, buffers, *batch).sum().backward()
        optimizer.step()
        after(base, parameters)

    step(), step()  # what cannot be, is an error here
    return step


def hand(models: Sequence[torch.nn.Module], batch: tuple[torch.Tensor, ...], after: After) -> Step:
    """Return a step of an array by hand."""
    array = dnnsuite.fuse([copy.deepcopy(model) for model in models])
    optimizer = optim.AdamW(trained(array), lr=_LR)

    def step() -> None:
        optimizer.zero_grad()
        array(*batch).sum().backward()
        optimizer.step()
        after(array)

    return step


def losses(array: torch.nn.Module, *batch: torch.Tensor) -> torch.Tensor:
    return array(*batch)


def runner(
    models: Sequence[torch.nn.Module], batch: tuple[torch.Tensor, ...], after: After, width: int | None = None
) -> tuple[dnnsuite.StepRunner, Step]:
    """Return a runner, and a step of it."""
    array = dnnsuite.fuse([copy.deepcopy(model) for model in models])
    made = dnnsuite.StepRunner(array, optim.AdamW(trained(array), lr=_LR), losses, threads=1, width=width)

    def step() -> None:
        made.step(*batch).losses()
        after(array)

    return made, step


def thrice(step: Step) -> float:
    begin = cpu_clock()
    for _ in range(3):
        step()
    return cpu_clock() - begin


def settled(made: dnnsuite.StepRunner, step: Step) -> None:
    begin = time.process_time()
    for _ in range(_SETTLED):
        if made.settled or time.process_time() - begin > _SETTLED_S:
            return
        step()


def measured(case: Any, B: int, rounds: int, segment_s: float, fixed: bool) -> dict[str, Any]:
    """Time the ways of one case; return what the table shows of it."""
    torch.set_num_threads(1)
    models = []
    for seed in range(B):
        torch.manual_seed(seed)
        models.append(case.make().float().train())
    own = [case.batch(torch.Generator().manual_seed(seed)) for seed in range(B)]
    batch = tuple(dnnsuite.stack(list(parts)) for parts in zip(*own, strict=True))
    copy.deepcopy(models[0])(*own[0]).backward()  # what torch sets up once for a process
    found: dict[str, Any] = {}
    after = getattr(case, "after", None) or nothing
    found_ways: dict[str, Step] = {"loop": loop(models, own, after)}
    loop_s = thrice(found_ways["loop"])
    if getattr(case, "images", False):
        found_ways["loop_cl"] = loop(models, own, after, images=True)
    try:
        stacked = nothing if after is nothing else case.after_vmap
        found_ways["vmap"] = vmap(models, tuple(t.contiguous() for t in batch), stacked)
    except Exception as error:
        found["no vmap"] = str(error).splitlines()[0][:60]
    found_ways["hand"] = hand(models, batch, after)
    for _ in range(_BY_HAND):
        found_ways["hand"]()
    made: dict[str, dnnsuite.StepRunner] = {}
    made["runner"], found_ways["runner"] = runner(models, batch, after)
    found["first 3"] = thrice(found_ways["runner"]) / loop_s
    for width in [2**n for n in range(B.bit_length()) if 2**n <= B] if fixed else ():
        name = f"width={width}"
        made[name], found_ways[name] = runner(models, batch, after, width)
    for name, one in made.items():
        settled(one, found_ways[name])
    seconds = ways.measure(
        {name: ways.repeat(step) for name, step in found_ways.items()}, B, rounds, 3, cpu_clock, segment_s=segment_s
    )
    found |= {"ms": {name: round(1e3 * statistics.median(times), 3) for name, times in seconds.items()}}
    found |= {"mode": made["runner"].mode, "width": made["runner"].width}
    peer = min((name for name in PEERS if name in seconds), key=lambda name: statistics.median(seconds[name]))
    found |= {"peer": peer} | {f"x {way}": ratio(seconds[peer], seconds[way]) for way in ("runner", "hand")}
    if fixed:
        best = min((name for name in made if name != "runner"), key=lambda name: statistics.median(seconds[name]))
        found |= {"best": best[6:], "found": ratio(seconds[best], seconds["runner"])}
    return found


def ratio(theirs: Sequence[float], ours: Sequence[float]) -> float:
    """Return how many times as fast ours is: the median over rounds."""
    return statistics.median(a / b for a, b in zip(theirs, ours, strict=True))


def ask(connection: Any, modules: Sequence[str], name: str, B: int, rounds: int, segment_s: float, fixed: bool) -> None:
    """Send what was found of one case, or an error in words."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DNNSUITE_CACHE"] = folder
        try:
            connection.send(measured(of_module(modules)[name](), B, rounds, segment_s, fixed))
        except Exception as error:
            connection.send({"error": f"{type(error).__name__}: {error}".splitlines()[0]})


def row(name: str, found: dict[str, Any]) -> str:
    if "error" in found:
        return f"| {name} | {found['error']} |"
    width = f"{found['found']:.2f} ({found['width']}, best {found['best']})" if "found" in found else found["width"]
    times = ", ".join(f"{way} {ms}" for way, ms in found["ms"].items())
    return (
        f"| {name} | {width} | {found['x runner']:.2f} | {found['x hand']:.2f} | {found['peer']} | "
        f"{found['first 3']:.1f} | {times} | {found['mode'][:90]} |"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("modules", nargs="+", help="MODULE:CASES, and further modules that add to them")
    made.add_argument("--only", nargs="+", help="names of cases (default all)")
    made.add_argument("--B", type=int, default=8, help="models of an array (default 8)")
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--segment", type=float, default=0.1, help="seconds of a way in a round (default 0.1)")
    made.add_argument("--no-widths", action="store_true", help="leave fixed widths out")
    options = made.parse_args(arguments)
    print("| model | found | x runner | x hand | peer | first 3 | ms of a step of a model | mode |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for name in options.only or of_module(options.modules):
        asked = options.modules, name, options.B, options.rounds, options.segment, not options.no_widths
        print(row(name, answer(ask, *asked, what=name)), flush=True)


if __name__ == "__main__":
    command.run(main, "models")
