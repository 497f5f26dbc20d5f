# SPDX-License-Identifier: MIT
"""Base of every array layer: `B`, one constructor for array and plain layer, conversion to and from torch."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import torch
from torch.overrides import TorchFunctionMode

from .._shown import shown
from ..errors import InvalidArgument
from .forward_state import Deferred, state
from .model_tensor import settle_all
from .own_tensors import (
    OwnTensors,
    logical,
    ranks_of,
    refuse_deletion,
    seen_in_forward,
    set_in_forward,
    shown_as_torchs,
)
from .sharing import alike, layer_of_one, lent, shareable

#: What to do with models of different shapes.
GROUP = "; the models of one array must have the same shape: group them by shape, and fuse each group"

#: Endings of the tensors that torch's old weight_norm and spectral_norm, and pruning, make a tensor of.
REMADE = ("g", "v", "orig", "u", "mask")

ArrayT = TypeVar("ArrayT", bound="ArrayModule")


def made_of_others(layer: torch.nn.Module) -> list[str]:
    """List the tensors of a layer that are made of others before each forward, as torch's old weight_norm does."""
    held = [name.rpartition("_") for name in (*layer._parameters, *layer._buffers)]
    stems = {stem for stem, _, end in held if end in REMADE}
    return [name for name in vars(layer) if name in stems] if stems else []


class _ArrayMeta(type):
    """Metaclass: `Linear(3, 4)` makes torch's layer, `Linear(3, 4, B=8)` an array of eight.

    The choice is made in `__call__` and not in `__new__`, because copy and pickle call `__new__` without arguments.
    """

    def __call__(cls, *args: Any, B: int = 0, **kwargs: Any) -> Any:
        check_width(B)
        if B == 0:
            return cls.torch_class(*args, **kwargs)  # type: ignore[attr-defined]
        layer = super().__call__(*args, B=B, **kwargs)
        layer.__dict__["_ranks"] = ranks_of(layer)
        return layer

    @property
    def __signature__(cls) -> inspect.Signature:
        """Constructor's arguments: its own, or torch's and B where it hands them on."""
        own = inspect.signature(cls.__init__)  # type: ignore[misc]
        shown = list(own.parameters.values())[1:]
        torchs = getattr(cls, "torch_class", None)
        if isinstance(torchs, type) and any(p.kind is p.VAR_POSITIONAL for p in shown):
            given = list(public_arguments(inspect.signature(torchs)).parameters.values())
            shown = [*given, *(p for p in shown if p.name == "B")]
            shown.sort(key=lambda p: p.kind)
        return inspect.Signature([p.replace(default=0) if p.name == "B" else p for p in shown])


def public_arguments(signature: inspect.Signature) -> inspect.Signature:
    """Leave out arguments such as an embedding's `_weight`, which is that of one model."""
    shown = [p for p in signature.parameters.values() if not p.name.startswith("_")]
    return signature.replace(parameters=shown)


class MoreState(InvalidArgument):
    """Raised for a torch layer with a tensor that the array layer has no place for: one that was added, or is of other
    sizes than the layer says, as after pruning."""


def check_width(B: int) -> None:
    """Refuse a `B` that is not a number of models."""
    if isinstance(B, bool) or not isinstance(B, int) or B < 0:
        raise InvalidArgument(f"B must be a whole number of models, 0 (plain torch) or more; got {B!r}")


class Undrawn(TorchFunctionMode):
    """Function mode that skips the initial values of a layer's parameters, which would advance torch's generator for
    nothing."""

    here = threading.local()

    def __enter__(self) -> Any:
        self.before, self.here.active = skips_initial_values(), True
        return super().__enter__()

    def __exit__(self, *raised: Any) -> None:
        self.here.active = self.before
        super().__exit__(*raised)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init" or func in _DRAWN:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def skips_initial_values() -> bool:
    """Return True while layers are made whose parameters are then loaded."""
    return getattr(Undrawn.here, "active", False)


