# SPDX-License-Identifier: MIT
"""Parameters that were taken out of an array, as by `array.head.bias = None`, and that its optimizer still holds."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..optim import ArrayOptimizer

__all__ = ["RemovedParameters"]


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
