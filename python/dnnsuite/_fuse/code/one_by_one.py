# SPDX-License-Identifier: MIT
"""Run the models of a module one by one, for code that cannot run for all of them at once: each is a plain torch module
on the storage of the array (`plain_models.py`), with the array's random numbers. What a model has of its own is in its
module, and nowhere else; only before the first call, and in a copy of the array, it waits in a dictionary.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from ..._torch import tree_flatten, tree_leaves, tree_unflatten
from ...nn.model_tensor import ModelTensor, NotFusable, Refused, WritesShared, outside, state
from ..hooks import counterparts
from ..left_tensors import is_users_state, value_of_model
from ..single_model import tree as modules_of
from .call_user_code import OfEachModel, joined
from .plain_models import PlainModels, following, version_of

_NUMBERS = (bool, int, float, complex, str)


_IN_A_MODEL = re.compile(r"(^|\.)model \d+\.")


def models_apart(module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield by name the modules that run one by one in place of `module`, a part of an array, if any do."""
    parts: Any = vars(module).get("_fused_parts")
    if parts is not None:
        parts.models()  # those that differ are there before their first call
    for models in (plain.models for plain in plain_models_of(module) if plain.follow()):
        for index, model in enumerate(models):
            for path, part in model.named_modules():
                yield f"model {index}.{path}".rstrip("."), part


def is_in_a_model_apart(name: str) -> bool:
    """Return True for the name of a value in one of the modules that `models_apart` names."""
    return _IN_A_MODEL.search(name) is not None


def plain_models_of(module: torch.nn.Module) -> list[PlainModels]:
    """List the plain models that were made in place of `module`, an array or a part of it."""
    holders = (vars(module).get("_fused_parts"), vars(module).get("_fused_choice"))
    found = [holder.plain for holder in holders if holder is not None and holder.plain is not None]
    return found[:1] if len(found) == 2 and found[0] is found[1] else found


def layers_set(array: torch.nn.Module) -> list[Any]:
    """List what code of models that run one by one has set in its layers, such as a rate of batch norm, since the
    models were made."""
    found = [
        (place, plain.layers_set())
        for place, module in enumerate(modules_of(array))
        for plain in plain_models_of(module)
    ]
    return [one for one in found if one[1]]


def reads_own_values(array: torch.nn.Module) -> bool:
    """Return True if the models of a part run one by one because code reads, or makes, values of each model's own."""
    parts: list[Any] = [vars(module).get("_fused_parts") for module in modules_of(array)]
    return any(part is not None and part.own for part in parts)