_DRAWN = (torch.Tensor.uniform_, torch.Tensor.normal_)


def _bare(kind: type[ArrayModule]) -> ArrayModule:
    return kind.__new__(kind)


class ArrayModule(OwnTensors, torch.nn.Module, metaclass=_ArrayMeta):
    """Layer of `B` models. Dimension 0 of every parameter, buffer, input and output indexes the models.

    Parameters are `[B, ...]`, exactly what `torch.func.stack_module_state` returns for B layers of `torch_class`. So a
    `state_dict` has torch's keys, and can be stacked or sliced without code for each layer.
    """

    torch_class: ClassVar[Callable[..., torch.nn.Module]]
    #: The constructor's arguments that a layer keeps under their names.
    arguments: ClassVar[tuple[str, ...] | None] = None
    shared_buffers: ClassVar[tuple[str, ...]] = ()  # buffers that all models share and that have no dimension for them
    #: Attributes of a layer of `torch_class` that its constructor sets although the class has them.
    set_by_constructor: ClassVar[frozenset[str]] = frozenset()
    #: Attributes that are lists with one value per model.
    per_model_lists: ClassVar[tuple[str, ...]] = ()
    #: Arguments that may differ between the models of an array and so become one value per model.
    per_model_arguments: ClassVar[tuple[str, ...]] = ()
    #: Arguments with a value per model in a buffer, which the layer reads again after a write to it.
    reread: ClassVar[frozenset[str]] = frozenset()
    #: Activations that `activated(x, name, ...)` computes in the layer's own pass.
    activations: ClassVar[frozenset[str]] = frozenset()
    #: Whether `activated` adds a `residual` before the activation.
    adds_residual: ClassVar[bool] = False
    #: True for a random stream whose place among those of a model is its name, not its number: other arrays lack it.
    seeded_by_name: bool = False
    B: int

    def __init__(self, B: int) -> None:
        torch.nn.Module.__init__(self)  # not that of a class of torch's which an array layer is, too
        self.B = B

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """Class that others' code sees: `isinstance(layer, torch.nn.Linear)` is true in a forward, and in scripts that
        look for layers in `modules()` to freeze, to switch or to start them anew."""
        own = type(self)
        seen = own.__dict__.get("torch_class")
        return seen if isinstance(seen, type) else own

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Save the layer's own class: pickle compares it with `__class__` where it makes objects by `__new__`."""
        reduced: Any = super().__reduce_ex__(protocol)
        return (_bare, *reduced[1:])

    def __getattr__(self, name: str) -> Any:
        value = super().__getattr__(name)
        if state.B and isinstance(value, torch.Tensor) and name not in self.shared_buffers:
            # A user's code that looks into a layer sees one model's weight.
            return seen_in_forward(self, name, value, self.__dict__.get("_ranks", {}).get(name))
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if state.B:
            settle_all()  # what waits is the output of the layer as it was
        if state.B and isinstance(value, torch.Tensor):
            set_in_forward(self, self.B, name, value)
            return
        known = name in self.__dict__
        super().__setattr__(name, value)
        if name != "training" and not isinstance(value, (torch.Tensor, torch.nn.Module)):
            self.__dict__["_last_setting"] = object()  # another one, for those that know the last
            extra = self.__dict__.get("extra_attributes")
            if extra is not None and name in self.__dict__ and (name in extra or not known):  # no property
                self.__dict__["extra_attributes"] = {**extra, name: value}

    def __delattr__(self, name: str) -> None:
        refuse_deletion(self, name)
        if name in self._parameters:  # torch's parametrizations begin with that
            raise InvalidArgument(self._of_another_form([name]))
        super().__delattr__(name)
        self.__dict__.get("extra_attributes", {}).pop(name, None)

    def __init_subclass__(cls, **attributes: Any) -> None:
        """Give a layer its class `attributes`, which may be keywords, and the class of torch that it is named after."""
        super().__init_subclass__()
        for name, value in attributes.items():
            setattr(cls, name, value)
        if "forward" in cls.__dict__:  # callable from an ordinary model's code too
            cls.forward = logical(cls.forward)
        if (
            "torch_class" not in cls.__dict__
            and cls.__module__.startswith(__package__)
            and hasattr(torch.nn, cls.__name__)
        ):
            cls.torch_class = getattr(torch.nn, cls.__name__)  # a layer of this package is named after torch's
        torchs = cls.__dict__.get("torch_class")
        if isinstance(torchs, type):
            cls.forward = shown_as_torchs(cls.forward, torchs)
            space = {"1d": "L", "2d": "H, W", "3d": "D, H, W"}.get(torchs.__name__[-2:])
            if space is not None and cls.__dict__.get("__doc__") is None:
                name = f"`torch.nn.{torchs.__name__}`"
                cls.__doc__ = f"{name} for B models: `[B, N, C, {space}]` or `[B, C, {space}]`."

    @classmethod
    def arguments_of(cls, module: Any) -> dict[str, Any]:
        """Return the constructor arguments that rebuild `module` (a `torch_class`), without device and dtype: by
        default the attributes named in `arguments`, and for a bias whether there is one. None of a layer that is made
        of its parts."""
        values = {name: getattr(module, name) for name in cls.arguments or ()}
        if "bias" in values:
            values["bias"] = values["bias"] if isinstance(values["bias"], bool) else values["bias"] is not None
        return values

    @classmethod
    def from_models(cls: type[ArrayT], models: Sequence[torch.nn.Module]) -> ArrayT:
        """Make an array with copies of the models' parameters and buffers.

        Raises InvalidArgument naming the first argument in which two models differ.
        """
        arguments = merge_arguments(cls, models)
        first = _first_floating(models[0], models[0].state_dict(keep_vars=True))
        where = {} if first is None else {"device": first.device, "dtype": first.dtype}
        kept_once = shareable_state(models)
        if kept_once:  # B of them are not even made for a moment
            cls.prepare_shared(models, kept_once)
            with Undrawn():
                array = cls(**arguments, B=len(models), **{**where, "device": "meta"})
            array.leave_meta(first.device if first is not None else torch.device("cpu"), kept_once)
        else:
            with Undrawn():  # all of them get the models' values
                array = cls(**arguments, B=len(models), **where)
        load_stacked(array, models, kept_once)
        array.train(models[0].training)
        return array

    @classmethod
    def prepare_shared(cls, models: Sequence[Any], kept_once: dict[str, torch.Tensor]) -> None:
        """Give tensors that the models share the memory order that the layer computes in, in the models too; values
        stay."""

    def leave_meta(self, device: torch.device, kept_once: Mapping[str, torch.Tensor]) -> None:
        """Give tensors of a layer made on the meta device their memory; `kept_once` has the shared ones by name."""
        for path, module in self.named_modules():
            for registry in (module._parameters, module._buffers):
                for name, value in registry.items():
                    if value is None or not value.is_meta:
                        continue
                    one = kept_once.get(f"{path}.{name}".lstrip("."))
                    if one is None:
                        made = torch.empty_like(value, device=device)
                    else:
                        made = lent(one, self.B)
                    is_parameter = registry is module._parameters
                    registry[name] = torch.nn.Parameter(made, value.requires_grad) if is_parameter else made
            if isinstance(module, ArrayModule):
                module.renew(device)

    def renew(self, device: torch.device) -> None:
        """Compute again on `device` what the constructor computed on the meta device; for layers that need it."""

    def to_model(self, index: int) -> torch.nn.Module:
        """Copy model `index` into an ordinary torch layer."""
        remade = made_of_others(self)
        if remade:
            raise InvalidArgument(self._of_another_form(remade))
        arguments = self.arguments_of(self)
        for name in self.per_model_arguments:
            arguments[name] = arguments[name][index]
        mine = self.state_dict(keep_vars=True)
        first = _first_floating(self, mine)
        where = {} if first is None else {"device": first.device, "dtype": first.dtype}
        with Undrawn():
            model = type(self).torch_class(**arguments, **where)
        _hold_alike(model, self)
        state = {name: value.detach()[index] for name, value in mine.items()}
        model.load_state_dict(state, strict=False)  # not a counter of batches that was taken away, which torch adds
        for name, parameter in model.named_parameters():
            if parameter.requires_grad != mine[name].requires_grad:
                parameter.requires_grad_(mine[name].requires_grad)
        return model.train(self.training)

    def _of_another_form(self, names: Collection[str]) -> str:
        return (
            f"a fused {type(self).__name__} cannot be another kind of layer after fuse, and torch changes "
            f"{', '.join(sorted(names))} in it: put weight_norm, spectral_norm, pruning or a parametrization on the "
            "models, or take it off, and fuse them again"
        )

    def recorded_values(self) -> tuple[Any, ...]:
        """List the values of per-model lists that a recorded step of this layer depends on."""
        held = [getattr(self, name) for name in self.per_model_lists]
        return tuple(values[0] if values and all(v == values[0] for v in values) else tuple(values) for values in held)

    def is_alike(self) -> bool:
        """Return True if all models now compute the same from one input: they share every tensor, and draw nothing.

        Depends on the mode, so it is evaluated at each call.
        """
        held = (getattr(self, name) for name in self.per_model_lists)
        return alike(self) and all(value == values[0] for values in held for value in values)

    def of_one(self) -> Any:
        """Make the layer of one model that represents all, on the same memory; for layers that are alike."""
        one = layer_of_one(self)
        one.__dict__["B"] = 1
        for name in self.per_model_lists:
            one.__dict__[name] = getattr(self, name)[:1]
        return one

    def leaves_out(self, start: int, length: int) -> bool:
        """Return True if the values in a buffer, which may be written, let the layer leave operators out for these
        models."""
        return False

    def shape_of_result(self, x: torch.Tensor) -> torch.Size:
        """Return the shape of `forward(x)`, for a layer with `activations`."""
        return x.shape

    def before_maximum(self, x: torch.Tensor) -> frozenset[str]:
        """Return the activations, 'none' included, that `maximum(x, activation, slope)` can compute between the layer
        and a maximum over the last dimension."""
        return frozenset()

    def joined(self, waiting: Deferred) -> torch.Tensor | None:
        """Compute this layer together with a deferred input; None if that is not one pass."""
        return None

    def repeated(self, x: torch.Tensor) -> torch.Tensor:
        """Compute `forward(x)` once more, without its changes to the layer."""
        return type(self).forward(self, x)

    def extra_repr(self) -> str:
        each = self.per_model_arguments
        texts = [
            f"{name}={shown(value) if name in each and isinstance(value, list) else repr(value)}"
            for name, value in self.arguments_of(self).items()
        ]
        return ", ".join([*texts, f"B={self.B}"])


