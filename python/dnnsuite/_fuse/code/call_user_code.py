# SPDX-License-Identifier: MIT
"""Call a user's per-model code on stacked `[B, ...]` tensors: wrap inputs as `ModelTensor`, unwrap outputs."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from ..._torch import DYNAMO, not_compiled, tree_map
from ...errors import InvalidArgument
from ...nn.model_tensor import ModelTensor, NotFusable, state
from ...ops.array_layers import here
from ..rules.table import settle_since
from .checkpoints import torchs_checkpoints
from .joined_outputs import is_record, names_of_record
from .method_name import method_named
from .model_number import ModelNumber
from .per_model_factories import watched


@not_compiled
def enter(owner: Any, call: Callable[..., Any], B: int, args: Any, kwargs: Any) -> Any:
    """Call code of one model with `[B, ...]` tensors; its results are `[B, ...]` again.

    Under torch.compile it is a graph break: the compiler cannot trace tensors that report another shape than they have.
    """
    global _uncompiled
    if DYNAMO not in sys.modules:
        return _enter(owner, call, B, args, kwargs)
    if _uncompiled is None:
        _uncompiled = torch.compiler.disable(_enter)
    return _uncompiled(owner, call, B, args, kwargs)


_uncompiled: Callable[..., Any] | None = None


def _enter(owner: Any, call: Callable[..., Any], B: int, args: Any, kwargs: Any) -> Any:

    def put_in(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dim() == 0:
            return value
        check_width(value, B)
        return ModelTensor(value)

    def put_in_any(value: Any) -> Any:
        if isinstance(value, PackedSequence):  # its lengths are all models'
            return value._replace(data=put_in(value.data))
        if is_record(value):
            value = copy.copy(value)
            for name in names_of_record(value):
                object.__setattr__(value, name, tree_map(put_in_any, getattr(value, name), is_leaf=_whole))
            return value
        return put_in(value)

    if not kwargs and all(type(a) is torch.Tensor for a in args):
        args = tuple(map(put_in, args))
    else:
        args, kwargs = tree_map(put_in_any, (args, kwargs), is_leaf=_whole)
    before, random = state.B, state.random
    state.B, state.random = B, owner
    here.forwards += 1
    mark = len(state.pending)
    try:
        with torchs_checkpoints:
            output = watched(owner, lambda: _settled(call, mark, args, kwargs), method_named(args))
    except NotFusable as error:
        raise InvalidArgument(f"{type(owner).__name__}: {error}") from error
    finally:
        del state.pending[mark:]
        here.forwards -= 1
        state.B, state.random = before, random
    return taken_out(output, B)


def check_width(value: torch.Tensor, B: int) -> None:
    """Refuse a tensor that is not one of B models."""
    if value.size(0) != B:
        raise InvalidArgument(
            f"the array holds B={B} models and takes [B, ...] with the model in dimension 0; got "
            f"{list(value.shape)}. A batch that all models share is dnnsuite.stack(x, B={B}), which copies nothing"
        )


def _settled(call: Callable[..., Any], mark: int, args: Any, kwargs: Any) -> Any:
    output = call(*args, **kwargs)
    settle_since(mark)
    return output


def _whole(value: Any) -> bool:
    return isinstance(value, PackedSequence)


def taken_out(output: Any, B: int) -> Any:
    """Unwrap results: every ModelTensor becomes `[B, ...]`, every tensor that all models share is expanded to it."""
    if type(output) is ModelTensor:
        return output.value

    def take(value: Any) -> Any:
        if isinstance(value, PackedSequence):
            return value._replace(data=take(value.data))
        if type(value) is ModelTensor:
            return value.value
        if isinstance(value, torch.Tensor):
            return value.unsqueeze(0).expand(B, *value.shape)
        if type(value) is ModelNumber:
            return torch.tensor(list(value))
        if is_record(value):
            for name in names_of_record(value):
                object.__setattr__(value, name, tree_map(take, getattr(value, name), is_leaf=_whole))
        if isinstance(value, torch.distributions.Distribution):
            return _distribution_of(value, B)
        return value

    return tree_map(take, output, is_leaf=_whole)


def _distribution_of(value: torch.distributions.Distribution, B: int) -> torch.distributions.Distribution:
    """Make a distribution over `[B, ...]` from that of one model."""
    value = copy.copy(value)
    for name, held in list(vars(value).items()):
        if type(held) is ModelTensor:
            value.__dict__[name] = held.value
        elif isinstance(held, torch.Tensor):
            value.__dict__[name] = held.unsqueeze(0).expand(B, *held.shape)
        elif isinstance(held, torch.distributions.Distribution):
            value.__dict__[name] = _distribution_of(held, B)
    value._batch_shape = torch.Size((B, *value._batch_shape))
    return value