class ModelParts:
    """Models of `module` that run one by one.

    Args:
        begin: attributes that each model has of its own and begins with, of models that differ in some. Modules and
            parameters in them are those of `module`.

    Attributes:
        mark: stands for what the models hold and nobody can compare; a copy, which may be of other models, has another.
    """

    def __init__(self, module: Any, begin: Sequence[dict[str, Any]] | None = None) -> None:
        self.module = module
        self.own = begin is not None
        self.begin: list[dict[str, Any]] = list(begin or [])
        self.plain: PlainModels | None = None
        self.mark = object()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out, in a copy, the modules made for calls: they hold tensors of the last one, and are made again."""
        own = [self.attributes(index, self.module) for index in range(self.module._fused_B)] if self.own else []
        return {**vars(self), "mark": object(), "plain": None, "begin": own}

    def models(self) -> list[Any]:
        """List the modules that hold what the models' code has set; none if it has not run, and they do not differ."""
        return list(self.plain_models().models) if self.own or self.plain is not None else []

    def attributes(self, index: int, target: torch.nn.Module) -> dict[str, Any]:
        """Copy the plain attributes of model `index` that may differ, with modules and parameters of `target` in
        them."""
        if self.plain is None:
            source, held, replaced = self.module, self.begin[index] if self.own else {}, set[str]()
        else:
            source, replaced = self.plain.models[index], self.plain.replaced()
            held = vars(source)
        memo = counterparts(source, target)
        own = {name: value for name, value in held.items() if self._is_own(name, value) and name not in replaced}
        return {name: value_of_model(value, 0, memo) for name, value in own.items()}

    def withhold(self, names: Iterable[str]) -> None:
        """Let each model have its own of the attributes `names`, too. The module keeps what it has there: to take it
        away would be a change that models follow."""
        self.own = True
        self.module._fused_withheld = self.module._fused_withheld.union(names)

    def forget(self, name: str) -> None:
        """Let no model begin with an attribute of its own that was set in all."""
        for own in self.begin:
            own.pop(name, None)

    def _is_own(self, name: str, value: Any) -> bool:
        if name in self.module._fused_withheld or self.module._fused_refers_outside():
            return name in self.module._fused_withheld  # these models run in the whole, which has the rest
        return is_users_state(name, value) and not isinstance(value, _NUMBERS)

    def __call__(self, args: Any, kwargs: Any) -> Any:
        leaves, spec = tree_flatten((args, kwargs))
        parts: list[Any] = [_parts_of(leaf) for leaf in leaves]
        random = state.random
        with outside(), state.having(random=None):  # a checkpoint, for example, finds no forward of an array
            plain = self.plain_models()
            if not plain.complete:
                raise Refused(f"{type(plain.models[0]).__name__} holds a parameter that is none of its array's")
            seen = plain.seen(*tree_unflatten(_of_model(leaves, parts, 0), spec))
            if seen.counts_places:
                raise Refused(
                    f"the forward of {type(plain.models[0]).__name__} takes as_strided of a parameter or buffer with a "
                    "storage_offset of its own, which counts from the start of memory that all models share: leave "
                    "storage_offset out, or index"
                )
            if not seen.writes_arguments:
                return _joined(
                    plain.run([tree_unflatten(_of_model(leaves, parts, i), spec) for i in range(plain.B)], random)
                )
            # On copies: views share a version counter, and a write by one model would invalidate what another has saved
            # for backward. What was written is copied back.
            own = [type(leaf) is ModelTensor and _has_parts_of_its_own(leaf) for leaf in leaves]
            parts = [[x.clone() for x in each] if mine else each for each, mine in zip(parts, own, strict=True)]
            before = list(map(_version, _of_model(leaves, parts, 0)))
            outputs = plain.run([tree_unflatten(_of_model(leaves, parts, i), spec) for i in range(plain.B)], random)
            same = None
            for leaf, each, mine, version in zip(leaves, parts, own, before, strict=True):
                if all(_version(part) == version for part in ([leaf] if each is None else each)):
                    continue
                if not mine:
                    name = type(plain.models[0]).__name__
                    raise WritesShared(f"{name} writes into a tensor that all models are given")
                leaf.value.copy_(torch.stack(each))
                if all(output is part for output, part in zip(outputs, each, strict=True)):
                    same = leaf  # as `relu_` returns what it was given
            return _joined(outputs) if same is None else same

    def plain_models(self) -> PlainModels:
        """Return the plain models; make them again if the array has changed in a way that they cannot follow."""
        self.plain = following(self.plain, self.module, self.module._fused_B)
        return self.plain


def _version(value: Any) -> int:
    return version_of(value) if isinstance(value, torch.Tensor) else 0


def _has_parts_of_its_own(leaf: ModelTensor) -> bool:
    """True for a tensor in which each model has memory of its own, and may write."""
    value = leaf.value
    return not (value.is_leaf and value.requires_grad) and (value.size(0) == 1 or value.stride(0) != 0)


def _parts_of(leaf: Any) -> Sequence[Any] | None:
    """Split what is of all models into one per model, tensors in the memory order that torch's layers give."""
    if type(leaf) is ModelTensor:
        return (leaf.value.contiguous() if leaf.of_layer else leaf.value).unbind(0)
    return leaf if type(leaf) is OfEachModel else None


def _of_model(leaves: Sequence[Any], parts: Sequence[Any], index: int) -> list[Any]:
    pairs = zip(leaves, parts, strict=True)
    return [leaf if own is None else own[index] for leaf, own in pairs]


def _joined(outputs: Sequence[Any]) -> Any:
    if any(type(leaf) is ModelTensor for leaf in tree_leaves(outputs)):
        raise NotFusable("its code looks at tensors of other modules")
    return joined(outputs, ModelTensor)
