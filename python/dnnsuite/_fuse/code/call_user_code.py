# SPDX-License-Identifier: MIT
"""Calls of a user's code with stacked `[B, ...]` tensors: inputs are wrapped as `ModelTensor`, outputs are unwrapped,
or joined where models ran one by one.

`torch.utils.checkpoint` runs a part of a forward again outside of the forward, where B, the models' random streams and
their draws are no longer known; they are noted in the first run. Both variants of torch's checkpoint are supported.
"""

from __future__ import annotations

import copy
import dataclasses
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from ..._torch import (
    DYNAMO,
    Checkpoints,
    caches_parametrizations,
    not_compiled,
    own_parametrizations,
    tree_flatten,
    tree_map,
    tree_unflatten,
)
from ...errors import InvalidArgument
from ...nn.model_tensor import ModelTensor, NotFusable, RunsAnew, state, wrap
from ...nn.random_streams import noted, repeated
from ...ops.array_layers import here
from ..rules.table import UNDERSTOOD_FUNCTIONS, settle, settle_since
from .draws import StreamDraws, making, watched
from .stand_in import ModelNumber

_KEPT = ("B", "random", "report", "wary")


class _Part:
    """Checkpointed part of a forward: `first` is around its first run, `again` runs it once more."""

    def __init__(self, may_stop: bool) -> None:
        settle()  # what was begun before belongs to no checkpoint
        self._tape: list[Any] = []
        self._held = {name: getattr(state, name) for name in _KEPT} | {"may_stop": may_stop}
        self._making, self._mode = state.making, state.mode

    @contextmanager
    def first(self) -> Iterator[None]:
        mark = len(state.pending)
        state.checkpoints += 1
        try:
            with noted(self._tape):
                yield
                settle_since(mark)
        finally:
            state.checkpoints -= 1

    @contextmanager
    def again(self) -> Iterator[None]:
        mark = len(state.pending)
        try:
            with state.having(**self._held), torchs_checkpoints, repeated(self._tape), self._mode_again():
                yield
                settle_since(mark)
        except NotFusable as error:
            raise InvalidArgument(
                f"a checkpointed part cannot run for all models a second time ({error}): call array.per_model(name) "
                "with the name of the module that calls the checkpoint"
            ) from error
        finally:
            del state.pending[mark:]
            if isinstance(self._mode, StreamDraws):
                self._mode.taken()

    def _mode_again(self) -> AbstractContextManager[Any]:
        if isinstance(self._mode, StreamDraws):
            return self._mode.on()
        return making(self._making == 2) if self._making else nullcontext()


