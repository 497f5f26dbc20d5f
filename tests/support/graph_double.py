# SPDX-License-Identifier: MIT
"""Double of CUDA graphs on a CPU: captures write operators down, launches run them on the same addresses."""

from __future__ import annotations

import contextlib
import ctypes

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only


class GraphDouble:
    """A device for `CudaGraphs`. As with real graphs, capturing runs nothing, a launch knows addresses alone, draws
    anew from the generator, and takes no part of Python.

    Args:
        noise: size of the errors, relative, that a launch adds to all results of operators.
        spare: bytes of memory that the device has left for copies.

    Attributes:
        warmed: names of the operators that ran on the stream of captures before there was one.
        tape: what the last capture wrote down, one (operator, tensors) for each kernel: views launch none.
    """

    home = torch.device("cpu")

    def __init__(self, noise=0.0, spare=2**40):
        self.noise, self.spare = noise, spare
        self.captured = self.launched = self.released = 0
        self.warmed, self.tape = set(), []

    @contextlib.contextmanager
    def stream(self):
        with _Names() as names:
            yield
        if not self.captured:
            self.warmed |= names.found

    def capture(self, step):
        draws = torch.get_rng_state()
        tape = _Tape()
        try:
            with tape:
                losses = step()
        finally:
            tape.undo()
            torch.set_rng_state(draws)
        self.captured += 1
        self.tape = tape.kernels()
        tape.forget_outside()
        return lambda: self._launch(tape), losses

    def _launch(self, tape):
        self.launched += 1
        tape.run(self.noise)

    def release(self):
        self.released += 1

    def spare_bytes(self):
        return self.spare

    def draws(self):
        return torch.get_rng_state()

    def put_draws_back(self, state):
        torch.set_rng_state(state)


class DeviceMemory(TorchDispatchMode):
    """Memory of a device, for whose memory a CPU's stands in; what is copied with a device named lies on the host.

    Args:
        fails_at: number of the operator in the first block of `counted` that finds no memory left; None for no such
            one.

    Attributes:
        most: bytes of the device that were taken at a time in that block, at most.
    """

    def __init__(self, fails_at=None):
        super().__init__()
        self.most, self._calls, self._counts, self._alive, self._fails_at = 0, 0, False, {}, fails_at

    @contextlib.contextmanager
    def counted(self):
        self._counts = self._calls == 0
        try:
            yield
        finally:
            self._counts = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self._calls += self._counts
        if self._counts and self._calls == self._fails_at:
            raise torch.OutOfMemoryError("CUDA out of memory")
        result = func(*args, **kwargs or {})
        host = func._schema.name == "aten::_to_copy" and "device" in (kwargs or {})
        for storage in (tensor.untyped_storage() for tensor in _tensors(result)):
            if storage.data_ptr() not in self._alive:
                self._alive[storage.data_ptr()] = StorageWeakRef(storage), 0 if host else storage.nbytes()
        self._alive = {place: held for place, held in self._alive.items() if not held[0].expired()}
        if self._counts:
            self.most = max(self.most, sum(size for _, size in self._alive.values()))
        return result


class _Names(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.found = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.found.add(func._schema.name)
        return func(*args, **kwargs or {})


class _Address:
    """A tensor that lies outside of a graph, known by its address."""

    def __init__(self, tensor):
        storage = tensor.untyped_storage()
        self._alive = StorageWeakRef(storage)
        memory = (ctypes.c_byte * storage.nbytes()).from_address(storage.data_ptr())
        flat = torch.frombuffer(memory, dtype=torch.uint8).view(tensor.dtype)
        self._tensor = flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def read(self):
        assert not self._alive.expired(), "a graph reads memory that was freed"
        return self._tensor


class _Tape(TorchDispatchMode):
    """The operators of a captured step, and what there was before of all that they write into."""

    def __init__(self):
        super().__init__()
        self._calls, self._made, self._outside, self._before = [], set(), set(), {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func._schema.name == "aten::_local_scalar_dense":
            raise RuntimeError("operation not permitted when stream is capturing")
        tree_map_only(torch.Tensor, self._take, (args, kwargs))
        for place, one in enumerate(func._schema.arguments):
            if one.alias_info is not None and one.alias_info.is_write:
                given = args[place] if place < len(args) else kwargs.get(one.name)
                tree_map_only(torch.Tensor, self._save, given)
        result = func(*args, **kwargs)
        tree_map_only(torch.Tensor, self._make, result)
        self._calls.append((func, args, kwargs, result))
        return result

    def _take(self, tensor):
        if _place(tensor) not in self._made:
            self._outside.add(_place(tensor))

    def _make(self, tensor):
        if _place(tensor) not in self._outside:
            self._made.add(_place(tensor))

    def _save(self, tensor):
        if _place(tensor) in self._outside and _place(tensor) not in self._before:
            storage = tensor.untyped_storage()
            self._before[_place(tensor)] = storage, storage.clone()

    def kernels(self):
        return [
            (func._schema.name, _tensors((args, kwargs, result)))
            for func, args, kwargs, result in self._calls
            if not func.is_view
        ]

    def undo(self):
        """Give all that was written what it held before."""
        for storage, value in self._before.values():
            storage.copy_(value)
        self._before.clear()

    def forget_outside(self):
        """Keep the addresses alone of what was not made here."""

        def known(tensor):
            outside = _place(tensor) in self._outside and tensor.untyped_storage().nbytes()
            return _Address(tensor) if outside else tensor

        self._calls = [
            (func, *tree_map_only(torch.Tensor, known, (args, kwargs, result)))
            for func, args, kwargs, result in self._calls
        ]

    @torch.no_grad()
    def run(self, noise):
        for func, args, kwargs, result in self._calls:
            args, kwargs, result = tree_map_only(_Address, _Address.read, (args, kwargs, result))
            with torch.utils._python_dispatch._disable_current_modes():
                new = func(*args, **kwargs)
            for place, made in zip(_tensors(result), _tensors(new), strict=True):
                if place.data_ptr() != made.data_ptr():
                    place.copy_(made * (1 + noise * torch.randn(())) if noise and made.is_floating_point() else made)


def _place(tensor):
    return tensor.untyped_storage()._cdata


def _tensors(result):
    found = []
    tree_map_only(torch.Tensor, found.append, result)
    return found
