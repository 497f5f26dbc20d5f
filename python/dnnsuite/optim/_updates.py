# SPDX-License-Identifier: MIT
"""Updates of an optimizer's groups, each by a plan that is made once and kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ..ops.partial_use import partly_used, users_of
from ._group import Group
from ._plan import Hyper, StepPlan, refuse_other_width, refuse_sparse
from ._state import OptimizerState

_MOST_PLANS = 1024


class PlannedUpdates(OptimizerState):
    """Base of `ArrayOptimizer`: the update of a group's parameters, and the plans that it goes by."""

    def update(
        self,
        group: Group,
        params: Sequence[torch.Tensor],
        state: Any,
        hyper: Hyper,
        factor: torch.Tensor | None = None,
        active: torch.Tensor | None = None,
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
        params: Sequence[torch.Tensor],
        state: Any,
        hyper: Hyper,
        factor: torch.Tensor | None,
        active: torch.Tensor,
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
        for key, params in self._keyed(group, places, apart):
            plan = self._plans.get(key)
            if plan is None or not plan.fits(rule, params, state):
                plan = self._plans[key] = StepPlan(rule, params, state)
            plan.prepare()

    def _keyed(
        self, group: Group, places: Sequence[int], apart: Sequence[int]
    ) -> Iterator[tuple[Any, list[torch.Tensor]]]:
        """Pair the key of each plan with its parameters."""
        yield id(group), [group["params"][place] for place in places]
        for place in apart:
            parameter = group["params"][place]
            yield (id(group), id(parameter)), [parameter]

    def plan_tensors(self, group: Group) -> list[torch.Tensor]:
        """List the tensors that the plans of `group` consist of."""
        return [tensor for plan in self._plans_of(group) for tensor in plan.tensors()]

    def follow_memory(self, group: Group) -> bool:
        """Let the plans of `group` point to the memory that parameters have now; return False if one cannot."""
        return all(plan.follow_memory() for plan in self._plans_of(group))

    def _plans_of(self, group: Group) -> list[StepPlan]:
        keys = [id(group), *((id(group), id(p)) for p in group["params"])]
        return [self._plans[key] for key in keys if key in self._plans]
