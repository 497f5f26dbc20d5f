# SPDX-License-Identifier: MIT
"""Array of models: B of one architecture, trained as one module."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from .. import _memory as memory
from .. import _under_way as under_way
from ..errors import InvalidArgument
from ..nn.array_module import ArrayModule
from ..nn.random_streams import FUNCTION_STREAM, new_stream
from ..nn.sharing import SharedState, copies_of_shared, held_by, own_what_trains
from ..ops.array_layers import here
from .array_attributes import ForwardOfModels, check_of_all_models, check_state, models_have, models_set, registered
from .code.call_user_code import MethodName, enter
from .code.own_values import ASKED, PLAIN_VALUES, bare_class
from .code.user_module import UserModule
from .coverage import Cover, array_html, coverage
from .diverged import show_left, take_from_models
from .edits import ArrayEdit
from .layer_table import CONTAINERS, ELEMENTWISE, refuse_other_forwards, torchs_classes
from .loop_choice import LoopChoice
from .module_copies import copied
from .rebound import refuse_held_in
from .single_model import model_of, modules_below, narrow, parts_of, tensors_below

Models = torch.nn.Module | Sequence[torch.nn.Module]
_WHOLE: tuple[dict[str, Any], ...] = ({}, {"recurse": True})  # arguments of `parameters()` and the like


def _gather(root: torch.nn.Module) -> None:
    """Move layers without parameters to the device of the others. Dropout's rates and keys must be there: a copy in
    each step would be slow, and a CUDA graph cannot hold one."""
    devices = {p.device for p in root.parameters()}
    if len(devices) != 1:
        return
    (device,) = devices
    for module in parts_of(root):
        if isinstance(module, ArrayModule) and next(module.parameters(), None) is None:
            module.to(device)


#: Arrays that have been trained by hand; what they hold is no state of theirs, which copies would share.
_pooled: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
_read: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()  # of which attributes were read since the last call


class Array(SharedState, torch.nn.Module):
    """B models of one architecture as one module, on inputs and outputs `[B, ...]`; made by `fuse`.

    Parameters, buffers and `state_dict` keep the models' names and are stacked on dimension 0. `array[i]` is a copy of
    model i as an ordinary torch module. `drop`, `append`, `replace` and `clone` change the set of models, each at the
    cost of one copy of the parameters; pass them the optimizer, scheduler and scaler, so that these change too.

    On a CPU an array that is trained without a `StepRunner` keeps the memory pool that `StepRunner` describes: from the
    first call of its forward, another method or a part with gradients enabled, until it is garbage-collected. Without
    the pool, every step would page large tensors in again.
    """

    B: int
    _root: torch.nn.Module

    def __init__(self, root: torch.nn.Module, B: int) -> None:
        super().__init__()
        self.B = B
        # One set of dictionaries: a parameter's name is the one it has in the user's model.
        self._parameters, self._buffers, self._modules = root._parameters, root._buffers, root._modules
        self.__dict__["_root"] = root
        self.training = root.training
        first = next(iter(root.parameters()), None)
        _gather(root)
        root.register_buffer(FUNCTION_STREAM, new_stream(B, None if first is None else first.device), persistent=False)
        self._non_persistent_buffers_set = root._non_persistent_buffers_set

    # -- running ---------------------------------------------------------------------------------------------------

    @ForwardOfModels
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute each model's outputs from its part of the inputs `[B, ...]`."""
        if torch.compiler.is_compiling():
            return self._at_once(*args, **kwargs)
        under_way.finish_to_compute(self)
        if self in _read:  # a tensor may have been put into what was read
            refuse_held_in(self._root)
            _read.discard(self)
        refuse_other_forwards(self._looked_up[2])
        self._hold_pool()
        here.forwards += 1
        try:
            return self._choice.call(args, kwargs, self._at_once)
        finally:
            here.forwards -= 1

    def _hold_pool(self) -> None:
        """Hold the memory pool from now on, if the array is trained on a CPU without a runner."""
        if self in _pooled or not torch.is_grad_enabled() or self._choice.forced or self._choice.in_step:
            return
        _pooled.add(self)
        if all(p.device.type == "cpu" for p in self._root.parameters()):
            memory.hold_while(self)

    def _at_once(self, *args: Any, **kwargs: Any) -> Any:
        as_it_is, shares, _ = self._looked_up
        if shares:
            own_what_trains(self._root)
            as_it_is = self.B == 1 and self._looked_up[0]
        if as_it_is and not any(
            m._forward_hooks or m._forward_pre_hooks or "forward" in vars(m) for m in self._root.modules()
        ):
            return self._root(*args, **kwargs)
        return enter(self, self._root, self.B, args, kwargs)

    @property
    def _choice(self) -> LoopChoice:
        found: LoopChoice | None = self.__dict__.get("_fused_choice")
        if found is None:
            found = self.__dict__["_fused_choice"] = LoopChoice(self._root, self.B)
        return found

    @property
    def _looked_up(self) -> tuple[bool, bool, frozenset[Any]]:
        """(every part is a layer of `dnnsuite.nn`, so that no tensor has to be wrapped as one model's; some state is
        held once, so that results of it alone are computed once; torch's classes of layers), looked up once."""
        found: tuple[bool, bool, frozenset[Any]] | None = self.__dict__.get("_plain")
        if found is None:
            as_it_is = all(
                isinstance(m, ArrayModule)
                or type(m) in ELEMENTWISE
                or type(m) in CONTAINERS
                or (isinstance(m, UserModule) and not m._fused_code)
                for m in parts_of(self._root)
            )
            shares = any(True for module in self._root.modules() for _ in held_by(module))
            found = self.__dict__["_plain"] = as_it_is, shares, torchs_classes(parts_of(self._root))
        return found

    def __getattr__(self, name: str) -> Any:
        done = under_way.finish(self)  # a step changes parameters and buffers, and what a forward counts
        if not isinstance(vars(self.__dict__.get("_root", self)).get(name), PLAIN_VALUES[:-1]):
            _read.add(self)  # all but numbers and texts may hold what the reader puts there
        choice = self.__dict__.get("_fused_choice")
        if choice is not None and choice.shown != choice.runs:
            choice.shown = choice.runs
            show_left(self)
        try:
            found = super().__getattr__(name)
        except AttributeError:
            if "_root" not in self.__dict__:
                raise
        else:
            if not done and isinstance(found, (torch.nn.Module, torch.nn.Parameter)):
                under_way.finish_to_compute(self)
            if isinstance(found, torch.nn.Module):  # perhaps to be called
                self._hold_pool()
            return found
        value = getattr(self._root, name)
        if callable(value) and getattr(value, "__self__", None) is self._root:
            return self._method(name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute: in every model if the models have it, else in the array alone.

        Raises:
            InvalidArgument: a layer that is not one of B models, or a parameter or buffer that is not `[B, ...]`.
        """
        root = self.__dict__.get("_root")
        if root is None or name in self.__dict__ or (hasattr(type(self), name) and not models_set(root, name)):
            super().__setattr__(name, value)
        elif isinstance(value, (torch.nn.Parameter, torch.nn.Module)) or name in registered(root):
            check_of_all_models(name, value, self.B)
            setattr(root, name, value)
            self.__dict__.pop("_plain", None)
        elif models_have(root, name):
            under_way.finish(self)
            setattr(root, name, value)  # the models' code may look at it
        else:
            self.__dict__[name] = value

    def __delattr__(self, name: str) -> None:
        root = self.__dict__.get("_root")
        if root is None or name in self.__dict__ or not models_have(root, name):
            super().__delattr__(name)
        else:
            delattr(root, name)

    def _method(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap another method of the user's model, to be called as `forward` is."""
        users = isinstance(self._root, UserModule) and self._root._fused_code

        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            under_way.finish_to_compute(self)
            refuse_other_forwards(self._looked_up[2])
            self._hold_pool()
            if not users:
                return enter(self, method, self.B, args, kwargs)
            return self._choice.call((MethodName(name), *args), kwargs, self._at_once)

        return call

    # -- as a module -----------------------------------------------------------------------------------------------

    def train(self, mode: bool = True) -> Array:
        self._root.train(mode)
        self.training = mode
        return self

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Array:
        under_way.finish(self)
        self._root._apply(fn, recurse)
        return self

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, torch.nn.Parameter]]:
        under_way.finish_to_compute(self)
        if args or kwargs not in _WHOLE:
            return super().named_parameters(*args, **kwargs)
        return iter(tensors_below(self, "_parameters"))  # type: ignore[arg-type]

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, torch.Tensor]]:
        under_way.finish(self)
        if args or kwargs not in _WHOLE:
            return super().named_buffers(*args, **kwargs)
        return iter(tensors_below(self, "_buffers"))

    def named_modules(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, torch.nn.Module]]:
        under_way.finish(self)
        if args or kwargs:
            return super().named_modules(*args, **kwargs)
        return iter(modules_below(self))

    def named_children(self) -> Iterator[tuple[str, torch.nn.Module]]:
        under_way.finish(self)
        return super().named_children()

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        under_way.finish(self)
        return self._root.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        under_way.finish(self)
        check_state(self, state_dict)
        return self._root.load_state_dict(state_dict, strict, assign)

    def model_state_dict(self, index: int) -> dict[str, torch.Tensor]:
        """Return the `state_dict` of model `index`, as views of the array's."""
        index = self._index(index)
        held = self.state_dict()
        # What is no tensor is the extra state of a module, which all models share, as sparse buffers.
        of_each = {name: isinstance(v, torch.Tensor) and v.layout == torch.strided for name, v in held.items()}
        return {name: v[index] if of_each[name] else v for name, v in held.items()}

    @property
    def single_name(self) -> str:
        """Name of the class of one model."""
        return bare_class(self._root).__name__

    def extra_repr(self) -> str:
        return f"{self.single_name}, B={self.B}"

    def __getstate__(self) -> dict[str, Any]:
        under_way.finish(self)
        take_from_models(self)
        return vars(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        self.__getstate__()
        copies_of_shared(self, memo)
        return copied(self, memo)

    # -- the models ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.B

    def __iter__(self) -> Any:
        return (self[index] for index in range(self.B))

    def __getitem__(self, index: int) -> torch.nn.Module:
        """Copy model `index` into an ordinary torch module."""
        under_way.finish(self)
        take_from_models(self)
        index = self._index(index)
        return self._finished(model_of(self._root, index), index)

    def _finished(self, model: torch.nn.Module, index: int) -> torch.nn.Module:
        """Complete the copy of model `index`; for subclasses that keep parts of their models elsewhere."""
        return model

    def _index(self, index: int) -> int:
        index = getattr(index, "tolist", lambda: index)()  # of torch's and NumPy's numbers, for example argmin
        if isinstance(index, bool) or not isinstance(index, int) or not -self.B <= index < self.B:
            some = ": for several write [array[i] for i in ...]" if isinstance(index, slice) else ""
            raise InvalidArgument(f"there is no model {index!r} in an array of {self.B}{some}")
        return index % self.B

    def drop(self, indices: int | Iterable[int], *companions: Any) -> None:
        """Remove models from the array.

        Args:
            indices: number of a model, or several.
            companions: optimizer, scheduler and scaler, which drop the models too.

        Raises:
            InvalidArgument: there is no such model, none would be left, or a companion is missing. Nothing is changed.
        """
        several: Any = indices if getattr(indices, "ndim", isinstance(indices, Iterable)) else [indices]
        gone = {self._index(i) for i in several}
        left = [i for i in range(self.B) if i not in gone]
        if not left:
            raise InvalidArgument(f"drop of all {self.B} models leaves no array")
        self._select(left, {}, companions)

    def append(self, model: Models, *companions: Any, **fresh: Any) -> None:
        """Add a model at the end, or several at once.

        Args:
            model: a plain torch module of the array's architecture, or a list of them.
            companions: optimizer, scheduler and scaler, which add the models too.
            fresh: hyper-parameters for the optimizer, each one number or one per new model.
        """
        models = dict(enumerate(_listed(model), self.B))
        self._select([*range(self.B), *[None] * len(models)], models, companions, fresh)

    def replace(self, index: int | Sequence[int], model: Models, *companions: Any, **fresh: Any) -> None:
        """Put another model into a slot, or several into as many slots; the optimizer starts them from scratch.

        Args:
            index: number of the slot, or a list in ascending order.
            model: a plain torch module of the array's architecture, or a list with one for each slot.
            companions: optimizer, scheduler and scaler.
            fresh: hyper-parameters for the optimizer, each one number or one per new model.
        """
        slots, new = [self._index(i) for i in _listed(index)], _listed(model)
        if slots != sorted(set(slots)) or len(slots) != len(new):
            raise InvalidArgument(
                f"{len(new)} models for the slots {slots}: give one for each, and the slots in ascending order"
            )
        models = dict(zip(slots, new, strict=True))
        self._select([None if i in models else i for i in range(self.B)], models, companions, fresh)

    def clone(self, index: int, *companions: Any, into: int | None = None) -> None:
        """Copy a model, with its state in `companions`, to another slot or to the end.

        Args:
            index: number of the model to copy.
            companions: optimizer, scheduler and scaler.
            into: slot to overwrite; by default a new one at the end.
        """
        slots: list[int | None] = list(range(self.B))
        if into is None:
            slots.append(self._index(index))
        else:
            slots[self._index(into)] = self._index(index)
        self._select(slots, {}, companions)

    def _select(
        self,
        slots: Sequence[int | None],
        models: dict[int, torch.nn.Module],
        companions: Sequence[Any],
        fresh: dict[str, Any] | None = None,
    ) -> None:
        for owner in (self, *companions):
            under_way.finish(owner)
        take_from_models(self)
        ArrayEdit(self, slots, models, companions, fresh or {}).carry_out()
        self.__dict__.pop("_plain", None)
        self.__dict__.pop("_fused_choice", None)

    def narrow(self, start: int, length: int) -> Array:
        """Return an array of the models `start` to `start + length - 1`, which shares their storage."""
        part: Array = narrow(self, start, length)
        return part

    # -- what runs how ---------------------------------------------------------------------------------------------

    def coverage(self) -> list[Cover]:
        """List how each part of the array runs, and the time of the parts that are not fused."""
        return coverage(self)

    def _repr_html_(self) -> str:
        return array_html(self, self._root)

    def per_model(self, name: str, reason: str = ASKED) -> None:
        """From now on run the module `name` of the user's code model by model."""
        module = self._root.get_submodule(name)
        if not isinstance(module, UserModule):
            raise InvalidArgument(
                f"{name!r} is a {type(module).__name__}, which has no code of a user's own: "
                "name it in fuse(models, unfused=...)"
            )
        module._fused_report.reason = module._fused_report.reason or reason


def _listed(value: Any) -> list[Any]:
    """List several values, or a single one."""
    return list(value) if isinstance(value, (list, tuple, range)) else [value]
