# SPDX-License-Identifier: MIT
"""New models of an array: those that are known to fit it, and plain attributes in which models of it differ."""

from __future__ import annotations

import io
import pickle
import types
import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence, Set
from typing import Any

import torch

from ..errors import InvalidArgument
from ..nn.array_module import ArrayModule
from ..nn.random_streams import FUNCTION_STREAM
from ..nn.sharing import held_once
from .code.own_values import StandIns, give_own, is_fused, names_of_own, own_attributes
from .code.user_module import UserModule, make_user_module
from .comparison import REGISTRIES
from .hooks import counterparts
from .layer_table import RULES
from .left_tensors import keeps_more, left_in, one_model, value_of_model
from .module_copies import copied
from .single_model import model_of, modules_below, paths_of, tensors_of_each

_PLAIN = frozenset((bool, int, float, complex, str, bytes, type(None), list, tuple, dict, OrderedDict))
_BY_TEXT = frozenset((torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format))
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)
_HOOKS = REGISTRIES - {"_parameters", "_buffers", "_modules", "training", "_non_persistent_buffers_set"}
_OF_A_LAYER = REGISTRIES | {"B", "_ranks", "_last_setting", "extra_attributes"}
#: Structure of each array, and of a model that was compared with it.
_known: weakref.WeakKeyDictionary[Any, tuple[bytes, bytes]] = weakref.WeakKeyDictionary()


class FittingModel:
    """A model on its way into an array `root` that it fits, in the place of another model."""

    def __init__(self, model: torch.nn.Module, root: torch.nn.Module) -> None:
        self._parts = dict(modules_below(model))
        self._tensors = {name: value for name, value, _ in tensors_of_each(model)}
        self._layers: dict[str, torch.nn.Module] = {}
        for path, layer in paths_of(root):
            if isinstance(layer, ArrayModule) and self._says_less(path, layer):
                made = type(layer).from_models([self._parts[path]])
                self._layers.update((_joined(path, inner), part) for inner, part in modules_below(made))
                self._tensors |= {_joined(path, name): value[0] for name, value, _ in tensors_of_each(made)}

    def _says_less(self, path: str, layer: ArrayModule) -> bool:
        """Return True if torch's layer at `path` does not hold all that a layer of an array does, as random streams."""
        parts = modules_below(layer)
        lists = any(isinstance(part, ArrayModule) and part.per_model_lists for _, part in parts)
        held = {name for name, _, _ in tensors_of_each(layer)} - {FUNCTION_STREAM}
        return lists or any(_joined(path, name) not in self._tensors for name in held)

    def state(self) -> dict[str, torch.Tensor]:
        """Collect the model's tensors by name."""
        return self._tensors

    def shares(self, path: str, name: str) -> bool:
        """Return False: arrays that hold a tensor once have no structure that is known."""
        return False

    def value(self, path: str, name: str) -> Any:
        """Find the model's value in a list of one per model, in the layer at `path`."""
        return getattr(self._layers[path], name)[0]


def those_that_fit(
    array: torch.nn.Module, root: torch.nn.Module, models: Sequence[torch.nn.Module]
) -> list[FittingModel] | None:
    """Return the new models of an array, ready to go into its slots; None if one of them may not fit."""
    then = _known.get(array)
    if then is None or structure_of(root, array=True) != then[0]:
        return None
    if any(structure_of(model) != then[1] for model in models):
        return None
    return [FittingModel(model, root) for model in models]


def remember(array: torch.nn.Module, root: torch.nn.Module, models: Sequence[torch.nn.Module]) -> None:
    """Take note that `models` are as those of `array` are, beside their values."""
    structures = [structure_of(model) for model in models]
    own = structure_of(root, array=True)
    first = structures[0]
    if own is not None and first is not None and all(other == first for other in structures):
        _known[array] = own, first


