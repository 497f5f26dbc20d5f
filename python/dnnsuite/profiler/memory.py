# SPDX-License-Identifier: MIT
"""Memory by class: bytes of tensors by use, for any model and optimizer of a loop, found by torch's hooks.

Memory in use is that of the GPU's allocator, or of this process. A storage counts once, however many tensors and views
share it.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from .._lazy import pandas as pd
from ..errors import Unavailable
from .instrument import HookInstrument, define

if TYPE_CHECKING:
    import torch


CLASSES = {
    "weights": "parameters and buffers",
    "gradients": "the parameters' .grad, when the optimizer steps",
    "optimizer state": "tensors that the optimizer keeps",
    "feature maps": "what the forward pass saved for the backward pass, without weights; at its peak; "
    "includes the input where a layer saves it",
    "workspace and other": "the peak less all of the above: on a GPU of torch's allocator (workspaces, temporaries, "
    "the batch); on a CPU of the resident set (also the interpreter, libraries, what the allocator keeps)",
}


def stored_bytes(tensors: Iterable[torch.Tensor | None], seen: set[int] | None = None) -> int:
    """Return the bytes of the distinct storages behind `tensors`.

    Storages in `seen` are not counted, and new ones are added to it.
    """
    seen = set() if seen is None else seen
    total = 0
    for tensor in tensors:
        if tensor is None:
            continue
        storage = tensor.untyped_storage()
        if storage._cdata not in seen:
            seen.add(storage._cdata)
            total += storage.nbytes()
    return total


def state_tensors(optimizer: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in an optimizer's `state`, however they are nested."""
    yield from _tensors_in(getattr(optimizer, "state", {}))


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif hasattr(value, "values"):
        for inner in value.values():
            yield from _tensors_in(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _tensors_in(inner)


class _Open(threading.local):
    def __init__(self) -> None:
        self.forwards: list[Any] = []  # contexts of the thread's outermost forward, and None for those inside


def check_storages() -> None:
    """Raise `Unavailable` if this torch has no weak references to storages, which feature maps need."""
    from .._torch import StorageWeakRef

    if StorageWeakRef is None:
        raise Unavailable(
            "this torch has no StorageWeakRef, by which feature maps are counted",
            remedy="`dnnsuite doctor` names the torch that this package was tested with",
        )


class FeatureMaps:
    """Counter of the live storages that autograd saves between :meth:`enter` and :meth:`leave`.

    :attr:`peak_bytes` is the largest sum at the end of a forward pass since :meth:`reset`, which is where a plain
    training step has its peak. Weights do not count if they are named with :meth:`exclude`.
    """

    def __init__(self) -> None:
        self.peak_bytes = 0
        self.seen = 0  # tensors that were saved since `reset`
        self._weights: set[int] = set()
        self._live: dict[int, tuple[int, Any]] = {}
        self._open = _Open()
        self._lock = threading.Lock()

    def exclude(self, tensors: Iterable[torch.Tensor]) -> None:
        """Exclude the storages of `tensors`."""
        self._weights.update(tensor.untyped_storage()._cdata for tensor in tensors)

    def enter(self) -> bool:
        """Begin a forward pass in this thread; return True if it is an outermost one."""
        from torch.autograd.graph import saved_tensors_hooks

        context = None
        if not self._open.forwards:
            context = saved_tensors_hooks(self._pack, lambda tensor: tensor)
            context.__enter__()
        self._open.forwards.append(context)
        return context is not None

    def leave(self) -> None:
        """End the forward pass that began last in this thread. It must also be called after an error."""
        if not self._open.forwards:
            return
        context = self._open.forwards.pop()
        if context is not None:
            context.__exit__(None, None, None)
            self.peak_bytes = max(self.peak_bytes, self.live_bytes())

    def reset(self) -> None:
        """Begin an iteration by setting the peak to the bytes that are alive."""
        with self._lock:
            self.seen = 0
        self.peak_bytes = 0

    def live_bytes(self) -> int:
        """Bytes of the saved tensors that are alive."""
        with self._lock:
            self._live = {key: each for key, each in self._live.items() if not each[1].expired()}
            return sum(size for key, (size, _) in self._live.items() if key not in self._weights)

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor:
        from .._torch import StorageWeakRef

        try:
            storage = tensor.untyped_storage()
            key, size = storage._cdata, storage.nbytes()
        except (RuntimeError, NotImplementedError):  # sparse, or a subclass without one
            return tensor
        with self._lock:
            self.seen += 1
            # A weak reference keeps the key from being used again, so that no two storages share it.
            if key not in self._live:
                self._live[key] = (size, StorageWeakRef(storage))
        return tensor


class MemoryLevel(NamedTuple):
    """Memory in bytes: on a GPU given out by torch's allocator (`peak`, `current`) and held by it (`cached`).

    On a CPU both are the resident set.
    """

    peak: int
    current: int
    peak_cached: int
    current_cached: int


def begin_peak(device: str) -> None:
    """Start a new peak. On a GPU this also resets torch's own peak statistics."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.reset_peak_memory_stats()
        return
    # Not possible in some containers: the peak is then that of the process's whole life.
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def level(device: str) -> MemoryLevel:
    """Measure the memory in use."""
    if device.startswith("cuda"):
        import torch

        return MemoryLevel(
            torch.cuda.max_memory_allocated(),
            torch.cuda.memory_allocated(),
            torch.cuda.max_memory_reserved(),
            torch.cuda.memory_reserved(),
        )
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        kib = dict(re.findall(r"^(VmHWM|VmRSS):\s+(\d+)", file.read(), re.MULTILINE))
    peak, current = (1024 * int(kib.get(name, 0)) for name in ("VmHWM", "VmRSS"))
    return MemoryLevel(peak, current, peak, current)


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


class MemoryInstrument(HookInstrument):
    """Memory of weights, gradients, optimizer state and feature maps in each step, and the rest of the peak.

    Modules have hooks while a window is open. Steps that a StepRunner replays do not run them, and a note says if
    feature maps could not be seen. On a GPU, the peak statistics of torch's allocator are reset in each step.

    Args:
        models: number of models in a fused array, for bytes per model; 1 for a plain model.
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
        self._rows: list[tuple[int, ...]] = []  # as _STEPS
        self._unseen = 0

    def open(self) -> None:
        super().open()
        check_storages()

    def hook(self, undo: contextlib.ExitStack) -> None:
        from torch.nn.modules import module
        from torch.optim import optimizer

        if self._with_modules:
            undo.callback(module.register_module_forward_pre_hook(self._begin).remove)
            undo.callback(module.register_module_forward_hook(self._end, always_call=True).remove)
        undo.callback(optimizer.register_optimizer_step_pre_hook(self._stepping).remove)
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
        rest = max(0, found.peak - known)
        self._rows.append((index, weights, gradients, state, self._maps.peak_bytes, rest, found.peak, found.current))
        self._unseen += gradients > 0 and self._maps.seen == 0
        self._gradients.clear()
        self._maps.reset()
        begin_peak(self._device)

    def close(self) -> None:
        super().close()
        self._modules.clear()
        self._optimizers.clear()

    def tables(self) -> dict[str, pd.DataFrame]:
        steps = pd.DataFrame(self._rows, columns=list(_STEPS))
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
