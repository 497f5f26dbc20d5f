# SPDX-License-Identifier: MIT
"""Optimizers of optimizers: Lookahead pulls back what another did, SAM looks for the gradient it should have, and a
chain is of several, each with parameters of its own (Muon for matrices and AdamW for all else)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from .. import _under_way as under_way
from .._torch import mark_stepped
from ..errors import InvalidArgument
from ..ops.decay_groups import ChosenGroup
from ..ops.shared import Maybe, beside
from ._base import ArrayOptimizer
from ._group import Group
from ._plan import Groups, Hyper, Hypers
from ._written import norm

Moved = list[tuple[torch.Tensor, torch.Tensor]]


class _Sharing(ArrayOptimizer):
    """Base of optimizers of others, with whom they share groups and state; `held` are attributes that say of which."""

    held: ClassVar[tuple[str, ...]] = ("pairs", "per_model", "flags")

    def _share(self) -> None:
        raise TypeError(f"{type(self).__name__} shares nothing")

    def select(self, indices: Sequence[int | None], **fresh: Any) -> None:
        super().select(indices, **fresh)
        self._share()

    def __getstate__(self) -> Group:
        return {**{name: vars(self)[name] for name in self.held}, **super().__getstate__()}

    def __setstate__(self, state: Group) -> None:
        super().__setstate__(state)
        self._share()


class Around(_Sharing):
    """Base of optimizers around another, `base`, with whom they share groups and state.

    Formula, plans and state are those of the base; `own` are hyper-parameters in addition.
    """

    held = (*_Sharing.held, "base", "counters")

    def __init__(self, base: ArrayOptimizer, own: Group) -> None:
        if not isinstance(base, ArrayOptimizer):
            raise InvalidArgument(
                f"{type(self).__name__} is around an optimizer of dnnsuite.optim, got a {type(base).__name__}"
            )
        active = base.active.clone()
        self.base, self.pairs = base, base.pairs  # type: ignore[misc]
        self.per_model, self.flags = (*base.per_model, *own), (*base.flags, *self.flags[1:])  # type: ignore[misc]
        self.counters = (*base.counters, *self.counters)  # type: ignore[misc]
        groups = [ChosenGroup({**group, **own}) for group in base.own_groups()]
        state = base.state
        self._start(groups, {**base.defaults, **own}, on_nan=base.on_nan)
        for group, before in zip(self.param_groups, groups, strict=True):
            group.update({name: value for name, value in before.items() if name == "initial_lr"})
            for name in base.counters:
                group[name].copy_(before[name])
        self.active.copy_(active)
        self.state = state
        self._share()

    def _share(self) -> None:
        self.base.B, self.base.param_groups, self.base.state = self.B, self.param_groups, self.state

    def rule(self, group: Group, hyper: Hyper) -> str:
        return self.base.rule(group, hyper)

    def names_of(self, rule: str, parameter: torch.Tensor) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self.base.names_of(rule, parameter)

    def zeros(self, name: str, parameter: torch.Tensor) -> torch.Tensor:
        return self.base.zeros(name, parameter)

    def start_state(self, name: str, value: torch.Tensor, hyper: Hyper) -> torch.Tensor:
        return self.base.start_state(name, value, hyper)

    def update_groups(self, groups: Groups, state: Any, hypers: Hypers, factor: Maybe, active: Tensor) -> None:
        self.base.update_groups(groups, state, hypers, factor, active)

    def planner(self, group: Group) -> ArrayOptimizer:
        return self.base.planner(group)


class Lookahead(Around):
    """Lookahead for B models around another optimizer (Zhang et al., 2019, arXiv:1907.08610); torch has none.

    After each `la_steps` steps of `base`, w ← slow + la_alpha · (w - slow), and slow ← w; slow begins as w.

    >>> from dnnsuite import nn, optim
    >>> array = nn.Linear(4, 2, B=3)
    >>> optimizer = optim.Lookahead(optim.AdamW(array.parameters(), lr=[0.1, 0.02, 0.01]), la_steps=[5, 6, 10])
    """

    counters = ("la_step",)

    def __init__(self, base: ArrayOptimizer, la_steps: Any = 5, la_alpha: Any = 0.8) -> None:
        super().__init__(base, {"la_steps": la_steps, "la_alpha": la_alpha})

    def names_of(self, rule: str, parameter: torch.Tensor) -> tuple[tuple[str, ...], tuple[str, ...]]:
        states, scalars = self.base.names_of(rule, parameter)
        return (*states, "slow"), scalars

    def zeros(self, name: str, parameter: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(parameter) if name == "slow" else self.base.zeros(name, parameter)

    def update_groups(self, groups: Groups, state: Any, hypers: Hypers, factor: Maybe, active: Tensor) -> None:
        for group, hyper in zip(groups, hypers, strict=True):
            used = [p for p in group["params"] if p.requires_grad]
            self.fill_state(self.rule(group, hyper), group, used, state, hyper)
            for p in used:
                slow = state[p]["slow"]
                slow.copy_(torch.where(_beside(group["la_step"] == 0, p), p, slow))
        super().update_groups(groups, state, hypers, factor, active)
        for group, hyper in zip(groups, hypers, strict=True):
            group["la_step"].add_(active)
            here = active & (group["la_step"] % hyper["la_steps"] == 0)
            for p in group["params"]:
                if p.requires_grad:
                    slow, chosen = state[p]["slow"], _beside(here, p)
                    p.copy_(torch.where(chosen, slow + _beside(hyper["la_alpha"], p) * (p - slow), p))
                    slow.copy_(torch.where(chosen, p, slow))


class SAM(Around):
    """Sharpness-aware minimization for B models around another optimizer (Foret et al., 2021, arXiv:2010.01412).

    Each model's gradient is computed a second time at w + rho · g / ‖g‖, and `base_optimizer` steps from w with that
    one; with `adaptive` g is w² g, and its norm that of |w| g. A StepRunner runs both passes of a step itself. By hand,
    give `step` a closure that computes the losses and their gradients; it is called twice. Or call `first_step` after
    the first backward pass and `second_step` after the second.

    Args:
        base_optimizer: a class of `dnnsuite.optim`, which takes `options`.
    """

    flags = ("maximize", "adaptive")
    passes = 2

    def __init__(
        self,
        params: Iterable[Any],
        base_optimizer: type[ArrayOptimizer],
        rho: Any = 0.05,
        adaptive: bool = False,
        **options: Any,
    ) -> None:
        base = base_optimizer(params, **options)
        for group in base.param_groups if isinstance(base, ArrayOptimizer) else ():
            dict.setdefault(group, "adaptive", adaptive)
        super().__init__(base, {"rho": rho})
        self._moved: Moved = []

    @torch.no_grad()
    def perturb(self, groups: Sequence[Group], hypers: Hypers) -> Moved:
        """Move each model to where its second gradient is taken; return the parameters with copies for `put_back`."""
        used = [
            (p, p * p * p.grad if group["adaptive"] else p.grad, p.abs() if group["adaptive"] else None, hyper["rho"])
            for group, hyper in zip(groups, hypers, strict=True)
            for p in group["params"]
            if p.grad is not None
        ]
        lengths = [norm(p.grad if scale is None else scale * p.grad).double().flatten() for p, _, scale, _ in used]
        if not used:
            return []
        length = torch.linalg.vector_norm(torch.stack(lengths), dim=0) + 1e-12
        moved = [(p, p.detach().clone()) for p, *_ in used]
        for p, direction, _, rho in used:
            p.add_(direction * _beside(rho / length, p))
        return moved

    @staticmethod
    @torch.no_grad()
    def put_back(moved: Moved) -> None:
        """Move the models back from where `perturb` has moved them."""
        for parameter, before in moved:
            parameter.copy_(before)

    def first_step(self, zero_grad: bool = False) -> None:
        """Move each model along its gradient, to where the second pass takes it."""
        under_way.finish(self)
        self._moved = self.perturb(self.own_groups(), self.own_groups())
        if zero_grad:
            self.zero_grad()

    def second_step(self, zero_grad: bool = False) -> None:
        """Move each model back, and step with the gradient of the second pass."""
        moved, self._moved = self._moved, []
        self.put_back(moved)
        super().step()
        if zero_grad:
            self.zero_grad()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every model once. `closure` computes the losses `[B]`, runs backward and returns them; it is called
        twice."""
        if closure is None:
            raise InvalidArgument(
                "SAM.step takes a closure that computes the losses, runs backward and returns them, for it is called "
                "twice; or call first_step and second_step"
            )
        self.zero_grad()
        with torch.enable_grad():
            losses = closure()
        self.first_step(zero_grad=True)
        try:
            with torch.enable_grad():
                closure()
        except BaseException:
            self.put_back(self._moved)
            raise
        self.second_step()
        return losses


def _beside(vector: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """View `[B]` beside a parameter, numbers in its dtype: `[B, 1, ...]`."""
    vector = vector if vector.dtype == torch.bool else vector.to(parameter.dtype)
    return beside(vector, parameter)


class ChainedOptimizer(_Sharing):
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

    held = (*_Sharing.held, "optimizers")

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
