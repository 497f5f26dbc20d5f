# SPDX-License-Identifier: MIT
"""A tensor of each of B models that ordinary code sees as the tensor of one.

An ordinary model's `forward` knows nothing of B. It is run once, on `ModelTensor`s: `x.shape`, `x.view(x.size(0), -1)`
and `x + self.bias` mean what they mean for one model, and compute on `[B, ...]`. What a torch function does with them
is told by `dnnsuite._fuse`; here is only what the layers must know of them too.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from .._torch import backward_pass, mark_parameter, tree_leaves, wrapper_subclass
from ..errors import InvalidArgument
from ..ops.torch_clip import register
from .computed_once import FUNCTION_STREAM as FUNCTION_STREAM
from .computed_once import call_once, runs_once, spread_all
from .sharing import SharedState, is_frozen

__all__ = ["ModelTensor", "NotFusable", "logical", "physical", "state", "wrap"]


class NotFusable(Exception):
    """Raised by code that cannot run for all models at once; the models of its module run one by one."""


class WritesShared(NotFusable):
    """Each model writes its own values into a tensor that all models share."""


class RunsAnew(NotFusable):
    """A part inside a checkpoint has to run in another way: the forward around the checkpoint starts anew.

    What the checkpoint has noted of the first attempt is not what it would run again.
    """


class Refused(InvalidArgument):
    """Code of a model that has no meaning in an array, nor with its models one by one."""


class Stray(Refused):
    """A parameter that belongs to no module of the array."""


class _State(threading.local):
    """State of the code of models that this thread runs now."""

    def __init__(self) -> None:
        self.B = 0  # models of the array whose forward runs; 0 outside
        self.wary = False  # gradients are wanted
        self.report: Any = None  # takes note of what the module whose code runs cannot fuse
        self.random: Any = None  # draws the random numbers of functions that belong to no layer
        self.making = 0  # 1: each model draws its own numbers, 2: and gets its own of tensors that are made
        self.drew = False  # whether code of the models drew numbers
        self.lent: Any = ()  # what the modules of one of several models hold for this call
        self.checkpoints = 0  # checkpointed parts whose first run is under way
        self.may_stop = False  # a checkpoint runs again, and ends where autograd has all tensors it wants
        self.checkpointed = False  # one of torch's checkpoints was called, by whatever code
        self.pending: list[ModelTensor] = []  # tensors not computed yet, see `Deferred`


state = _State()


def handler(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Carries out `func(*args, **kwargs)` with ModelTensors among the arguments; `dnnsuite._fuse` puts its own here."""
    raise NotFusable(f"{func} before dnnsuite._fuse was imported")


class Deferred:
    """A layer's output not yet computed, so that a following add or activation joins its kernel (`layer.activated`).

    It is that of `x`, plus `residual`, through `activation` (name, slope); `shape` is that of the result, `[B, ...]`.
    Where all models compute the same, `shared` is True: the layer and all of its inputs are then those of one model.
    """

    __slots__ = (
        "activation",
        "device",
        "dtype",
        "grad",
        "layer",
        "residual",
        "shape",
        "shared",
        "taken",
        "x",
    )

    def __init__(
        self,
        layer: Any,
        x: torch.Tensor,
        shape: torch.Size,
        residual: torch.Tensor | None = None,
        activation: tuple[str, float] | None = None,
        shared: bool = False,
    ) -> None:
        self.layer, self.x, self.shape, self.residual = layer, x, shape, residual
        self.activation, self.shared = activation, shared
        self.dtype, self.device, self.grad = x.dtype, x.device, torch.is_grad_enabled()
        self.taken = False  # computed already, with more: what this would change in the layer is changed

    @classmethod
    def of(cls, layer: Any, x: torch.Tensor) -> Deferred:
        """Defer the output of `layer` for `x` `[B, ...]`."""
        if runs_once(layer, (x,), {}):
            return cls(layer.of_one(), x[:1], layer.shape_of_result(x), shared=True)
        return cls(layer, x, layer.shape_of_result(x))

    def plus(self, residual: torch.Tensor) -> Deferred | None:
        """Defer the sum with `residual` `[B, ...]`; None if that is each model's own and this is not."""
        if self.shared:
            if not is_frozen(residual):
                return None
            residual = residual[:1]
        return Deferred(self.layer, self.x, self.shape, residual, shared=self.shared)

    def through(self, activation: tuple[str, float]) -> Deferred:
        """Defer the result of `activation`."""
        return Deferred(self.layer, self.x, self.shape, self.residual, activation, self.shared)

    def given(self, result: Any) -> Any:
        """Show a result of the layer as that of all models."""
        return spread_all(result, self.shape[0]) if self.shared else result

    def compute(self) -> Any:
        """Compute the output now."""
        return self.given(self._computed())

    def _computed(self) -> Any:
        with outside(), torch.set_grad_enabled(self.grad):
            if self.taken:
                result = self.layer.repeated(self.x)
                result = result if self.residual is None else result + self.residual
                return result if self.activation is None else self.layer.activate(result, *self.activation)
            if self.residual is None and self.activation is None:
                return self.layer.forward(self.x)
            more = {} if self.residual is None else {"residual": self.residual}
            return self.layer.activated(self.x, *(self.activation or ("none",)), **more)


