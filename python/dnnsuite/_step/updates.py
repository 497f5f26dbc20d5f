# SPDX-License-Identifier: MIT
"""Optimizers of a step, their current hyper-parameters, and parameters that the array no longer has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..optim import ArrayOptimizer, HyperParameters
from .shard import Vectors


class Updates:
    """Optimizers whose groups are looked at before each step."""

    def __init__(self, optimizers: Sequence[ArrayOptimizer]) -> None:
        self._each = [(one, HyperParameters(), (*one.per_model, "max_grad_norm")) for one in optimizers]
        self._revisions = [one.revision for one in optimizers]
        self._vectors: Vectors = []
        self.rules: list[Any] = []
        self.trained: list[int] = []
        self.vectors()

    @property
    def changed(self) -> bool:
        """True once groups, flags or state of an optimizer have changed."""
        return [one.revision for one, _, _ in self._each] != self._revisions

    def vectors(self) -> Vectors:
        """Return the current hyper-parameters; the same list as before while every value in it is the same.

        `rules` are then those of the groups with these values, and `trained` the number of parameters of each group.
        """
        found = [(one.own_groups(), hypers, names) for one, hypers, names in self._each]
        changed = [hypers.read(groups, names) for groups, hypers, names in found]  # all are looked at
        if any(changed):
            self.rules = [one.rule(group, group) for one, _, _ in self._each for group in one.own_groups()]
            self._vectors = [own for _, hypers, _ in found for own in hypers.copies]
        self.trained = [len(dict.__getitem__(group, "params")) for groups, _, _ in found for group in groups]
        return self._vectors


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
