# SPDX-License-Identifier: MIT
"""Hyper-parameters and state that a kind of optimizer keeps for each model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch

from .. import ops
from ._plan import Group, Hyper, StepPlan


class OptimizerState(torch.optim.Optimizer):
    """Base of `ArrayOptimizer`: names of hyper-parameters, the update rule, and the state of each parameter."""

    torch_class: ClassVar[Callable[..., torch.optim.Optimizer] | None] = None
    per_model: ClassVar[tuple[str, ...]] = ()
    pairs: ClassVar[dict[str, tuple[str, str]]] = {}
    """Arguments that are two hyper-parameters in one, as torch writes them."""
    flags: ClassVar[tuple[str, ...]] = ("maximize",)
    B: int
    _plans: dict[int, StepPlan]
    _momentum: tuple[torch.Tensor, bool] | None

    def rule(self, group: Group, hyper: Hyper) -> str:
        """The name in `dnnsuite.ops.RULES` of the formula that `group` needs."""
        raise TypeError(f"{type(self).__name__} names no rule")

    def any_momentum(self, hyper: Hyper) -> bool:
        """Return True if any model has momentum. On a GPU, where that waits, the answer is kept."""
        momentum = hyper["momentum"]
        if not momentum.is_cuda:
            return bool(momentum.any())
        if self._momentum is None or self._momentum[0] is not momentum:
            self._momentum = (momentum, bool(momentum.any()))
        return self._momentum[1]

    def init_state(self, group: Group, params: Sequence[torch.Tensor], state: Any) -> None:
        """Give those of `params` that have none yet their first state."""
        self.fill_state(self.rule(group, group), group, params, state, group)

    def fill_state(
        self, rule: str, group: Group, params: Sequence[torch.Tensor], state: Any, hyper: Hyper
    ) -> None:
        """Create the states that `rule` takes, for those of `params` that lack them."""
        takes = ops.RULES[rule]
        for name in takes.scalars:
            new = [p for p in params if name not in state[p]]
            if new:
                # Rows of one tensor, so that a file holds one for all parameters.
                rows = torch.zeros(len(new), new[0].size(0), dtype=torch.float64, device=new[0].device)
                for parameter, row in zip(new, rows.unbind(0), strict=True):
                    state[parameter][name] = row
        for parameter in params:
            for name in takes.states:
                own = state[parameter]
                if name not in own:
                    value = torch.zeros_like(parameter, memory_format=torch.preserve_format)
                    own[name] = self.start_state(name, value, hyper)
                elif own[name].stride() != parameter.stride():  # of a file, or of an array that was edited
                    own[name] = torch.empty_like(parameter).copy_(own[name])

    def start_state(self, name: str, value: torch.Tensor, hyper: Hyper) -> torch.Tensor:
        """A new state, given as zeros."""
        return value