def _hold_alike(model: torch.nn.Module, layer: torch.nn.Module) -> None:
    """Let `model` hold the tensors that `layer` holds: they may be gone since, as by `bn.running_mean = None`."""
    parts = dict(model.named_modules())
    for path, held_by_layer in layer.named_modules():
        for kind in ("_buffers", "_parameters"):
            registry = getattr(parts.get(path), kind, {})
            for name, held in getattr(held_by_layer, kind).items():
                if name in registry and held is None:
                    registry[name] = None
                elif name in registry and registry[name] is None:
                    one = held[0].detach().clone()
                    registry[name] = torch.nn.Parameter(one) if kind == "_parameters" else one


def _first_floating(module: torch.nn.Module, state: Mapping[str, torch.Tensor]) -> torch.Tensor | None:
    """Find a tensor with the module's device and dtype: a parameter, else a saved buffer in `state`."""
    tensors = (*module.parameters(), *state.values())
    return next((value for value in tensors if value.is_floating_point() or value.is_complex()), None)


def merge_arguments(cls: type[ArrayModule], models: Sequence[torch.nn.Module]) -> dict[str, Any]:
    """Merge the models' constructor arguments, with a list where `cls` allows a value per model."""
    each = [cls.arguments_of(model) for model in models]
    merged = dict(each[0])
    for name in merged:
        values = [arguments[name] for arguments in each]
        if name in cls.per_model_arguments:
            merged[name] = values
        else:
            for index, value in enumerate(values):
                if value != values[0]:
                    raise InvalidArgument(
                        f"models 0 and {index} differ: {type(models[0]).__name__}.{name} is {values[0]!r} and "
                        f"{value!r}{GROUP}"
                    )
    return merged


