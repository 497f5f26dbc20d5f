# SPDX-License-Identifier: MIT
"""One optimizer over an array's parameters and those of unfused modules, of which each model has its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from .._torch import foreach_mul_
from ..errors import InvalidArgument
from ._base import ArrayOptimizer
from ._group import SWITCHES, Group, HyperParameter, ParameterGroup, plain


class PartiallyFused:
    """Optimizer of an array with unfused parts: one fused optimizer, and torch's for each model's own parts.

    `param_groups` are the fused ones and, for each group of the plain optimizers, one with all models' parameters and
    hyper-parameters `[B]`: schedules drive both, and a step passes each model's value to its optimizer. A model that is
    frozen, or left out by `on_nan`, is so in both parts; `on_nan` and `max_grad_norm` look at the fused gradients only.

    Args:
        fused: optimizer of the parameters `[B, ...]`.
        plain: B optimizers of torch; `plain[b]` has the unfused parameters of model b.
    """

    def __init__(self, fused: ArrayOptimizer, plain: Sequence[torch.optim.Optimizer]) -> None:
        self.fused, self.plain, self.B = fused, list(plain), fused.B
        if len(self.plain) != fused.B:
            raise InvalidArgument(f"{len(self.plain)} plain optimizers for an array of {fused.B} models")
        if len({len(one.param_groups) for one in self.plain}) > 1:
            raise InvalidArgument("the plain optimizers have different numbers of groups")
        self._groups = [self._gathered(each) for each in zip(*(o.param_groups for o in self.plain), strict=True)]

    def _names(self, group: Group) -> list[str]:
        """Return the per-model hyper-parameters that a plain group has, too."""
        inside = {name for pair, names in self.fused.pairs.items() if pair in group for name in names}
        return [name for name in self.fused.per_model if name in group or name in inside]

    @property
    def per_model(self) -> tuple[str, ...]:
        """Names of the hyper-parameters with one value per model."""
        return self.fused.per_model

    def __repr__(self) -> str:
        return f"PartiallyFused({self.fused!r}, {self.B} of {type(self.plain[0]).__name__})"

    @property
    def pairs(self) -> dict[str, tuple[str, str]]:
        """Arguments that are two hyper-parameters in one, as torch writes them."""
        return self.fused.pairs

    def place_of(self, group: Any) -> int:
        """Find the group's place in `param_groups`."""
        return next(i for i, one in enumerate(self.param_groups) if one is group)

    def note_change(self) -> None:
        """Do nothing: a step hands out the values in the plain groups."""

    def limit(self, max_grad_norm: torch.Tensor | None) -> None:
        """Clip the fused gradients by these norms `[B]`; None clips no more."""
        self.fused.limit(max_grad_norm)

    def _gathered(self, each: Sequence[Group]) -> ParameterGroup:
        in_pairs = {name: (pair, i) for pair, names in self.fused.pairs.items() for i, name in enumerate(names)}
        gathered: Group = {"params": [p for group in each for p in group["params"]]}
        for name in self._names(each[0]):
            pair, position = in_pairs.get(name, (name, None))
            numbers = [float(g[pair] if position is None else g[pair][position]) for g in each]
            gathered[name] = HyperParameter.of(name, numbers, self.B)
        return ParameterGroup(gathered, self)

    def _hand_out(self) -> None:
        """Give each plain optimizer its model's hyper-parameters."""
        for place, gathered in enumerate(self._groups):
            values = {n: v.tolist() for n, v in gathered.items() if isinstance(v, torch.Tensor)}
            flags = {n: v for n, v in gathered.items() if n in SWITCHES}
            for index, one in enumerate(self.plain):
                group, own = one.param_groups[place], {n: v[index] for n, v in values.items()}
                group.update(flags)
                for pair, names in self.fused.pairs.items():
                    if pair in group:
                        group[pair] = tuple(own.pop(name) for name in names)
                group.update({name: value for name, value in own.items() if name in group})

    @property
    def param_groups(self) -> list[Group]:
        """Fused groups, then plain ones."""
        return [*self.fused.param_groups, *self._groups]

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every model once, both parts."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.step_parts()
        return loss

    @torch.no_grad()
    def step_parts(self, factor: torch.Tensor | None = None, found: torch.Tensor | None = None) -> None:
        """One update of the models that are not in `found` `[B]`; `factor` `[B]` multiplies the fused gradients as they
        are read, as in `ArrayOptimizer.step_groups`, the plain ones in place."""
        before = self.fused.skipped.clone()
        self.fused.step_groups(self.fused.param_groups, self.fused.state, None, factor, found)
        moving = self.fused.active & (self.fused.skipped == before)
        if found is not None:
            moving = moving & ~found
        self._hand_out()
        if factor is not None:
            self.scale_plain_(factor)
        for one, moves in zip(self.plain, moving.tolist(), strict=True):
            if moves:
                one.step()

    def plain_gradients(self) -> list[list[torch.Tensor]]:
        """Each model's gradients of its own parts."""
        groups = [one.param_groups for one in self.plain]
        return [[p.grad for g in own for p in g["params"] if p.grad is not None] for own in groups]

    def scale_plain_(self, factor: torch.Tensor) -> None:
        """Multiply each model's gradients of its own parts by its `factor` `[B]`, in place."""
        for grads, own in zip(self.plain_gradients(), factor.tolist(), strict=True):
            if grads:
                foreach_mul_(grads, own)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients of both parts."""
        for one in (self.fused, *self.plain):
            one.zero_grad(set_to_none=set_to_none)

    def freeze(self, indices: int | Iterable[int]) -> None:
        """Stop these models."""
        self.fused.freeze(indices)

    def unfreeze(self, indices: int | Iterable[int]) -> None:
        """Undo `freeze`."""
        self.fused.unfreeze(indices)

    @property
    def frozen(self) -> list[int]:
        """The models that do not step."""
        return self.fused.frozen

    def select(
        self, indices: Sequence[int | None], plain: Sequence[torch.optim.Optimizer] | None = None, **fresh: Any
    ) -> None:
        """Keep some models, like `ArrayOptimizer.select`; `plain` are the optimizers of all models' own parts, in
        the new order.

        Models that only leave or change places need no `plain`; fresh ones and clones do, for their parts are new.
        """
        if plain is None:
            kept = [index % self.B for index in indices if index is not None]
            if len(set(kept)) < len(indices):
                raise InvalidArgument(
                    "fresh models and clones have parts of their own that are not fused: give `plain`, the optimizers "
                    "of all models' own parts in the new order"
                )
            plain = [self.plain[index] for index in kept]
        if len(plain) != len(indices):
            raise InvalidArgument(f"{len(plain)} plain optimizers for {len(indices)} models")
        self._hand_out()
        self.fused.select(indices, **fresh)
        initial = [[group.get("initial_lr") for group in self._groups]]
        self.__init__(self.fused, plain)  # type: ignore[misc]
        for group, before in zip(self._groups, initial[0], strict=True):
            if before is not None:
                rates = [group["lr"][k] if i is None else before[i] for k, i in enumerate(indices)]
                group["initial_lr"] = torch.stack(rates)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of both parts, and the hyper-parameters of the plain groups."""
        self._hand_out()
        vectors = [{n: plain(v) for n, v in g.items() if isinstance(v, torch.Tensor)} for g in self._groups]
        parts = [one.state_dict() for one in self.plain]
        return {"fused": self.fused.state_dict(), "plain": parts, "groups": vectors}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a result of `state_dict`."""
        if len(state_dict["plain"]) != self.B:
            raise InvalidArgument(f"the state is that of {len(state_dict['plain'])} models, there are {self.B}")
        self.fused.load_state_dict(state_dict["fused"])
        for one, state in zip(self.plain, state_dict["plain"], strict=True):
            one.load_state_dict(state)
        for group, vectors in zip(self._groups, state_dict["groups"], strict=True):
            group.update(vectors)

    def add_param_group(self, param_group: Group) -> None:
        """Add a group of fused parameters, like `ArrayOptimizer.add_param_group`."""
        self.fused.add_param_group(param_group)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._groups = [ParameterGroup(group, self) for group in self._groups]
