# SPDX-License-Identifier: MIT
"""Bytes of tensors by use, and memory in use: of the GPU's allocator, or of this process.

A storage counts once, however many tensors and views share it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import Unavailable

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
    """Sum the bytes of the distinct storages behind `tensors`; those in `seen` are not counted, new ones are added to
    it."""
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
    from ..._torch import StorageWeakRef

    if StorageWeakRef is None:
        raise Unavailable(
            "this torch has no StorageWeakRef, by which feature maps are counted",
            remedy="`dnnsuite doctor` names the torch that this package was tested with",
        )


class FeatureMaps:
    """Counter of the live storages that autograd saves between :meth:`enter` and :meth:`leave`.

    :attr:`peak_bytes` is the largest sum at the end of a forward pass since :meth:`reset`: where a plain training step
    has its peak. Weights do not count: name them by :meth:`exclude`.
    """

    def __init__(self) -> None:
        self.peak_bytes = 0
        self.seen = 0  # tensors that were saved since `reset`
        self._weights: set[int] = set()
        self._live: dict[int, tuple[int, Any]] = {}
        self._open = _Open()
        self._lock = threading.Lock()

    def exclude(self, tensors: Iterable[torch.Tensor]) -> None:
        """Leave the storages of `tensors` out."""
        self._weights.update(tensor.untyped_storage()._cdata for tensor in tensors)

    def enter(self) -> bool:
        """Begin a forward pass in this thread; return True if it is an outermost one."""
        from torch.autograd.graph import saved_tensors_hooks

        context = None
        if not self._open.forwards:
            context = saved_tensors_hooks(self._pack, _unpack)
            context.__enter__()
        self._open.forwards.append(context)
        return context is not None

    def leave(self) -> None:
        """End the forward pass that began last in this thread, after an error too."""
        if not self._open.forwards:
            return
        context = self._open.forwards.pop()
        if context is not None:
            context.__exit__(None, None, None)
            self._measure()

    def reset(self) -> None:
        """Begin an iteration: the peak is set to the live bytes."""
        with self._lock:
            self.seen = 0
        self.peak_bytes = 0

    def live_bytes(self) -> int:
        """Bytes of saved tensors that are alive."""
        with self._lock:
            self._live = {key: each for key, each in self._live.items() if not each[1].expired()}
            return sum(size for key, (size, _) in self._live.items() if key not in self._weights)

    def _measure(self) -> None:
        self.peak_bytes = max(self.peak_bytes, self.live_bytes())

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor:
        from ..._torch import StorageWeakRef

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


def _unpack(tensor: torch.Tensor) -> torch.Tensor:
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
    """Start a new peak. On a GPU this resets torch's own peak statistics, too."""
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
    peak, current = _resident()
    return MemoryLevel(peak, current, peak, current)


def _resident() -> tuple[int, int]:
    found = {"VmHWM": 0, "VmRSS": 0}
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii", errors="replace") as file:
        for line in file:
            name, _, rest = line.partition(":")
            if name in found:
                found[name] = int(rest.split()[0]) * 1024
    return found["VmHWM"], found["VmRSS"]
