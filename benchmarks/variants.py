# SPDX-License-Identifier: MIT
"""The ways to train B models of a workload that `fused.py` compares: each a function (workload, B, threads) to a way.

All train on the same shared batch with Adam. Every variant but vmap's, whose Adam has one for all, gives each model a
learning rate of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import ways
import with_hfta
from ways import Way
from workloads import WORKLOADS, Workload

import dnnsuite

Variant = Callable[[Workload, int, int], Way]
LR = 1e-4
"""Small enough that no model is soon so sure of its answers that its gradients are denormal numbers, which take a
processor twice as long: then not the variants would be compared, but how far each has trained."""
_SAME_LOSS = 1e-3  # relative; float32 in another order, through fifty layers of batch norm


def built(workload: Workload, seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return workload.make()


def all_built(workload: Workload, B: int) -> list[torch.nn.Module]:
    return [built(workload, seed) for seed in range(B)]


def rates(B: int) -> list[float]:
    return [_rate(seed) for seed in range(B)]


def _rate(seed: int) -> float:
    return LR * (1 + seed / 16)


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
    optimizer = torch.optim.Adam(model.parameters(), lr=_rate(seed), **adam)
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

    return ways.repeat(all_models)


def serial(workload: Workload, B: int, threads: int, **options: Any) -> Way:
    return in_turns([trainer(workload, seed, **options) for seed in range(B)])


def _replica(name: str, seed: int) -> Way:
    return ways.repeat(trainer(WORKLOADS[name], seed))


def concurrent(workload: Workload, B: int, threads: int) -> Way:
    return ways.concurrent(_replica, [(workload.name, seed) for seed in range(B)], threads)


def vmap(workload: Workload, B: int, threads: int, compiled: bool = False) -> Way:
    base = all_built(workload, B)
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

    return ways.repeat(step)


def fused(workload: Workload, B: int, threads: int) -> Way:
    array = dnnsuite.fuse(all_built(workload, B))
    optimizer = dnnsuite.optim.Adam(array.parameters(), lr=rates(B))
    batch = [dnnsuite.stack(x, B) for x in drawn(workload)]
    runner = dnnsuite.StepRunner(array, optimizer, workload.losses, threads=threads)
    return ways.repeat(lambda: runner.step(*batch), runner.synchronize)


def hfta(workload: Workload, B: int, threads: int) -> Way:
    check_hfta(workload, B)
    model = with_hfta.convert(all_built(workload, B))
    optimizer = with_hfta.adam(model.parameters(), rates(B))
    batch = for_hfta(workload, B)

    def step() -> None:
        optimizer.zero_grad()
        workload.total(model, *batch).backward()
        optimizer.step()

    return ways.repeat(step)


def for_hfta(workload: Workload, B: int) -> list[torch.Tensor]:
    """The batch `[B, N, ...]`, lying in memory as HFTA's operators want it, so that no step copies it."""
    one = drawn(workload)
    images = [x.dim() > 2 and x.is_floating_point() for x in one]
    return [
        torch.stack([x] * B, 1).transpose(0, 1) if second else torch.stack([x] * B)
        for x, second in zip(one, images, strict=True)
    ]


def check_hfta(workload: Workload, B: int) -> None:
    """Raises AssertionError where HFTA's operators and dnnsuite's do not give the same first losses, dropout off."""
    plain = all_built(workload, B)
    without_dropout(plain)
    theirs = workload.losses(with_hfta.convert(plain), *for_hfta(workload, B))
    ours = workload.losses(dnnsuite.fuse(plain), *(dnnsuite.stack(x, B) for x in drawn(workload)))
    assert torch.allclose(ours, theirs, rtol=_SAME_LOSS), (
        f"first losses differ, ours {ours.tolist()}, {theirs.tolist()}"
    )


def without_dropout(plain: list[torch.nn.Module]) -> None:
    for module in (module for model in plain for module in model.modules()):
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        elif isinstance(module, torch.nn.MultiheadAttention):
            module.dropout = 0.0


def _channels_last(model: torch.nn.Module) -> torch.nn.Module:
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


VARIANTS: dict[str, Variant] = {
    "serial": serial,
    "serial+fused_adam": lambda w, B, threads: serial(w, B, threads, fused=True),
    "serial+channels_last": lambda w, B, threads: serial(w, B, threads, prepare=_channels_last, fused=True),
    "serial+compile": lambda w, B, threads: serial(w, B, threads, compiled=True, fused=True),
    "concurrent": concurrent,
    "hfta": hfta,
    "vmap": vmap,
    "vmap+compile": lambda w, B, threads: vmap(w, B, threads, compiled=True),
    "dnnsuite": fused,
}


def peer(name: str) -> Variant:
    """A variant of the user's own, `MODULE:FUNCTION`."""
    return lambda workload, B, threads: ways.repeat(ways.load(name)(B, workload))