def _without_reentrant(torchs: Callable[..., Any], function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    state.checkpointed = True
    if state.random is None:  # not in a forward of an array on this thread
        return torchs(function, *args, **kwargs)
    return _noting(torchs, function, *args, **kwargs)


def _noting(torchs: Callable[..., Any], function: Callable[..., Any], *args: Any, **kwargs: Any) -> Iterator[None]:
    """Wrap torch's generator around the first run of `function`, and note the state for the second."""
    part = _Part(may_stop=True)

    def again(*inner: Any, **named: Any) -> Any:
        with part.again():
            return function(*inner, **named)

    theirs = torchs(again, *args, **kwargs)
    next(theirs)
    try:
        with part.first():
            yield
    except BaseException as error:
        theirs.throw(error)
        raise
    yield from theirs


def _reentrant(torchs: Callable[..., Any], function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
    """Run torch's autograd.Function on the `[B, ...]` tensors, whose gradients it can track."""
    state.checkpointed = True
    if state.random is None:
        return torchs(function, preserve, *args)
    part = _Part(may_stop=False)
    own = [type(a) is ModelTensor for a in args]
    made: list[bool] = []

    def run(*inner: Any) -> Any:
        with part.again() if made else part.first():
            output = function(*(wrap(a) if mine else a for a, mine in zip(inner, own, strict=True)))
        outputs = output if isinstance(output, tuple) else (output,)
        made[:] = [type(o) is ModelTensor for o in outputs]
        values = tuple(o.value if mine else o for o, mine in zip(outputs, made, strict=True))
        return values if isinstance(output, tuple) else values[0]

    UNDERSTOOD_FUNCTIONS.add(run.__code__)
    output = torchs(run, preserve, *(a.value if mine else a for a, mine in zip(args, own, strict=True)))
    if not isinstance(output, tuple):
        return wrap(output) if made[0] else output
    return tuple(wrap(o) if mine else o for o, mine in zip(output, made, strict=True))


#: Context manager: checkpoints in a forward that runs inside are understood.
torchs_checkpoints = Checkpoints(_without_reentrant, _reentrant)


def start_anew(why: str) -> None:
    """Raise RunsAnew inside a checkpointed part: its notes belong to a run that is discarded."""
    if state.checkpoints:
        raise RunsAnew(why)


class MethodName(str):
    """Name of a method to call in place of `forward`: the first argument of a call of a model."""

    __slots__ = ()


def method_named(args: Sequence[Any]) -> str:
    """Return the name of the method that a call with `args` means; empty for `forward`."""
    return args[0] if args and type(args[0]) is MethodName else ""


def call_model(model: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call a plain model, or the method of it that the first argument names."""
    if caches_parametrizations():
        with own_parametrizations():
            return _called(model, args, kwargs)
    return _called(model, args, kwargs)


def _called(model: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    name = method_named(args)
    return getattr(model, name)(*args[1:], **kwargs) if name else model(*args, **kwargs)


class OfEachModel(list[Any]):
    """Objects of the models that cannot be joined, a cache for example, one of each. As an argument of a later call
    of models one by one, each gets its own."""


def joined(outputs: Sequence[Any], wrap: Callable[[torch.Tensor], Any]) -> Any:
    """Stack the outputs of the models, tensor by tensor; `wrap` is called on each stack `[B, ...]`.

    Raises:
        NotFusable: for outputs of different structure, shape or value.
    """
    if all(isinstance(output, torch.Tensor) for output in outputs):
        return wrap(_stacked(outputs))
    flat = [tree_flatten(output) for output in outputs]
    for index, (_, spec) in enumerate(flat):
        if spec != flat[0][1]:
            raise NotFusable(f"models 0 and {index} give outputs of different structure")
    leaves = zip(*(leaves for leaves, _ in flat), strict=True)
    return tree_unflatten([_leaf(own, wrap) for own in leaves], flat[0][1])


def _stacked(values: Sequence[Any]) -> torch.Tensor:
    values = [value.value if type(value) is ModelTensor else value for value in values]
    for index, value in enumerate(values):
        if value.shape != values[0].shape:
            raise NotFusable(
                f"models 0 and {index} give outputs of different shape: {list(values[0].shape)} and {list(value.shape)}"
            )
    return torch.stack(values)


def _leaf(values: Sequence[Any], wrap: Callable[[torch.Tensor], Any]) -> Any:
    first = values[0]
    if any(isinstance(value, torch.Tensor) for value in values):
        return wrap(_stacked(values))
    if is_record(first) or isinstance(first, torch.distributions.Distribution):
        return _object(values, wrap)
    for index, value in enumerate(values):
        if value is not first and type(value).__eq__ is not object.__eq__ and value != first:
            raise NotFusable(f"models 0 and {index} give different outputs: {first!r} and {value!r}")
    # Objects that cannot be compared, a cache for example, stay each model's own.
    opaque = first is not None and type(first).__eq__ is object.__eq__
    return OfEachModel(values) if opaque else first


def _object(values: Sequence[Any], wrap: Callable[[torch.Tensor], Any]) -> Any:
    """Join objects attribute by attribute."""
    made = copy.copy(values[0])
    for name in vars(made):
        object.__setattr__(made, name, joined([getattr(value, name) for value in values], wrap))
    return made


def is_record(value: Any) -> bool:
    """Return True for a dataclass's object, or a namespace."""
    return type(value) is types.SimpleNamespace or (dataclasses.is_dataclass(value) and not isinstance(value, type))


def names_of_record(value: Any) -> tuple[str, ...]:
    """Name the fields of a record that have a value."""
    if type(value) is types.SimpleNamespace:
        return tuple(vars(value))
    return tuple(field.name for field in dataclasses.fields(value) if hasattr(value, field.name))


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