def shareable_state(models: Sequence[torch.nn.Module]) -> dict[str, torch.Tensor]:
    """Collect by name the tensors `[...]` of the models' state that are kept once.

    Raises:
        InvalidArgument: if models share a tensor that takes a gradient.
    """
    states = [model.state_dict(keep_vars=True) for model in models]
    found = {}
    for name, value in states[0].items():
        values = [state.get(name) for state in states]
        if shareable(f"{type(models[0]).__name__}.{name}", values):
            found[name] = value.detach() if isinstance(value, torch.nn.Parameter) else value.detach().clone()
    return found


@torch.no_grad()
def load_stacked(array: torch.nn.Module, models: Sequence[torch.nn.Module], kept_once: Collection[str] = ()) -> None:
    """Copy the models' state into the array's, model i to index i of dimension 0, except tensors `kept_once`."""
    own = array.state_dict(keep_vars=True)
    firsts = models[0].state_dict(keep_vars=True)
    for index, model in enumerate(models):
        for name, value in model.state_dict(keep_vars=True).items():
            for what in ("dtype", "device", "requires_grad"):
                if getattr(value, what) != getattr(firsts[name], what):
                    raise InvalidArgument(
                        f"models 0 and {index} differ: {type(model).__name__}.{name}.{what} is "
                        f"{getattr(firsts[name], what)} and {getattr(value, what)}"
                    )
            if name not in own:
                raise MoreState(f"model {index}: {name} is nothing that a {type(model).__name__} of torch has")
            if own[name].shape[1:] != value.shape and value.shape == firsts[name].shape and name not in kept_once:
                raise MoreState(f"model {index}: {name} is {list(value.shape)}, of other sizes than its layer says")
            if name not in kept_once:
                own[name][index].copy_(value)
    for name, parameter in array.named_parameters():
        parameter.requires_grad_(models[0].get_parameter(name).requires_grad)