class Fresh:
    """Memory of a result that was computed once for all models; `tensors` counts those that show it."""

    __slots__ = ("tensors",)

    def __init__(self) -> None:
        self.tensors = 1


class ModelTensor(torch.Tensor):
    """`[B, *shape]` that says it is `shape`: a tensor without storage whose functions `handler` carries out."""

    _value: torch.Tensor | None
    deferred: Deferred | None
    of_layer = False  # what a layer of ours made: torch's own would be contiguous
    fresh: Fresh | None = None  # set on what was computed once for all models: it may be written into
    unsure = False  # a copy that may be a view in torch: nothing is written into it

    @staticmethod
    def __new__(cls, value: torch.Tensor | None, deferred: Deferred | None = None) -> ModelTensor:
        known: Any = deferred if value is None else value
        self: ModelTensor = wrapper_subclass(cls, known.shape[1:], dtype=known.dtype, device=known.device)
        self._value, self.deferred = value, deferred
        if deferred is not None:
            state.pending.append(self)
        return self

    def __init__(self, value: torch.Tensor | None, deferred: Deferred | None = None) -> None:
        pass

    @property
    def value(self) -> torch.Tensor:
        """The tensor of all models, `[B, ...]`."""
        if self._value is None:
            assert self.deferred is not None
            self._value = self.deferred.compute()
            self.deferred = None
        return self._value

    def become(self, value: torch.Tensor | None, deferred: Deferred | None = None) -> None:
        """Make this tensor another one, as an in-place function does."""
        self._value, self.deferred = value, deferred

    @property
    def B(self) -> int:
        """The number of models."""
        known: Any = self.deferred if self._value is None else self._value
        return int(known.shape[0])

    @property
    def shape(self) -> torch.Size:  # type: ignore[override]
        known: Any = self.deferred if self._value is None else self._value
        return torch.Size(known.shape[1:])

    @property
    def dtype(self) -> torch.dtype:  # type: ignore[override]
        known: Any = self.deferred if self._value is None else self._value
        return known.dtype

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        known: Any = self.deferred if self._value is None else self._value
        return known.device

    @property
    def ndim(self) -> int:  # type: ignore[override]
        return self.dim()

    def dim(self) -> int:
        known: Any = self.deferred if self._value is None else self._value
        return len(known.shape) - 1

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return handler(func, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
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


def wrap_parameter(value: torch.Tensor) -> ModelTensor:
    """Wrap a parameter `[B, ...]` as one model's code sees it, `isinstance(..., Parameter)` included."""
    if type(value) is ModelTensor:
        return value
    seen = ModelTensor(value)
    mark_parameter(seen)
    return seen


def ranks_of(module: torch.nn.Module) -> dict[str, int]:
    """Return the number of dimensions, B included, of each tensor that `module` holds itself."""
    held = (*module._parameters.items(), *module._buffers.items())
    return {name: value.dim() for name, value in held if value is not None}


def given_in_forward(value: torch.Tensor, rank: int | None) -> bool:
    """Return True for a tensor that a model's code has put in a parameter's place, as `functional_call` does."""
    return type(value) is ModelTensor or (rank is not None and value.dim() != rank)


def seen_in_forward(module: torch.nn.Module, name: str, value: torch.Tensor, rank: int | None) -> Any:
    """Show a parameter or buffer of `module` as one model's code sees it."""
    if given_in_forward(value, rank):
        return value
    return wrap_parameter(value) if name in module._parameters else ModelTensor(value)


def settle_all() -> None:
    """Compute all deferred tensors, before a layer changes of which they may be the output."""
    pending, state.pending = state.pending, []
    for tensor in pending:
        tensor.value  # noqa: B018


class _GivenTensors:
    """Context manager: tensors that a model's code put in the place of parameters are `[B, ...]` in it."""

    def __init__(self, layer: torch.nn.Module, B: int) -> None:
        self.B = B
        self.found: list[tuple[dict[str, Any], str, torch.Tensor]] = [
            (held, name, value)
            for module in (layer.modules() if layer._modules else (layer,))
            for held in (module._parameters, module._buffers)
            for name, value in held.items()
            if value is not None and given_in_forward(value, module.__dict__.get("_ranks", {}).get(name))
        ]

    def __enter__(self) -> None:
        for held, name, value in self.found:
            held[name] = expanded(value, self.B)

    def __exit__(self, *error: Any) -> None:
        for held, name, value in self.found:
            held[name] = value


class OwnTensors(SharedState):
    """Mixed into modules of an array: code of one model that goes through their parameters sees one model's."""

    def __new__(cls, *_: Any, **__: Any) -> Any:
        layer = super().__new__(cls)
        register(layer)  # type: ignore[arg-type]
        return layer

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        for name, value in super().named_parameters(*args, **kwargs):  # type: ignore[misc]
            yield name, wrap_parameter(value) if state.B else value

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        for name, value in super().named_buffers(*args, **kwargs):  # type: ignore[misc]
            if not state.B:
                yield name, value
            elif not name.endswith(FUNCTION_STREAM):
                yield name, ModelTensor(value)


def set_in_forward(module: torch.nn.Module, B: int, name: str, value: torch.Tensor) -> None:
    """Set an attribute of a module of B models from the code of one model.

    Raises:
        NotFusable: for another tensor in place of a parameter.
    """
    held = module.__dict__
    if name in held["_parameters"]:
        if type(value) is not ModelTensor or value._value is not held["_parameters"][name]:
            raise NotFusable(f"it assigns the parameter {name} of a {type(module).__name__} in the forward")
        return  # of `weight /= 2`: done already
    own = (
        physical(value) if type(value) is ModelTensor else value.unsqueeze(0).expand(B, *value.shape).clone()
    )
    if name in held["_buffers"]:
        held["_buffers"][name] = own.detach()  # in its place, not into it: autograd may have kept the old one
    else:
        held[name] = value  # torch would register what looks like a parameter


def refuse_deletion(module: torch.nn.Module, name: str) -> None:
    """Raise Refused where the code of one model deletes a parameter of all: it could not be put back."""
    if state.B and name in module._parameters:
        raise Refused(
            f"the forward deletes the parameter {name} of a {type(module).__name__}: leave it there and compute with "
            "another one by torch.nn.functional or torch.func.functional_call, or use torch.nn.utils.parametrize"
        )


def wrap(value: Any) -> Any:
    """Wrap a tensor `[B, ...]` as one model's code sees it; leave anything else as it is."""
    return ModelTensor(value) if isinstance(value, torch.Tensor) and type(value) is not ModelTensor else value


def physical(value: Any) -> Any:
    """Unwrap a ModelTensor to `[B, ...]`; leave anything else as it is."""
    return value.value if type(value) is ModelTensor else value


def check_stray(value: torch.Tensor) -> None:
    """Refuse a parameter that code reaches past its module: it would be one of all models, or of the first."""
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
            f"a parameter {list(value.shape)} that is no attribute of a module is used, perhaps from a closure: it "
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


def _any_model_tensor(args: Any) -> bool:
    return any(type(a) is ModelTensor or (type(a) in (tuple, list) and _any_model_tensor(a)) for a in args)


def wrap_all(output: Any) -> Any:
    """Wrap the tensors `[B, ...]` in a (named) tuple, list or dictionary of results as one model's code sees them."""
    if isinstance(output, torch.Tensor):
        return wrap(output)
    if isinstance(output, PackedSequence):
        return output._replace(data=wrap(output.data))
    if isinstance(output, (tuple, list)):
        items = [wrap_all(o) for o in output]
        # Named tuples take their fields one by one, torch.return_types.max and its like as a sequence.
        return type(output)(*items) if hasattr(output, "_fields") else type(output)(items)
    if isinstance(output, dict):
        return {name: wrap_all(value) for name, value in output.items()}
    return output


class outside:
    """Context manager: run a layer's own code, which works on `[B, ...]`."""

    __slots__ = ("B",)

    def __enter__(self) -> None:
        self.B, state.B = state.B, 0

    def __exit__(self, *error: Any) -> None:
        state.B = self.B


def mark_fresh(result: ModelTensor, args: Any) -> None:
    """Note that a `result` that all models share may be written into, as what it is a view of may be, if it is one."""
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


def logical(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Make a layer's `forward` on `[B, ...]` callable from an ordinary model's code too."""

    @functools.wraps(forward)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not state.B and not _any_model_tensor(args):
            return call_once(forward, self, args, kwargs)
        B = self.B
        given = _GivenTensors(self, B)
        if given.found:
            with given:
                return _called(forward, self, B, args, kwargs)
        if self.activations and state.B and len(args) == 1 and not kwargs and type(args[0]) is ModelTensor:
            deferred = Deferred.of(self, args[0].value)
            result = ModelTensor(None, deferred)
            result.of_layer = True
            if deferred.shared:
                result.fresh = Fresh()
            return result
        if len(args) == 1 and not kwargs and type(args[0]) is ModelTensor and args[0].deferred is not None:
            joint = self.joined(args[0].deferred)
            if joint is not None:
                return wrap_all(joint)
        return _called(forward, self, B, args, kwargs)

    return call


def _called(forward: Callable[..., Any], layer: Any, B: int, args: Any, kwargs: dict[str, Any]) -> Any:
    own = tuple(expanded(a, B) for a in args)
    kwargs = {name: expanded(a, B) for name, a in kwargs.items()}
    with outside():
        result = wrap_all(call_once(forward, layer, own, kwargs))
    if type(result) is ModelTensor:
        result.of_layer = True
        mark_fresh(result, args)
        if getattr(layer, "inplace", False) and args and type(args[0]) is ModelTensor:
            args[0].become(result.value)
            return args[0]
    return result