def structure_of(root: torch.nn.Module, array: bool = False) -> bytes | None:
    """Describe all of a model, or of an `array`, that fuse compares; None if something in it can change unseen."""
    modules, numbers = modules_below(root), dict[int, int]()
    for _, module in modules:
        for held in (module, *module._parameters.values(), *module._buffers.values()):
            numbers.setdefault(id(held), len(numbers))  # what is in several places has one number
    found = io.BytesIO()
    try:
        _Structure(found, numbers).dump([_parts_of(path, module, array) for path, module in modules])
    except _Unknown:
        return None
    return found.getvalue()


class _Unknown(Exception):
    """Signal an attribute that is no plain value."""


class _Structure(pickle.Pickler):
    """Pickler that writes numbers in place of tensors and modules."""

    def __init__(self, file: io.BytesIO, numbers: dict[int, int]) -> None:
        super().__init__(file, 4)
        self._numbers = numbers

    def persistent_id(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return None
        if kind in _BY_TEXT:
            return repr(value)
        if kind is weakref.ref:
            return "ref", value()
        if isinstance(value, type) or (isinstance(value, _FUNCTIONS) and (value.__module__ or "").startswith("torch.")):
            return f"at {id(value)}"
        if id(value) not in self._numbers:
            raise _Unknown
        return self._numbers[id(value)]


def _parts_of(path: str, module: torch.nn.Module, array: bool) -> Any:
    if array and keeps_more(module):
        raise _Unknown
    held: list[Any] = [list(module._modules.items()), sorted(module._non_persistent_buffers_set)]
    shared = getattr(module, "shared_buffers", ())
    for registry in (module._parameters, module._buffers):
        for name, value in registry.items():
            if value is not None and array and held_once(value):
                raise _Unknown
            shape = () if value is None else value.shape[1:] if array and name not in shared else value.shape
            described = () if value is None else (type(value), value.dtype, value.device, value.requires_grad)
            held.append((name, value, tuple(shape), described))
        held.append(len(registry))
    return path, type(module), held, _attributes(module, array)


def _attributes(module: torch.nn.Module, array: bool) -> Any:
    held = vars(module)
    if any(map(held.get, _HOOKS)):
        raise _Unknown  # hooks
    rule = type(module) if isinstance(module, ArrayModule) else RULES.get(type(module))
    each = () if rule is None else rule.per_model_arguments
    if isinstance(module, ArrayModule) and type(module).arguments_of.__func__ is not ArrayModule.arguments_of.__func__:  # type: ignore[attr-defined]
        found = {**type(module).arguments_of(module), **held.get("extra_attributes", {})}
    else:
        left_out = _OF_A_LAYER if isinstance(module, ArrayModule) else REGISTRIES
        found = {name: value for name, value in held.items() if name not in left_out}
        if array:
            found = {name: value for name, value in found.items() if not name.startswith("_fused_")}
    for name in found.keys() & set(each):  # an argument that each model has its own value of
        value = found[name][0] if type(found[name]) is list and array else found[name]
        found[name] = "a float" if type(value) is float else value
    return found


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path and name else path or name


class EditedAttributes:
    """Attributes in which the models of an array, or those new in it, differ.

    Args:
        root: root module of the array, before the edit.
        slots: slot that the model comes from, for each slot after the edit; None for a new one.
        new: the new models by slot; they have `own(path, name)`, and the `model`.
        compared: the first model of the array and the new ones, fused; None if there are none.

    Raises:
        InvalidArgument: for an attribute of a layer that is one of torch's for all models.
    """

    def __init__(
        self, root: Any, slots: Sequence[int | None], new: Mapping[int, Any], compared: torch.nn.Module | None
    ) -> None:
        self._root, self._slots, self._new = root, slots, new
        self._stand_ins = StandIns()
        self._memos: dict[int, dict[int, Any]] = {}
        parts = [] if compared is None else list(compared.named_modules())
        own = {path: names_of_own(part) for path, part in parts if isinstance(part, UserModule)}
        self._unlike: dict[str, Set[str]] = {path: names for path, names in own.items() if names}
        self._numbers = {path: part._fused_numbers for path, part in parts if isinstance(part, UserModule)}
        #: Modules whose code reads what differs.
        self._read = {path for path, part in parts if part.__dict__.get("_fused_parts") is not None}
        self._models: dict[int, torch.nn.Module] = {}
        self._own: dict[str, dict[int, dict[str, Any]]] = {}  # by path and slot: attributes of models apart
        for path, names in self._unlike.items():
            if isinstance(root.get_submodule(path), ArrayModule):
                raise InvalidArgument(
                    f"at {path}: the array and the new model differ in {', '.join(sorted(names))}, in which this "
                    "array's models are alike: fuse them again, with the new one"
                )

    @property
    def same(self) -> bool:
        """True if the new models have the attributes of the first."""
        return not self._unlike and not self._read

    def look(self) -> None:
        """Keep the models that the edit needs as they are now; call before tensors change."""
        kept = {slot for slot in self._slots if slot is not None}
        for path, module in self._root.named_modules():
            parts = module.__dict__.get("_fused_parts")
            if parts is not None and parts.own:
                self._own[path] = {slot: parts.attributes(slot, module) for slot in kept}
        if self._unlike:
            for module in filter(is_fused, self._root.modules()):
                module._fused_known.clear()  # code that reads what differs now may have to begin anew
            read = list(map(self._root.get_submodule, self._read))
            # Models with values of their own, or with tensors that a forward has left.
            apart = any(vars(one).get("_fused_own") or next(left_in(one), None) is not None for one in read)
            self._models = {slot: model_of(self._root, slot) for slot in sorted((kept if apart else set()) | {0})}

    def follow(self, module: Any, path: str) -> None:
        """Give each model its own of the attributes of `module` in which they differ."""
        names = names_of_own(module) | self._unlike.get(path, frozenset())
        held = getattr(module, "_fused_parts", None)
        if not names:
            if held is not None:
                module._fused_parts = None  # made again, for the models that there are
        elif isinstance(module, UserModule) and held is None and path not in self._read:
            self._go_on_unread(module, path, names)
        else:
            self._run_one_by_one(module, path, names)

    def _go_on_unread(self, module: Any, path: str, names: Set[str]) -> None:
        own = [
            {name: self._new[slot].own(path, name) for name in names}
            if source is None
            else self._own_now(module, source, names)
            for slot, source in enumerate(self._slots)
        ]
        give_own(module, own, module._fused_numbers | self._numbers.get(path, frozenset()), self._stand_ins)

    def _own_now(self, module: Any, source: int, names: Set[str]) -> dict[str, Any]:
        memo = self._memos.setdefault(source, {})
        memo.update(one_model(module, source))
        own = own_attributes(module, source, memo)
        return {name: own[name] if name in own else copied(vars(module)[name], memo) for name in names}

    def _run_one_by_one(self, module: Any, path: str, names: Set[str]) -> None:
        if not isinstance(module, UserModule):
            make_user_module(module, len(self._slots))
        begin = [self._own_at(module, path, names, slot, source) for slot, source in enumerate(self._slots)]
        module._fused_set_apart(begin, names, f"models differ in {min(names)}")

    def _own_at(self, module: Any, path: str, names: Set[str], slot: int, source: int | None) -> dict[str, Any]:
        """Copy the attributes that the model which gets `slot` has of its own in `module`, at `path`."""
        if source is not None and path in self._own:
            own = self._own[path][source]
            return own if self._slots.count(source) == 1 else copied(own, {id(one): one for one in module.modules()})
        # Models that are not kept are like the first.
        model = self._new[slot].model if source is None else self._models.get(source, self._models[0])
        memo = counterparts(model, self._root)
        held = vars(model.get_submodule(path))
        return {name: value_of_model(held[name], 0, memo) for name in names if name in held}
