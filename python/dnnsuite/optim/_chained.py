# SPDX-License-Identifier: MIT
"""One optimizer of several, each with parameters of its own: Muon for matrices and AdamW for all else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .._torch import mark_stepped
from ..errors import InvalidArgument
from ..ops.decay_groups import ChosenGroup
from ._base import ArrayOptimizer
from ._group import Group
from ._plan import Hyper


class ChainedOptimizer(ArrayOptimizer):
    """Several optimizers that step together, each on its own parameters, after one backward pass.

    Its groups are those of all, in their order, and theirs remain the same groups: a schedule may be given the chain or
    one of them. A step needs no more from the others than their groups and states, so clipping, `on_nan` and `freeze`
    are the chain's, for all parameters.

    Args:
        optimizers: optimizers of `dnnsuite.optim` that update each parameter on its own.

    >>> from dnnsuite import nn, optim
    >>> array = nn.Linear(4, 2, B=3)
    >>> matrices = [p for p in array.parameters() if p.dim() == 3]  # [B, m, n]
    >>> others = [p for p in array.parameters() if p.dim() != 3]
    >>> muon, adamw = optim.Muon(matrices, lr=[0.1, 0.02, 0.01]), optim.AdamW(others, lr=1e-3)
    >>> optimizer = optim.ChainedOptimizer([muon, adamw])
    """

    def __init__(self, optimizers: Sequence[ArrayOptimizer], *, on_nan: str = "ignore", max_grad_norm: Any = None):
        self.optimizers = list(optimizers)
        for one in self.optimizers:
            name = type(one).__name__
            if not isinstance(one, ArrayOptimizer):
                raise InvalidArgument(f"ChainedOptimizer is of optimizers of dnnsuite.optim, got a {name}")
            alone = type(one).update_groups is ArrayOptimizer.update_groups and not one.counters
            if one.passes != 1 or not alone or one.on_nan != "ignore" or "max_grad_norm" in one.param_groups[0]:
                raise InvalidArgument(
                    f"{name} looks at all of its parameters in a step, by its own formula or by on_nan or max_grad_norm"
                    ": these are arguments of ChainedOptimizer, and such a formula cannot be part of one"
                )
        names = ("per_model", "flags")
        for name in names:
            vars(self)[name] = tuple(dict.fromkeys(n for one in self.optimizers for n in getattr(one, name)))
        vars(self)["pairs"] = {pair: halves for one in self.optimizers for pair, halves in one.pairs.items()}
        groups: list[Group] = []
        state: dict[Any, Any] = {}
        for place, one in enumerate(self.optimizers):
            groups += [ChosenGroup({**group, "chained": place}) for group in one.own_groups()]
            state |= dict(one.state.items())
        self._start(groups, {}, on_nan=on_nan, max_grad_norm=max_grad_norm)
        self.state = state  # type: ignore[assignment]
        self._share()

    def _of(self, group: Group) -> ArrayOptimizer:
        return self.optimizers[group["chained"]]

    def _share(self) -> None:
        """Give the optimizers the groups, whose values they and their schedules may set, and the state."""
        groups = self.own_groups()
        for place, one in enumerate(self.optimizers):
            own: list[Any] = [group for group in groups if group["chained"] == place]
            one.B, one.param_groups, one.state, one._plans = self.B, own, self.state, {}
            mark_stepped(one)  # for its schedule, which asks that its own step is called before

    def add_param_group(self, param_group: Group) -> None:
        if "chained" not in param_group:
            raise InvalidArgument(
                "ChainedOptimizer takes no further group: add it to an optimizer, and chain them anew"
            )
        super().add_param_group(param_group)

    def hyper_names(self, group: Group) -> tuple[str, ...]:
        return self._of(group).per_model

    def select(self, indices: Sequence[int | None], **fresh: Any) -> None:
        super().select(indices, **fresh)
        self._share()

    def rule(self, group: Group, hyper: Hyper) -> str:
        return self._of(group).rule(group, hyper)

    def init_state(self, group: Group, params: Sequence[torch.Tensor], state: Any) -> None:
        self._of(group).init_state(group, params, state)

    def start_state(self, name: str, value: torch.Tensor, hyper: Hyper) -> torch.Tensor:
        return self._of(dict(hyper)).start_state(name, value, hyper)

    def update(self, group: Group, *args: Any) -> None:
        self._of(group).update(group, *args)

    def planner(self, group: Group) -> ArrayOptimizer:
        return self._of(group).planner(group)

    def __getstate__(self) -> Group:
        own = {name: vars(self)[name] for name in ("optimizers", "pairs", "per_model", "flags")}
        return {**own, **super().__getstate__()}

    def __setstate__(self, state: Group) -> None:
        super().__setstate__(state)
        self._share()
