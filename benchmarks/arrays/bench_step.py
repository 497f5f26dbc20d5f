# SPDX-License-Identifier: MIT
"""Whole training steps of small models on one thread: how many times faster than one model after the other.

    python benchmarks/arrays/bench_step.py --models 1 2 4 8 16 --workloads mlp_s mlp_m

Ways: `serial` (torch, one model after the other, Adam as torch runs it), `serial+compile` (each model's forward and
loss under torch.compile, Adam fused), `vmap` (gradients of stacked models by torch.func, one Adam over the stack),
`vmap+compile` (all of that in one compiled function), `array` (dnnsuite, steps run as written), `captured` (dnnsuite,
steps replayed; the default of StepRunner). Each model has its own batch and learning rate.

`Python` is the share of a captured step outside of the call that runs its operators from C++: that call is timed in
each step, and the step as a whole. What the call itself spends on taking its arguments counts as C++.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
import unittest.mock
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
import dnnsuite
from dnnsuite import StepRunner, nn, optim
from dnnsuite._step.capture import script
from timing import interleaved

Way = Callable[..., object]
SIZES = {"mlp_s": ((64, 128, 128, 10), 32), "mlp_m": ((784, 512, 256, 10), 64)}


def build(sizes: tuple[int, ...]) -> torch.nn.Module:
    layers: list[torch.nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


class Workload:
    def __init__(self, name: str, B: int) -> None:
        sizes, batch = SIZES[name]
        torch.manual_seed(0)
        self.B = B
        self.x, self.y = torch.randn(B, batch, sizes[0]), torch.randint(sizes[-1], (B, batch))
        self.rates = [1e-3 / (i + 1) for i in range(B)]
        self.sizes = sizes

    def models(self) -> list[torch.nn.Module]:
        return [build(self.sizes) for _ in range(self.B)]


def serial(work: Workload, compiled: bool) -> Way:
    models = work.models()
    fused = True if compiled else None
    optimizers = [
        torch.optim.Adam(model.parameters(), lr=lr, fused=fused) for model, lr in zip(models, work.rates, strict=True)
    ]

    def loss(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(model(x), y)

    losses = torch.compile(loss) if compiled else loss

    def step() -> None:
        for model, optimizer, x, y in zip(models, optimizers, work.x, work.y, strict=True):
            optimizer.zero_grad()
            losses(model, x, y).backward()
            optimizer.step()

    return step


def vmap(work: Workload, compiled: bool) -> Way:
    models = work.models()
    stacked, _ = torch.func.stack_module_state(models)
    parameters = {name: p.detach().clone() for name, p in stacked.items()}
    first = {name: torch.zeros_like(p) for name, p in parameters.items()}
    second = {name: torch.zeros_like(p) for name, p in parameters.items()}
    count = torch.zeros(())
    lr = torch.tensor(work.rates)

    def loss(own: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(torch.func.functional_call(models[0], own, (x,)), y)

    gradients = torch.vmap(torch.func.grad(loss))

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        count.add_(1)
        correct1, correct2 = 1 - 0.9**count, 1 - 0.999**count
        for name, g in gradients(parameters, x, y).items():
            p, m, v = parameters[name], first[name], second[name]
            m.mul_(0.9).add_(g, alpha=0.1)
            v.mul_(0.999).addcmul_(g, g, value=0.001)
            rate = (lr / correct1).view(-1, *[1] * (p.dim() - 1))
            p.sub_(rate * m / ((v / correct2).sqrt() + 1e-8))

    run = torch.compile(step) if compiled else step
    return torch.no_grad()(lambda: run(work.x, work.y))


def loss_of_all(a: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(a(x), y)


def array(work: Workload, capture: bool, loss: Way = loss_of_all) -> Way:
    fused = dnnsuite.fuse(work.models())
    optimizer = optim.Adam(fused.parameters(), lr=work.rates)
    runner = StepRunner(fused, optimizer, loss, threads=1, capture=capture)
    for _ in range(16):  # finds its width, and captures
        runner.step(work.x, work.y)
    expected = "captured" if capture else "eager: capture=False"
    assert runner.mode == expected, runner.mode
    return lambda: runner.step(work.x, work.y)


def python_share(work: Workload, steps: int = 5, rounds: int = 400) -> float:
    """Measure the share of a captured step's time outside of the call of its operators. The least of many short rounds
    is taken: it was interrupted by nobody, so that it is time of the CPU."""
    inside, make = [0], script.program_of

    class Timed:
        def __init__(self, plan: object) -> None:
            self._program = make(plan)

        def on(self, kept: object) -> Callable[..., object]:
            run = self._program.on(kept)

            def call(inputs: object) -> object:
                begin = time.perf_counter_ns()
                result = run(inputs)
                inside[0] += time.perf_counter_ns() - begin
                return result

            return call

    with unittest.mock.patch.object(script, "program_of", Timed):
        step = array(work, True, lambda a, x, y: loss_of_all(a, x, y))  # whose recording nobody has
    least_ns = {"whole": math.inf, "inside": math.inf}
    for _ in range(rounds):
        inside[0], begin = 0, time.perf_counter_ns()
        for _ in range(steps):
            step()
        whole_ns = time.perf_counter_ns() - begin
        least_ns = {"whole": min(least_ns["whole"], whole_ns), "inside": min(least_ns["inside"], inside[0])}
    return 1 - least_ns["inside"] / least_ns["whole"]


WAYS: dict[str, Callable[[Workload], Way]] = {
    "serial": lambda work: serial(work, False),
    "serial+compile": lambda work: serial(work, True),
    "vmap": lambda work: vmap(work, False),
    "vmap+compile": lambda work: vmap(work, True),
    "array": lambda work: array(work, False),
    "captured": lambda work: array(work, True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, nargs="+", default=[1, 2, 4, 8, 16], help="sizes of the array")
    parser.add_argument("--workloads", nargs="+", default=list(SIZES), choices=SIZES)
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    names = list(dict.fromkeys(["serial", *arguments.ways]))
    print(f"# torch {torch.__version__}, one thread, CPU time; times faster than serial, by min (by median)")
    for name in arguments.workloads:
        for B in arguments.models:
            torch.compiler.reset()
            work = Workload(name, B)
            timings = interleaved({way: WAYS[way](work) for way in names}, rounds=arguments.rounds)
            base = timings["serial"]
            ratios = "  ".join(
                f"{way} {base.min_s / t.min_s:.2f}x ({base.median_s / t.median_s:.2f}x)"
                for way, t in timings.items()
                if way != "serial"
            )
            share = f"  Python {python_share(work):.1%} of a captured step" if "captured" in names else ""
            print(f"{name} B={B:<3} serial {base.min_s / B * 1e3:.3f} ms a model  {ratios}{share}", flush=True)


if __name__ == "__main__":
    main()
