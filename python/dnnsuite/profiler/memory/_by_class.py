# SPDX-License-Identifier: MIT
"""Memory by class, for any model and optimizer of a loop, found by torch's hooks."""

from __future__ import annotations

import contextlib
import sys
from typing import Any, NamedTuple

from ..._lazy import pandas as pd
from ...errors import Unavailable
from ..instrument import define
from ._classes import CLASSES, FeatureMaps, begin_peak, check_storages, level, state_tensors, stored_bytes

_TABLE = {
    "class": "use of the memory",
    "bytes": "the largest of the observed steps",
    "share_pct": "of the sum of the rows",
    "bytes_per_model": "bytes over the models of a fused array; the same as bytes for a plain model",
    "definition": "how the class is recognised",
}
_STEPS = {
    "memory_step": "number of the step within its window",
    "weights_bytes": CLASSES["weights"],
    "gradients_bytes": CLASSES["gradients"],
    "optimizer_state_bytes": CLASSES["optimizer state"],
    "feature_maps_bytes": CLASSES["feature maps"],
    "other_bytes": CLASSES["workspace and other"],
    "peak_bytes": "largest in the step: on a GPU of torch's allocator, on a CPU the resident set",
    "current_bytes": "the same at the step's end",
}


class _Row(NamedTuple):
    memory_step: int
    weights_bytes: int
    gradients_bytes: int
    optimizer_state_bytes: int
    feature_maps_bytes: int
    other_bytes: int
    peak_bytes: int
    current_bytes: int


class MemoryInstrument:
    """Weights, gradients, optimizer state and feature maps in each step, and the rest of the peak.

    Hooks in modules exist while a window is open. Steps that a StepRunner replays run none: a note says when feature
    maps could not be seen. On a GPU the statistics of peaks of torch's allocator are reset in each step.

    Args:
        models: number of models in a fused array, for bytes per model; 1 for a plain one.
        modules: allow hooks in modules; without them weights and feature maps are not seen.
    """

    name = "memory"

    def __init__(self, models: int = 1, modules: bool = True) -> None:
        self._models, self._with_modules = max(1, models), modules
        self._maps = FeatureMaps()
        self._modules: dict[int, Any] = {}  # outermost modules that ran, by id
        self._optimizers: dict[int, Any] = {}
        self._gradients: dict[int, int] = {}  # bytes by optimizer, when it stepped last
        self._device = "cpu"
        self._rows: list[_Row] = []
        self._unseen = 0
        self._undo: contextlib.ExitStack | None = None

    def open(self) -> None:
        if "torch" not in sys.modules:
            raise Unavailable("the process has not imported torch", remedy="import torch before profiling")
        check_storages()

    def start(self) -> None:
        from torch.nn.modules import module
        from torch.optim import optimizer

        with contextlib.ExitStack() as undo:
            if self._with_modules:
                undo.callback(module.register_module_forward_pre_hook(self._begin).remove)
                undo.callback(module.register_module_forward_hook(self._end, always_call=True).remove)
            undo.callback(optimizer.register_optimizer_step_pre_hook(self._stepping).remove)
            self._undo = undo.pop_all()
        begin_peak(self._device)

    def _begin(self, module: Any, _: Any) -> None:
        from torch.compiler import is_compiling

        if is_compiling():
            return
        if self._maps.enter() and id(module) not in self._modules:
            self._modules[id(module)] = module
            self._maps.exclude([*module.parameters(), *module.buffers()])
            found = next(module.parameters(), None)
            self._device = str(found.device) if found is not None else self._device

    def _end(self, *_: Any) -> None:
        from torch.compiler import is_compiling

        if not is_compiling():
            self._maps.leave()

    def _stepping(self, optimizer: Any, *_: Any) -> None:
        self._optimizers[id(optimizer)] = optimizer
        self._gradients[id(optimizer)] = stored_bytes(parameter.grad for parameter in _parameters(optimizer))

    def step(self, index: int) -> None:
        optimizers = list(self._optimizers.values())
        seen: set[int] = set()
        weights = stored_bytes(
            (t for module in self._modules.values() for t in (*module.parameters(), *module.buffers())), seen
        )
        weights += stored_bytes((p for optimizer in optimizers for p in _parameters(optimizer)), seen)
        state = stored_bytes((t for optimizer in optimizers for t in state_tensors(optimizer)), seen)
        found = level(self._device)
        gradients = sum(self._gradients.values())
        known = weights + gradients + state + self._maps.peak_bytes
        self._rows.append(
            _Row(
                index,
                weights,
                gradients,
                state,
                self._maps.peak_bytes,
                max(0, found.peak - known),
                found.peak,
                found.current,
            )
        )
        self._unseen += gradients > 0 and self._maps.seen == 0
        self._gradients.clear()
        self._maps.reset()
        begin_peak(self._device)

    def stop(self) -> None:
        undo, self._undo = self._undo, None
        if undo is not None:
            undo.close()

    def close(self) -> None:
        self.stop()
        self._modules.clear()
        self._optimizers.clear()

    def tables(self) -> dict[str, pd.DataFrame]:
        steps = pd.DataFrame(self._rows, columns=list(_Row._fields))
        names = ("weights", "gradients", "optimizer_state", "feature_maps", "other")
        largest = [int(steps[f"{name}_bytes"].max()) if len(steps) else 0 for name in names]
        table = pd.DataFrame({"class": list(CLASSES), "bytes": largest})
        table["share_pct"] = 100 * table["bytes"] / max(1, table["bytes"].sum())
        table["bytes_per_model"] = table["bytes"] / self._models
        table["definition"] = list(CLASSES.values())
        return {"memory": define(table, _TABLE), "memory_steps": define(steps, _STEPS)}

    def notes(self) -> list[str]:
        if not self._unseen:
            return []
        return [
            f"{self._unseen} steps saved nothing that could be seen: replayed, compiled, or without hooks in modules"
        ]


def _parameters(optimizer: Any) -> list[Any]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
