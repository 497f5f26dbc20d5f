# SPDX-License-Identifier: MIT
"""Plain attributes of models in an edit of their array: each model keeps its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

import torch

from ..errors import InvalidArgument
from ..nn.array_module import ArrayModule
from .code.fused_attributes import is_fused
from .code.one_by_one import ModelParts
from .code.own_values import StandIns, give_own, names_of_own, own_attributes
from .code.user_module import UserModule, make_user_module
from .hooks import counterparts
from .left_tensors import left_in, one_model, value_of_model
from .module_copies import copied
from .single_model import model_of


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
            apart = any(map(_have_own, map(self._root.get_submodule, self._read)))
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
        module._fused_parts, module._fused_own = ModelParts(module, begin), None
        module._fused_withhold(names)
        module._fused_report.reason = module._fused_report.reason or f"models differ in {sorted(names)[0]}"

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


def _have_own(module: torch.nn.Module) -> bool:
    """Return True if the models of a module have values of their own, or tensors that a forward has left."""
    return bool(vars(module).get("_fused_own")) or any(True for _ in left_in(module))
