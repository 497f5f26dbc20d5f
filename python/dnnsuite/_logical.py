# SPDX-License-Identifier: MIT
"""A tensor of each of B models that ordinary code sees as the tensor of one.

An ordinary model's `forward` knows nothing of B. It is run once, on `ModelTensor`s: `x.shape`, `x.view(x.size(0), -1)`
and `x + self.bias` mean what they mean for one model, and compute on `[B, ...]`. What a torch function does with them
is told by `dnnsuite._fuse`; here is only what the layers must know of them too.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["ModelTensor", "NotFusable", "logical", "physical", "state", "wrap"]


class NotFusable(Exception):
    """What a module does has no meaning for all models at once; its models run one by one."""


class _State(threading.local):
    """What this thread interprets now."""

    def __init__(self) -> None:
        self.B = 0  # models of the array whose forward runs; 0 outside
        self.report: Any = None  # takes note of what the module whose code runs cannot fuse
        self.random: Any = None  # draws the random numbers of functions that belong to no layer
        self.pending: list[ModelTensor] = []  # tensors not computed yet, see `Deferred`


state = _State()

#: What carries out `func(*args, **kwargs)`, some of the arguments being ModelTensors. Set by `dnnsuite._fuse`.
handler: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


class Deferred:
    """A result that waits for what is done with it: one kernel may then do both.

    `shape` and `dtype` are those of the result for all models; `compute` makes it. `parts` is for whoever continues.
    """

    __slots__ = ("compute", "dtype", "grad", "kind", "parts", "shape")

    def __init__(
        self, kind: str, shape: torch.Size, dtype: torch.dtype, parts: Any, compute: Callable[[], torch.Tensor]
    ) -> None:
        self.kind, self.shape, self.dtype, self.parts, self.compute = kind, shape, dtype, parts, compute
        self.grad = torch.is_grad_enabled()


class ModelTensor:
    """`[B, *shape]` that says it is `shape`."""

    __slots__ = ("__weakref__", "_value", "deferred")

    def __init__(self, value: torch.Tensor | None, deferred: Deferred | None = None) -> None:
        self._value, self.deferred = value, deferred
        if deferred is not None:
            state.pending.append(self)

    @property
    def value(self) -> torch.Tensor:
        """The tensor of all models, `[B, ...]`."""
        if self._value is None:
            assert self.deferred is not None
            with torch.set_grad_enabled(self.deferred.grad):
                self._value = self.deferred.compute()
            self.deferred = None
        return self._value

    def put(self, value: torch.Tensor | None, deferred: Deferred | None = None) -> None:
        """Makes this tensor another one, as an in-place function does."""
        self._value, self.deferred = value, deferred

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return handler(func, args, kwargs or {})

    @property
    def __class__(self) -> Any:  # `isinstance(x, torch.Tensor)` is how models ask
        return torch.Tensor

    @property
    def _known(self) -> torch.Tensor | Deferred:
        return self._value if self._value is not None else self.deferred  # type: ignore[return-value]

    @property
    def shape(self) -> torch.Size:
        return torch.Size(self._known.shape[1:])

    @property
    def ndim(self) -> int:
        return len(self._known.shape) - 1

    @property
    def dtype(self) -> torch.dtype:
        return self._known.dtype

    def dim(self) -> int:
        return len(self._known.shape) - 1

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def numel(self) -> int:
        return self.shape.numel()

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(torch.Tensor, name)
        if callable(attribute):
            return functools.partial(_method, attribute, self)
        return handler(attribute.__get__, (self,), {})

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def __iter__(self) -> Any:
        return iter(handler(torch.Tensor.unbind, (self, 0), {}))

    def __repr__(self) -> str:
        return f"ModelTensor({list(self.shape)} of each of {self.value.size(0)} models: {self.value!r})"

    def __hash__(self) -> int:
        return id(self)


def _method(func: Any, self: ModelTensor, *args: Any, **kwargs: Any) -> Any:
    return handler(func, (self, *args), kwargs)


def _operator(name: str) -> Any:
    func = getattr(torch.Tensor, name)

    def method(self: ModelTensor, *args: Any) -> Any:
        return handler(func, (self, *args), {})

    method.__name__ = name
    return method


for _name in (
    "add radd iadd sub rsub isub mul rmul imul truediv rtruediv itruediv floordiv rfloordiv mod rmod pow rpow ipow "
    "matmul rmatmul neg pos abs invert and rand or ror xor rxor eq ne lt le gt ge getitem setitem "
    "bool int float index"
).split():
    if hasattr(torch.Tensor, f"__{_name}__"):
        setattr(ModelTensor, f"__{_name}__", _operator(f"__{_name}__"))


def wrap(value: Any) -> Any:
    """A tensor `[B, ...]` as seen by one model's code; anything else as it is."""
    return ModelTensor(value) if type(value) is torch.Tensor or isinstance(value, torch.nn.Parameter) else value


def physical(value: Any) -> Any:
    """`[B, ...]` of a ModelTensor; anything else as it is."""
    return value.value if type(value) is ModelTensor else value


def check_stray(value: torch.Tensor) -> None:
    """Refuses a parameter that code reaches past its module: it would be one of all models, or of the first."""
    if isinstance(value, torch.nn.Parameter) and type(value) is not ModelTensor:
        raise NotFusable(
            f"a parameter {list(value.shape)} is reached past its module, in a closure or a plain list; hold it as an "
            "attribute or in a ParameterList"
        )


def expanded(value: Any, B: int) -> Any:
    """A tensor for a layer of B models: a ModelTensor's value, or one tensor that all models share, not copied."""
    if type(value) is ModelTensor:
        return value.value
    if isinstance(value, torch.Tensor):
        check_stray(value)
        return value.unsqueeze(0).expand(B, *value.shape)
    if type(value) in (tuple, list):
        return type(value)(expanded(v, B) for v in value)
    return value


def _any_model_tensor(args: Any) -> bool:
    return any(type(a) is ModelTensor or (type(a) in (tuple, list) and _any_model_tensor(a)) for a in args)


def _wrapped(output: Any) -> Any:
    if isinstance(output, torch.Tensor):
        return ModelTensor(output)
    if isinstance(output, (tuple, list)):
        items = [_wrapped(o) for o in output]
        return type(output)(*items) if hasattr(output, "_fields") else type(output)(items)
    if isinstance(output, dict):
        return {name: _wrapped(value) for name, value in output.items()}
    return output


class outside:
    """A layer's own code: it works on `[B, ...]`."""

    __slots__ = ("B",)

    def __enter__(self) -> None:
        self.B, state.B = state.B, 0

    def __exit__(self, *error: Any) -> None:
        state.B = self.B


def logical(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A layer's `forward` on `[B, ...]`, callable also from an ordinary model's code."""

    @functools.wraps(forward)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not state.B and not _any_model_tensor(args):
            return forward(self, *args, **kwargs)
        B = self.B
        args = tuple(expanded(a, B) for a in args)
        kwargs = {name: expanded(a, B) for name, a in kwargs.items()}
        with outside():
            return _wrapped(forward(self, *args, **kwargs))

    return call
