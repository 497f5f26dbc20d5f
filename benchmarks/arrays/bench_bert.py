# SPDX-License-Identifier: MIT
"""A training step of B BERT models: the fused array against every other way to train them, in one run.

The ways take turns in every round, so a slow minute of the machine hits all of them. Prints, per way, milliseconds of a
step of one model (best and median round) and how many times faster than `serial` that is, round by round.

    python benchmarks/arrays/bench_bert.py --B 4 --rounds 7

Ways: `serial` (torch, one model after the other, all cores), `foreach` (the same with torch's foreach
optimizer), `concurrent` (B processes that share the cores), `vmap` (torch.func over stacked models), `fused`
(dnnsuite). `--peer MODULE:FUNCTION` adds one of your own: a function (B, job) that returns one that trains
one step of all B models; `job` is a plain BertJob that is set up, with its `build(seed)`, `_batch(index)` and
`corpus`.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
import ways as machinery
from ways import Way

from dnnsuite import jobs

BertJob = jobs.get("bert")


def config(B: int, threads: int, seed: int = 1) -> jobs.JobConfig:
    hyper = BertJob.hyperparameters(random.Random(seed), max(B, 1))
    return jobs.JobConfig(B=B, threads=threads, seed=seed, hyper=hyper)


def started(B: int, threads: int, seed: int = 1) -> Any:
    job = BertJob(config(B, threads, seed))
    job.setup()
    return job


def job_way(made: list[Any]) -> Way:
    """`made` jobs in turns, step by step."""

    def run(steps: int) -> None:
        for _ in range(steps):
            for job in made:
                job.step()
        for job in made:
            job.synchronize()

    return run


def serial(B: int, threads: int) -> Way:
    return job_way([started(0, threads, seed) for seed in range(B)])


def foreach(B: int, threads: int) -> Way:
    made = [started(0, threads, seed) for seed in range(B)]
    for job in made:
        job.optimizers[0].param_groups[0]["foreach"] = True
    return job_way(made)


def fused(B: int, threads: int) -> Way:
    return job_way([started(B, threads)])


def vmap(B: int, threads: int) -> Way:
    job = started(0, threads)
    models = [started(0, threads, seed).model for seed in range(B)]
    parameters, buffers = torch.func.stack_module_state(models)
    optimizer = torch.optim.Adadelta(parameters.values(), lr=1.0)

    def loss(own: Any, its: Any, tokens: torch.Tensor, positions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        logits = torch.func.functional_call(models[0], (own, its), (tokens, positions))
        return torch.nn.functional.cross_entropy(logits, targets.flatten())

    gradients = torch.vmap(torch.func.grad(loss), in_dims=(0, 0, None, None, None), randomness="different")

    def run(steps: int) -> None:
        for index in range(steps):
            for parameter, gradient in zip(
                parameters.values(), gradients(parameters, buffers, *job.batch(index)).values(), strict=True
            ):
                parameter.grad = gradient
            optimizer.step()

    return run


def _replica(seed: int) -> Way:
    return job_way([started(0, torch.get_num_threads(), seed)])


def concurrent(B: int, threads: int) -> Way:
    return machinery.concurrent(_replica, [(seed,) for seed in range(B)], threads)


WAYS = {"serial": serial, "foreach": foreach, "concurrent": concurrent, "vmap": vmap, "fused": fused}


def peer(name: str) -> Callable[[int, int], Way]:
    """The way that `MODULE:FUNCTION` gives."""
    return lambda B, threads: machinery.repeat(machinery.load(name)(B, started(0, threads)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--B", type=int, default=4, help="models (default 4)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="cores to use (default: all)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3, help="steps of each way in a round (default 3)")
    parser.add_argument("--ways", default=",".join(WAYS), help="comma-separated (default: all)")
    parser.add_argument("--peer", action="append", default=[], metavar="MODULE:FUNCTION")
    parser.add_argument("--json", action="store_true", help="print one JSON object with every round")
    arguments = parser.parse_args()
    makers = {name: WAYS[name] for name in arguments.ways.split(",")} | {name: peer(name) for name in arguments.peer}
    torch.set_num_threads(arguments.threads)
    ways = {name: make(arguments.B, arguments.threads) for name, make in makers.items()}
    # The fused way measures its width on its first steps.
    seconds = machinery.measure(ways, arguments.B, arguments.rounds, warmup=8, steps=arguments.steps)
    if arguments.json:
        print(json.dumps({"B": arguments.B, "threads": arguments.threads, "seconds_per_model_step": seconds}))
        return
    machinery.report(
        f"BERT, B={arguments.B}, {arguments.threads} threads, {arguments.rounds} rounds of {arguments.steps} steps",
        seconds,
    )


if __name__ == "__main__":
    main()
