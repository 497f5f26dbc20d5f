# SPDX-License-Identifier: MIT
"""Python state around a trial step: saved before it, restored after it.

A step that is run in addition to those asked for must leave the user's objects unchanged: every flag, every list. If a
value cannot be restored, such as an iterator, the trial step is not run.
"""

from __future__ import annotations

import random
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch

from ..._fuse import hooks_in, models_apart, plain_models_of
from ..._state import Contents, Kept, Unknown, keep_names
from ...nn.array_module import ArrayModule
from ...nn.model_tensor import ModelTensor
from .guards import is_state, modules_of
from .value_readers import Reader

_STEPS = __name__.removesuffix("capture.kept_python")
_NAMESPACES = (type, types.ModuleType)


class CannotBeKept(Exception):
    """Raised when a value that a step may change cannot be put back; the message names it."""


class KeptPython:
    """Values of the modules of `array` and of all that `readers` read, with their contents.

    Raises:
        CannotBeKept: one of them could not be restored.
    """

    def __init__(self, array: torch.nn.Module, readers: Iterable[Reader]) -> None:
        named = list(modules_of(array))
        for _, module in named[:]:
            named += models_apart(module)
        self._undo: list[Callable[[], None]] = [
            plain.marks() for _, module in named for plain in plain_models_of(module)
        ]
        bindings = [kept for reader in readers for kept in _bindings(reader)]
        try:
            self._contents = Contents(
                [*(module for _, module in named), *(part for kept in bindings for part in kept.parts)],
                {torch.nn.Module: _module, ModelTensor: _tensor},
                _is_of_steps,
                strict=True,
            )
        except Unknown as error:
            raise CannotBeKept(f"the code can reach {error.what}") from None
        self._contents.add(bindings)
        self._generators = random.getstate(), np.random.get_state(), torch.get_rng_state()

    def put_back(self) -> None:
        """Restore all values."""
        self._contents.restore()
        for undo in reversed(self._undo):
            undo()
        random.setstate(self._generators[0])
        np.random.set_state(self._generators[1])
        torch.set_rng_state(self._generators[2])


def _bindings(reader: Reader) -> Iterator[Kept]:
    """Keep what a reader reads; of a class or a module the values that code names."""
    held = reader.held()
    yield Kept(reader.held, reader.put, lambda content: (content,))
    if isinstance(held, _NAMESPACES):
        names = reader.walk().names
        for name, value in list(vars(held).items()):
            if not name.startswith("__") and (names is None or name in names) and not _is_code(value):
                yield _binding(held, name)


def _binding(owner: Any, name: str) -> Kept:
    return Kept(
        lambda: vars(owner).get(name), lambda value: setattr(owner, name, value), lambda value: (value,)
    )


def _is_code(value: Any) -> bool:
    return isinstance(value, (*_NAMESPACES, types.FunctionType)) or hasattr(type(value), "__get__")


def _is_of_steps(value: Any) -> bool:
    """Return True for a runner and its parts, which code reaches where a trainer holds both: no forward changes them,
    and they hold all recordings."""
    return type(value).__module__.startswith(_STEPS)


def _module(module: torch.nn.Module) -> Iterable[Kept]:
    yield Kept(lambda: None, lambda content: None, lambda content: hooks_in(module))
    if not isinstance(module, ArrayModule):
        yield keep_names(vars(module), _is_kept)


def _tensor(tensor: ModelTensor) -> Iterable[Kept]:
    yield Kept(lambda: tensor.value, tensor.become, lambda value: ())


def _is_kept(name: Any, value: Any) -> bool:
    """Return True for state of the user's, and for a tensor that a forward has left: the next forward may read it."""
    return is_state(name, value) or type(value) is ModelTensor
