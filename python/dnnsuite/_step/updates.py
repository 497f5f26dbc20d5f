# SPDX-License-Identifier: MIT
"""Optimizers of a step: hooks, current hyper-parameters, and parameters that the array no longer has.

Hyper-parameters are read when a step is asked for and are inputs of its recording, so a schedule records nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .._C import Guards
from .._torch import containers_of_step_hooks
from ..optim import ArrayOptimizer, HyperParameters, guard_values
from .capture.guards import GuardTable
from .refusals import hooks_after_a_step
from .shard import Vectors


class Updates:
    """Optimizers whose groups and hooks are looked at before each step.

    Attributes:
        vectors: the current hyper-parameters; the same list as before while every value in it is the same.
        hooks: those that wait for the end of a step, each with its optimizer.
    """

    def __init__(self, optimizers: Sequence[ArrayOptimizer]) -> None:
        self._each = [(one, HyperParameters(), (*one.per_model, "max_grad_norm")) for one in optimizers]
        self.vectors: Vectors = []
        self.hooks: list[tuple[ArrayOptimizer, Any]] = []
        self._rules: list[Any] = []
        self.table = GuardTable()
        self._before = self._read()

    def changed(self) -> bool:
        """Look at all of it; return True once groups, flags, rules or state of an optimizer have changed.

        Raises:
            InvalidArgument: an optimizer has a hook that cannot be called.
        """
        if self.table.hold():
            return False
        fresh = self.table.renewed(self._guard)
        self.hooks = [(one, hook) for one, _, _ in self._each for hook in hooks_after_a_step(one)]
        if self._read() != self._before:
            return True
        self.table.keep(fresh)
        return False

    def _guard(self, guards: Guards) -> None:
        for one, _, names in self._each:
            held = vars(one)
            for key in ("_changes", "param_groups", "step"):
                guards.item(held, key)
            for hooks in containers_of_step_hooks(one):
                guards.container(hooks, hooks.copy())
            for tensor in _states(one):
                guards.result(tensor.data_ptr)
            groups = one.own_groups()
            guards.container(groups)
            for group in groups:
                guards.container(group)
                guards.container(dict.__getitem__(group, "params"))
                guard_values(guards, group, names)

    def _read(self) -> tuple[list[Any], ...]:
        """Read the hyper-parameters; return how often each optimizer was changed, the rules of its groups, how many
        parameters each has, and where its state lies, which `.data = ...` changes."""
        found = [(one.own_groups(), hypers, names) for one, hypers, names in self._each]
        changed = [hypers.read(groups, names) for groups, hypers, names in found]  # all are looked at
        if any(changed):
            self._rules = [one.rule(group, group) for one, _, _ in self._each for group in one.own_groups()]
            self.vectors = [own for _, hypers, _ in found for own in hypers.copies]
        trained = [len(dict.__getitem__(group, "params")) for groups, _, _ in found for group in groups]
        places = [tensor.data_ptr() for one, _, _ in self._each for tensor in _states(one)]
        return [one.revision for one, _, _ in self._each], self._rules, trained, places


def _states(optimizer: ArrayOptimizer) -> list[torch.Tensor]:
    """List the tensors in an optimizer's state as they are: a step that is under way need not end for it."""
    rows = dict.values(optimizer.state)
    return [value for row in rows for value in dict.values(row) if isinstance(value, torch.Tensor)]


class RemovedParameters:
    """Search for such parameters. As in torch they get no gradient, and are not stepped; a parameter that the array
    never had is none of them."""

    def __init__(self) -> None:
        self._array: torch.nn.Module | None = None
        self._known: dict[int, torch.Tensor] = {}
        self.ids: frozenset[int] = frozenset()

    def look(self, array: torch.nn.Module, optimizers: Sequence[ArrayOptimizer]) -> None:
        """Find those that `optimizers` hold, for `ids`."""
        held = {id(p): p for p in array.parameters()}
        known = self._known if array is self._array else {}
        trained = {id(p) for one in optimizers for group in one.param_groups for p in group["params"]}
        self.ids = frozenset(trained & known.keys() - held.keys())
        self._array, self._known = array, {**known, **held}
