# SPDX-License-Identifier: MIT
"""Hyper-parameters and state that a kind of optimizer keeps for each model, and updates of its groups, each by a plan
that is made once and kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from .. import ops
from .._torch import UncompiledOptimizer
from ..ops.array_layers import partly_used, users_of
from ..ops.shared import Maybe
from ._group import Group, HyperParameter, ParameterGroup
from ._plan import Hyper, StepPlan, Tensors, refuse_other_width, refuse_sparse
from ._state_table import StateTable

MOST = 64  # tensors that answers are kept of
_MOST_PLANS = 1024


class KeptAnswers:
    """Cache of `bool(tensor.any())`, valid until a write into the tensor."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[torch.Tensor, int, bool]] = {}

    def any(self, tensor: torch.Tensor) -> bool:
        """Return `bool(tensor.any())`."""
        seen = self._known.get(id(tensor))
        if seen is None or seen[0] is not tensor or seen[1] != tensor._version:
            if len(self._known) >= MOST:
                self._known.clear()
            seen = self._known[id(tensor)] = tensor, tensor._version, bool(tensor.any())
        return seen[2]


class OptimizerState(UncompiledOptimizer):
    """Base of `ArrayOptimizer`: names of hyper-parameters, the update rule, groups, the state of each parameter, and
    the update of a group's parameters with the plans that it goes by."""

    torch_class: ClassVar[Callable[..., torch.optim.Optimizer] | None] = None
    arguments: ClassVar[dict[str, Any]] = {}
    """Arguments after the parameters and their defaults, where torch has no such class to tell them."""
    fixed: ClassVar[dict[str, Any]] = {}
    """Values that groups have and that are no arguments."""
    per_model: ClassVar[tuple[str, ...]] = ()
    formula_name: ClassVar[str] = ""
    pairs: ClassVar[dict[str, tuple[str, str]]] = {}
    """Arguments that are two hyper-parameters in one, as torch writes them."""
    flags: ClassVar[tuple[str, ...]] = ("maximize",)
    counters: ClassVar[tuple[str, ...]] = ()
    """Vectors `[B]` of a group that a step changes, zeros before the first."""
    passes: ClassVar[int] = 1
    """How often a step computes losses and gradients; 0: as often as it needs."""
    B: int = 0
    _plans: dict[Any, StepPlan]
    _answers: KeptAnswers
    _changes: int = 0

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "state" and not isinstance(value, StateTable):
            value = StateTable(value, self)
        super().__setattr__(name, value)
        if name in ("state", "param_groups", "on_nan"):
            self.note_change()

    @property
    def revision(self) -> int:
        """Count of the changes that the values of hyper-parameters do not show: groups, flags, tensors of the state."""
        self.own_groups()
        return self._changes

    def note_change(self) -> None:
        """Note a change, for readers of `revision`."""
        self.__dict__["_changes"] = self._changes + 1

    def place_of(self, group: Any) -> int:
        """Find the group's place in `param_groups`; the next one if it is not there yet."""
        return next((i for i, one in enumerate(self.param_groups) if one is group), len(self.param_groups))

    def own_groups(self) -> list[ParameterGroup]:
        """List `param_groups`; those that a caller put in by hand are made groups of this optimizer."""
        groups: list[Any] = self.__dict__.get("param_groups", [])
        for place, group in enumerate(groups):
            if type(group) is not ParameterGroup:
                groups[place] = self._owned(group)
                self.note_change()
        return groups

    def _owned(self, group: Group) -> ParameterGroup:
        own = ParameterGroup(group, self)
        for name in (*self.per_model, *self.pairs):
            if name in group and not isinstance(dict.get(own, name), HyperParameter):
                own[name] = group[name]
        return own

    def limit(self, max_grad_norm: torch.Tensor | None) -> None:
        """Clip by these norms `[B]` in all groups, which are clipped together; None clips no more."""
        for group in self.own_groups():
            if max_grad_norm is None:
                dict.pop(group, "max_grad_norm", None)
            else:
                group.put("max_grad_norm", max_grad_norm)
        self._keep_norms()
        self.note_change()

    def _keep_norms(self) -> None:
        """Give each group a place for the norms of a step's gradients."""
        for group in self.own_groups():
            group.setdefault("grad_norms", torch.zeros_like(group["active"], dtype=torch.float64))

    def hyper_names(self, group: Group) -> tuple[str, ...]:
        """List the hyper-parameters of `group` that have a value per model."""
        return self.per_model

    def rule(self, group: Group, hyper: Hyper) -> str:
        """Name the formula of `group` in `dnnsuite.ops.RULES`, which is `formula_name` where it is always the same."""
        if not self.formula_name:
            raise TypeError(f"{type(self).__name__} names no rule")
        return self.formula_name

    def names_of(self, rule: str, parameter: torch.Tensor) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the names of a parameter's states and of its scalars `[B]`."""
        takes = ops.RULES[rule]
        return takes.states, takes.scalars

    def zeros(self, name: str, parameter: torch.Tensor) -> torch.Tensor:
        """Make the zeros that a state begins as."""
        return torch.zeros_like(parameter, memory_format=torch.preserve_format)

    def any_momentum(self, hyper: Hyper) -> bool:
        """Return True if any model has momentum. On a GPU, where that waits, the answer is kept."""
        momentum = hyper["momentum"]
        return self._answers.any(momentum) if momentum.is_cuda else bool(momentum.any())

    def took(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Take what else the models' optimizers of torch hold, after their states."""

    def init_state(self, group: Group, params: Sequence[torch.Tensor], state: Any) -> None:
        """Create the state of those of `params` that have none."""
        self.fill_state(self.rule(group, group), group, params, state, group)

    def fill_state(self, rule: str, group: Group, params: Sequence[torch.Tensor], state: Any, hyper: Hyper) -> None:
        """Create the states that `rule` takes, for those of `params` that lack them."""
        names = {id(p): self.names_of(rule, p) for p in params}
        known = dict(state.items())  # at once: each reading of one takes back what steps have left
        rows_of = {id(p): known[p] if p in known else state[p] for p in params}
        for name in dict.fromkeys(name for _, scalars in names.values() for name in scalars):
            new = [p for p in params if name not in rows_of[id(p)]]
            if new:
                # Rows of one tensor, so that a file holds one for all parameters.
                rows = torch.zeros(len(new), new[0].size(0), dtype=torch.float64, device=new[0].device)
                for parameter, row in zip(new, rows.unbind(0), strict=True):
                    rows_of[id(parameter)][name] = row
        for parameter in params:
            for name in names[id(parameter)][0]:
                own = rows_of[id(parameter)]
                if name not in own:
                    value = self.zeros(name, parameter)
                    start = self.start_state(name, ops.as_real(value), hyper)
                    own[name] = torch.view_as_complex(start) if value.is_complex() else start
                elif (
                    own[name].shape == parameter.shape and own[name].stride() != parameter.stride()
                ):  # of a file, or of an array that was edited
                    own[name] = torch.empty_like(parameter).copy_(own[name])

    def start_state(self, name: str, value: torch.Tensor, hyper: Hyper) -> torch.Tensor:
        """Return the initial value of a state, given zeros."""
        return value

    def update(
        self, group: Group, params: Tensors, state: Any, hyper: Hyper, factor: Maybe = None, active: Maybe = None
    ) -> None:
        """Update those of `params` that have a gradient; `hyper` holds the `[B]` vectors to use, `group` the flags."""
        rule = group.get("rule") or self.rule(group, hyper)
        active = group["active"] if active is None else active
        apart = partly_used(params)
        if apart:
            params = [p for p in params if not any(p is one for one in apart)]
        for parameter in apart:
            if parameter.grad is not None:
                of_users = active & users_of(parameter.grad)
                self._update((id(group), id(parameter)), rule, group, [parameter], state, hyper, factor, of_users)
        self._update(id(group), rule, group, params, state, hyper, factor, active)

    def _update(
        self,
        key: Any,
        rule: str,
        group: Group,
        params: Tensors,
        state: Any,
        hyper: Hyper,
        factor: Maybe,
        active: Tensor,
    ) -> None:
        """Update those of `params` that have a gradient, by the plan that is kept under `key`."""
        grads = [g for g in [p.grad for p in params] if g is not None]
        if len(grads) < len(params):
            params = [p for p in params if p.grad is not None]
        if not grads:
            return
        plan = self._plans.get(key)
        if plan is None or not plan.fits(rule, params, state):
            refuse_sparse(grads, params)
            refuse_other_width(params, group["active"])
            self.fill_state(rule, group, params, state, hyper)
            if len(self._plans) > _MOST_PLANS:
                self._plans.clear()
            plan = self._plans[key] = StepPlan(rule, params, state)
        plan.run(grads, hyper, group, factor, active)

    def planner(self, group: Group) -> Any:
        """Return the optimizer whose plans the updates of `group` go by."""
        return self

    def planned(self, group: Group) -> tuple[str, list[int], list[int]] | None:
        """Describe the plans of `group`'s last step: the rule, the places of the parameters that are updated at once,
        and of those that only some models use, updated one by one."""
        places = {id(p): place for place, p in enumerate(group["params"])}
        alone = {key: self._plans[id(group), key] for key in places if (id(group), key) in self._plans}
        plan = self._plans.get(id(group))
        if plan is None and not alone:
            return None
        together = [] if plan is None else [places[id(p)] for p in plan.params if id(p) in places]
        rule = next(one for one in (plan, *alone.values()) if one is not None).rule
        return rule, together, [places[key] for key in alone]

    def prepare(self, group: Group, state: Any, rule: str, places: Sequence[int], apart: Sequence[int] = ()) -> None:
        """Make the plans of `group`'s next step, as `planned` describes them."""
        together = [group["params"][place] for place in places]
        alone = [group["params"][place] for place in apart]
        for key, params in [(id(group), together), *(((id(group), id(p)), [p]) for p in alone)]:
            plan = self._plans.get(key)
            if plan is None or not plan.fits(rule, params, state):
                plan = self._plans[key] = StepPlan(rule, params, state)
            plan.prepare()

    def plan_tensors(self, group: Group) -> list[torch.Tensor]:
        """List the tensors that the plans of `group` consist of."""
        return [tensor for plan in self._plans_of(group) for tensor in plan.tensors()]

    def follow_memory(self, group: Group) -> bool:
        """Let the plans of `group` point to the memory that parameters have now; return False if one cannot."""
        return all(plan.follow_memory() for plan in self._plans_of(group))

    def _plans_of(self, group: Group) -> list[StepPlan]:
        keys = [id(group), *((id(group), id(p)) for p in group["params"])]
        return [self._plans[key] for key in keys if key in self._plans]
