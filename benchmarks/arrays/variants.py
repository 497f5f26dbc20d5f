# SPDX-License-Identifier: MIT
"""The ways to train B models of a workload that `fused.py` compares: each a function (workload, B, setting) to a way.

All train on the same shared batch with Adam. Every variant but vmap's, whose Adam has one for all, gives each model a
learning rate of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
import ways
import with_hfta
import with_jax
from plain import (
    LR,
    all_built,
    channels_last,
    concurrent,
    concurrent_mps,
    drawn,
    graphed,
    graphed_streams,
    rates,
    serial,
)
from setting import Setting
from ways import Way
from workloads import Workload

import dnnsuite

Variant = Callable[[Workload, int, Setting], Way]
# Relative: float32 in another order, through fifty layers of batch norm; a GPU's convolutions are in TF32.
_SAME_LOSS = {"cpu": 1e-3, "cuda": 2e-2}


def vmap(workload: Workload, B: int, setting: Setting, compiled: bool = False, mode: str | None = None) -> Way:
    base = all_built(workload, B, setting)
    parameters, buffers = torch.func.stack_module_state(base)
    optimizer = torch.optim.Adam(parameters.values(), lr=LR)
    batch = drawn(workload, setting)
    scaler = torch.amp.GradScaler(setting.type, enabled=setting.scales_loss)
    one = torch.ones((), device=setting.device)
    shared = [one, *batch] if setting.scales_loss else [*batch]
    gradients = torch.vmap(
        torch.func.grad(_functional_loss(workload, base[0], setting.scales_loss)),
        in_dims=(0, 0, *(None for _ in shared)),
        randomness="different",
    )
    if compiled:
        gradients = torch.compile(gradients, mode=mode)
    gradients = setting.under_autocast(gradients)

    def step() -> None:
        if setting.scales_loss:
            shared[0] = scaler.scale(one)
        found = gradients(parameters, buffers, *shared)
        for name, parameter in parameters.items():
            parameter.grad = found[name]
        scaler.step(optimizer)
        scaler.update()

    return ways.repeat(step, setting.wait)


def _functional_loss(workload: Workload, base: torch.nn.Module, scaled: bool) -> Callable[..., torch.Tensor]:
    """Make the loss of one model as a function of its parameters, its buffers, a scale if `scaled`, and a batch."""

    def model(own: Any, its: Any) -> Callable[..., Any]:
        return lambda *args, **kwargs: torch.func.functional_call(base, (own, its), args, kwargs)

    def loss(own: Any, its: Any, *inputs: torch.Tensor) -> torch.Tensor:
        if workload.vmap_loss is None:
            return workload.loss(model(own, its), *inputs)
        frozen = {name: value.detach() for name, value in own.items()}
        return workload.vmap_loss(model(own, its), model(frozen, its), *inputs)

    def scaled_loss(own: Any, its: Any, scale: torch.Tensor, *inputs: torch.Tensor) -> torch.Tensor:
        return loss(own, its, *inputs) * scale

    return scaled_loss if scaled else loss


def fused(workload: Workload, B: int, setting: Setting) -> Way:
    array = dnnsuite.fuse(all_built(workload, B, setting))
    optimizer = dnnsuite.optim.Adam(array.parameters(), lr=rates(B))
    batch = [dnnsuite.stack(x, B) for x in drawn(workload, setting)]
    scaler = dnnsuite.optim.GradScaler(setting.device, B=B) if setting.scales_loss else None
    losses = setting.under_autocast(workload.losses)
    runner = dnnsuite.StepRunner(array, optimizer, losses, threads=setting.threads, scaler=scaler)

    def finish() -> None:
        runner.synchronize()
        setting.wait()

    way = ways.repeat(lambda: runner.step(*batch), finish)
    ways.settle(runner, way)
    if setting.on_gpu and runner.mode != "captured":
        print(f"dnnsuite: no CUDA graph, {runner.mode}", file=sys.stderr)
    return way


def hfta(workload: Workload, B: int, setting: Setting) -> Way:
    check_hfta(workload, B, setting)
    model = with_hfta.convert(all_built(workload, B, setting)).to(setting.device)
    optimizer = with_hfta.adam(model.parameters(), rates(B))
    batch = for_hfta(workload, B, setting)
    total = setting.under_autocast(workload.total)
    return ways.repeat(setting.step(optimizer, lambda: total(model, *batch)), setting.wait)


def for_hfta(workload: Workload, B: int, setting: Setting) -> list[torch.Tensor]:
    """The batch `[B, N, ...]`, lying in memory as HFTA's operators want it, so that no step copies it."""
    one = drawn(workload, setting)
    images = [x.dim() > 2 and x.is_floating_point() for x in one]
    return [
        torch.stack([x] * B, 1).transpose(0, 1) if second else torch.stack([x] * B)
        for x, second in zip(one, images, strict=True)
    ]


def check_hfta(workload: Workload, B: int, setting: Setting) -> None:
    """Raises AssertionError where HFTA's operators and dnnsuite's do not give the same first losses, dropout off."""
    plain = all_built(workload, B, setting)
    without_dropout(plain)
    theirs = workload.losses(with_hfta.convert(plain).to(setting.device), *for_hfta(workload, B, setting))
    ours = workload.losses(dnnsuite.fuse(plain), *(dnnsuite.stack(x, B) for x in drawn(workload, setting)))
    assert torch.allclose(ours, theirs, rtol=_SAME_LOSS[setting.type]), (
        f"first losses differ, ours {ours.tolist()}, {theirs.tolist()}"
    )


def without_dropout(plain: list[torch.nn.Module]) -> None:
    for module in (module for model in plain for module in model.modules()):
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        elif isinstance(module, torch.nn.MultiheadAttention):
            module.dropout = 0.0


VARIANTS: dict[str, Variant] = {
    "serial": serial,
    "serial+fused_adam": lambda w, B, setting: serial(w, B, setting, fused=True),
    "serial+channels_last": lambda w, B, setting: serial(w, B, setting, prepare=channels_last, fused=True),
    "serial+compile": lambda w, B, setting: serial(w, B, setting, compiled=True, fused=True),
    "serial+autotuned": lambda w, B, setting: serial(w, B, setting, compiled=True, mode="max-autotune", fused=True),
    "serial+graph": graphed,
    "serial+graph+streams": graphed_streams,
    "concurrent": concurrent,
    "concurrent+mps": concurrent_mps,
    "hfta": hfta,
    "vmap": vmap,
    "vmap+compile": lambda w, B, setting: vmap(w, B, setting, compiled=True),
    "vmap+compile+graph": lambda w, B, setting: vmap(w, B, setting, compiled=True, mode="reduce-overhead"),
    "jax": lambda w, B, setting: with_jax.variant(w, B, setting, together=False),
    "jax+vmap": lambda w, B, setting: with_jax.variant(w, B, setting, together=True),
    "dnnsuite": fused,
}
_GPU_ONLY = ("serial+autotuned", "serial+graph", "serial+graph+streams", "concurrent+mps", "vmap+compile+graph")
COMPILED = ("serial+compile", "serial+autotuned", "vmap+compile", "vmap+compile+graph")


def variants_of(setting: Setting) -> list[str]:
    """All that the device can have."""
    return [name for name in VARIANTS if setting.on_gpu or name not in _GPU_ONLY]


def peer(name: str) -> Variant:
    """A variant of the user's own, `MODULE:FUNCTION`."""
    return lambda workload, B, setting: ways.repeat(ways.load(name)(B, workload), setting.wait)