def per_model(value: float | Sequence[float] | torch.Tensor, B: int, name: str) -> list[float]:
    """Convert `value` to one float for each of the `B` models."""
    if isinstance(value, torch.Tensor):
        value = value.tolist()
    if isinstance(value, (int, float)):
        return [float(value)] * B
    try:
        values = [float(v) for v in value]
    except (TypeError, ValueError):
        raise InvalidArgument(f"{name} is a number, or one per model; got {value!r}") from None
    if len(values) != B:
        raise InvalidArgument(f"{name} has {len(values)} values for {B} models: give one value, or one per model")
    return values


def check_models(x: torch.Tensor, B: int, layer: str, least: int = 2) -> None:
    """Refuse an input whose dimension 0 is not the model, or that has fewer than `least` dimensions."""
    if not isinstance(x, torch.Tensor):
        raise InvalidArgument(f"{layer} takes tensors, got a {type(x).__name__}: torch.as_tensor makes a tensor of it")
    if x.dim() < least or x.size(0) != B:
        raise InvalidArgument(
            f"{layer} holds B={B} models and takes [B, ...] with the model in dimension 0; got {list(x.shape)}. "
            f"A batch that all models share is dnnsuite.stack(x, B={B}), which copies nothing; the loss function of a "
            "StepRunner computes with layers of its first argument only"
        )
