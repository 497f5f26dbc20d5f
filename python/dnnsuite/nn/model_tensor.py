# SPDX-License-Identifier: MIT
"""Tensors of B models that ordinary code sees as the tensor of one.

An ordinary model's `forward` has no dimension for B. It runs once, on `ModelTensor`s: `x.shape`, `x.view(x.size(0),
-1)` and `x + self.bias` have their meaning for one model, and compute on `[B, ...]`. The rules for torch functions are
in `dnnsuite._fuse`; this module has only what layers need too.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from .._torch import backward_pass, mark_parameter, tree_leaves, wrapper_subclass
from ..errors import InvalidArgument
from .forward_state import (
    Deferred,
    Fresh,
    Half,
    NotFusable,
    Refused,
    RunsAnew,
    Stray,
    Variable,
    WritesShared,
    can_follow_variables,
    outside,
    state,
)
from .sharing import is_frozen

__all__ = [
    "Deferred", "Fresh", "ModelTensor", "NotFusable", "Refused", "RunsAnew", "Stray", "WritesShared", "check_stray",
    "expanded", "mark_fresh", "outside", "physical", "settle_all", "state", "wrap", "wrap_all", "wrap_parameter",
]  # fmt: skip


def handler(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call `func(*args, **kwargs)` with ModelTensors among the arguments; `dnnsuite._fuse` replaces this function."""
    raise NotFusable(f"{func} before dnnsuite._fuse was imported")


