# SPDX-License-Identifier: MIT
"""Functions as one model's code writes them, against a loop over the models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from dnnsuite._fuse.code.call_user_code import enter
from dnnsuite._fuse.code.own_values import ModuleCoverage
from dnnsuite.nn.model_tensor import state


class Owner(torch.nn.Module):
    """Stands for the array whose forward runs."""


def run(function: Callable[..., Any], *inputs: torch.Tensor) -> tuple[Any, ModuleCoverage]:
    """`function` of one model's tensors, run once for all; with what could not be fused of it."""
    report = ModuleCoverage()
    before, state.report = state.report, report
    try:
        return enter(Owner(), function, inputs[0].size(0), inputs, {}), report
    finally:
        state.report = before


def check(function: Callable[..., Any], *inputs: torch.Tensor, mapped: bool = False) -> None:
    """Values, dtypes and gradients equal those of the loop; `mapped` says whether torch.vmap has to help."""
    mine = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    theirs = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    output, report = run(function, *mine)
    assert bool(report.mapped) == mapped, report.mapped
    outputs = tree_leaves(output)
    alone = [tree_leaves(function(*(x[i] for x in theirs))) for i in range(inputs[0].size(0))]
    total_mine, total_theirs = torch.zeros(()), torch.zeros(())
    for place, value in enumerate(outputs):
        each = [leaves[place] for leaves in alone]
        if not isinstance(value, torch.Tensor):
            assert all(value == e for e in each)
            continue
        expected = torch.stack(each)
        assert value.dtype == expected.dtype
        torch.testing.assert_close(value, expected)
        if value.is_floating_point() and value.requires_grad:
            weights = torch.randn_like(value)
            total_mine = total_mine + (value * weights).sum()
            total_theirs = total_theirs + (expected * weights).sum()
    if total_mine.requires_grad:
        total_mine.backward()
        total_theirs.backward()
        for a, b in zip(mine, theirs, strict=True):
            if b.grad is not None:
                torch.testing.assert_close(a.grad, b.grad)