class ModelTensor(torch.Tensor):
    """Tensor `[B, *shape]` that reports `shape`; it has no storage, and `handler` carries out its functions."""

    _value: torch.Tensor | None
    _shape: torch.Size
    _dtype: torch.dtype
    _device: torch.device
    deferred: Deferred | None
    of_layer = False  # what a layer of ours made: torch's own would be contiguous
    fresh: Fresh | None = None  # set on what was computed once for all models: it may be written into
    half_of: Half | None = None  # set on the halves of a tensor, until it is another value
    unsure = False  # a copy that may be a view in torch: nothing is written into it

    @staticmethod
    def __new__(cls, value: torch.Tensor | None, deferred: Deferred | None = None) -> ModelTensor:
        known: Any = deferred if value is None else value
        shape, dtype, device = known.shape[1:], known.dtype, known.device
        self: ModelTensor = wrapper_subclass(cls, shape, dtype=dtype, device=device)
        self._value, self.deferred = value, deferred
        # A look at a tensor is a call of a function to the modes that look out for these: one look is enough.
        self._shape, self._dtype, self._device = shape, dtype, device
        if deferred is not None:
            state.pending.append(self)
        return self

    @property
    def value(self) -> torch.Tensor:
        """Tensor of all models, `[B, ...]`."""
        if self._value is None:
            assert self.deferred is not None
            self.become(self.deferred.compute())
            assert self._value is not None
        return self._value

    def become(self, value: torch.Tensor | None, deferred: Deferred | None = None) -> None:
        """Replace this tensor's value, as an in-place function does."""
        self._value, self.deferred = value, deferred
        known: Any = deferred if value is None else value
        self._shape, self._dtype, self._device = known.shape[1:], known.dtype, known.device

    @property
    def B(self) -> int:
        """Number of models."""
        known: Any = self.deferred if self._value is None else self._value
        return int(known.shape[0])

    @property
    def shape(self) -> torch.Size:  # type: ignore[override]
        return self._shape

    @property
    def dtype(self) -> torch.dtype:  # type: ignore[override]
        return self._dtype

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self._device

    @property
    def ndim(self) -> int:  # type: ignore[override]
        return self.dim()

    def dim(self) -> int:
        return len(self._shape)

    def size(self, dim: int | None = None) -> Any:
        return self._shape if dim is None else self._shape[dim]

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return handler(func, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten.detach.default and state.B and can_follow_variables:
            return _variable(args[0])
        raise NotFusable(f"{func} is reached past torch's functions")

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def __iter__(self) -> Any:
        return iter(handler(torch.Tensor.unbind, (self, 0), {}))

    def __repr__(self, **kwargs: Any) -> str:  # type: ignore[override]
        return f"ModelTensor({list(self.shape)} of each of {self.B} models: {self.value!r})"

    def __hash__(self) -> int:
        return id(self)

    def __deepcopy__(self, memo: Any) -> ModelTensor:
        return ModelTensor(self.value.clone())

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle what code has left in an attribute; in a forward, `copy.copy` is a function like others."""
        if state.B:
            return handler(torch.Tensor.__reduce_ex__, (self, protocol), {})
        return ModelTensor, (self.value.detach(),)


def _variable(source: ModelTensor) -> ModelTensor:
    """Make `torch.autograd.Variable(source)`, in the memory of `source`.

    Nothing is computed now: below torch's functions the recorder of a step would not see it.
    """
    layer = Variable()
    known: Any = source.deferred if source._value is None else source._value
    layer.seen = seen = ModelTensor(None, Deferred(layer, source, known.shape))
    seen.fresh = source.fresh
    if seen.fresh is not None:
        seen.fresh.tensors += 1
    return seen


def wrap_parameter(value: torch.Tensor) -> ModelTensor:
    """Wrap a parameter `[B, ...]` as one model's code sees it, `isinstance(..., Parameter)` included."""
    if type(value) is ModelTensor:
        return value
    seen = ModelTensor(value)
    mark_parameter(seen)
    return seen


def settle_all() -> None:
    """Compute all deferred tensors, before a change of a layer whose outputs they may be."""
    pending, state.pending = state.pending, []
    for tensor in pending:
        tensor.value  # noqa: B018


def wrap(value: Any) -> Any:
    """Wrap a tensor `[B, ...]` as one model's code sees it; leave anything else as it is."""
    return ModelTensor(value) if isinstance(value, torch.Tensor) and type(value) is not ModelTensor else value


def physical(value: Any) -> Any:
    """Unwrap a ModelTensor to `[B, ...]`; leave anything else as it is."""
    return value.value if type(value) is ModelTensor else value


def check_stray(value: torch.Tensor) -> None:
    """Refuse a parameter that code reaches past its module: it would be all models' `[B, ...]`, or the first
    model's."""
    if type(value) is ModelTensor or not isinstance(value, torch.nn.Parameter):
        return
    if not state.B and backward_pass() != -1:
        raise InvalidArgument(
            f"a parameter {list(value.shape)} is read in a backward pass, where a checkpoint runs a forward again: use "
            "dnnsuite.nn.checkpoint in place of torch.utils.checkpoint.checkpoint"
        )
    owner, B = state.random, state.B
    with outside():
        stray = isinstance(owner, torch.nn.Module) and not any(p is value for p in owner.parameters())
    if stray and B != 1:
        raise Stray(
            f"a parameter {list(value.shape)} that is not an attribute of a module is used, perhaps from a closure: it "
            "would be the first model's for all of them; hold it as an attribute"
        )
    raise NotFusable(f"a parameter {list(value.shape)} is reached through a plain list or the like")


def expanded(value: Any, B: int) -> Any:
    """Unwrap a ModelTensor for a layer of B models, or expand a tensor that all models share, without a copy."""
    if type(value) is ModelTensor:
        return value.value
    if isinstance(value, torch.Tensor):
        check_stray(value)
        return value.unsqueeze(0).expand(B, *value.shape)
    if type(value) in (tuple, list):
        return type(value)(expanded(v, B) for v in value)
    if isinstance(value, PackedSequence):
        return value._replace(data=expanded(value.data, B))
    return value


def wrap_all(output: Any) -> Any:
    """Wrap the tensors `[B, ...]` in a (named) tuple, list or dictionary of results as one model's code sees them."""
    if isinstance(output, torch.Tensor):
        return output if type(output) is ModelTensor else ModelTensor(output)
    if isinstance(output, PackedSequence):
        return output._replace(data=wrap(output.data))
    if isinstance(output, (tuple, list)):
        items = [wrap_all(o) for o in output]
        # Named tuples take their fields one by one, torch.return_types.max and its like as a sequence.
        return type(output)(*items) if hasattr(output, "_fields") else type(output)(items)
    if isinstance(output, dict):
        return {name: wrap_all(value) for name, value in output.items()}
    return output


def mark_fresh(result: ModelTensor, args: Any) -> None:
    """Allow writes into a shared `result`; into a view only if its source allows them."""
    if not is_frozen(result.value):
        return
    place = result.value.untyped_storage().data_ptr()
    for arg in tree_leaves(args):
        if isinstance(arg, torch.Tensor) and physical(arg).untyped_storage().data_ptr() == place:
            result.fresh = getattr(arg, "fresh", None)
            if result.fresh is not None:
                result.fresh.tensors += 1
            return
    result.fresh = Fresh()
