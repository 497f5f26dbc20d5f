# SPDX-License-Identifier: MIT
"""Divergence of an array's models: numbers in which models that were alike have come to differ, such as a running mean
of the losses, and contents of lists and objects, which their code has left in the parts of the array."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence, Set
from typing import Any

import torch

from ..errors import InvalidArgument
from ..nn.array_module import ArrayModule
from .code.one_by_one import plain_models_of
from .code.own_values import NO_ATTRIBUTES, PLAIN_VALUES, is_fused, names_of_own, own_attributes
from .code.stand_in import StandIn
from .comparison import same
from .hooks import counterparts
from .left_tensors import (
    NotJoined,
    WatchedModels,
    give_attributes,
    is_users_state,
    join_settings,
    joined_inside,
    left_in,
    may_change_in_place,
    unlike,
    value_of_model,
)
from .rebound import refuse_held_in
from .single_model import tree as modules_of

_MISSING = object()


class Divergence:
    """Attributes of the models in `parts` of an `array`, shards in order, compared with what they were at the start."""

    def __init__(self, array: torch.nn.Module, parts: Sequence[torch.nn.Module]) -> None:
        self._root, self._parts = array.__dict__.get("_root"), parts
        self.keep()

    def keep(self) -> None:
        """Take the attributes as they are now for what the array has."""
        self._watched = {path: WatchedModels(self._models(path)[0], may_change_in_place) for path, _ in self._modules()}

    def _modules(self) -> Iterator[tuple[str, Any]]:
        """Yield by name the user's modules whose models have no attributes of their own."""
        for path, module in self._root.named_modules() if self._root is not None else ():
            if is_fused(module) and not getattr(module.__dict__["_fused_parts"], "own", False):
                yield path, module

    def _models(self, path: str) -> tuple[list[Any], list[Any]]:
        """List the modules at `path` of the models of all shards, and for each the one in its shard."""
        pairs = [(one, part) for part in self._parts for one in _models_at(part, path)]
        return [one for one, _ in pairs], [part._root.get_submodule(path) for _, part in pairs]  # type: ignore

    def found(self) -> str:
        """Give the models of the array what their code has left in those of its parts.

        Returns the name of an attribute for which parts of the array have to be made anew; an empty one for none.
        """
        anew = ""
        for path, module in list(self._modules()):
            watched = self._watched.get(path)
            left = set[str]().union(*watched.changed(*self._models(path))) if watched is not None else set[str]()
            known = names_of_own(module)
            names = self._numbers(path, module) - known
            joined, changed = self._join(path, module, left) if left else (set(), False)
            left, anew = left - joined, anew or (min(joined) if changed else "")
            read = module._fused_own is not None and bool(module._fused_report.reason)
            if names or left or read:  # read: code of a part has read what models have of their own
                _set_apart(module, self._each(path), names | left | known)
                anew = min(names | left | known)
        layers = [min(layer[2]) for layer in self._layers() if self._join_layer(*layer)]
        return next(filter(None, (anew, *layers, *self._take_buffers())), "")

    def _take_buffers(self) -> list[str]:
        """Give the array buffers that a forward has registered in its parts, or has given another shape, for example a
        cache that has to grow; return their names. All others of the parts are views of the array's."""
        taken = []
        for path, module in self._root.named_modules() if self._root is not None else ():
            others = [part._root.get_submodule(path) for part in self._parts]  # type: ignore[union-attr]
            for name, first in others[0]._buffers.items():
                mine = module._buffers.get(name)
                if first is None or (mine is not None and _of_one(mine) == _of_one(first)):
                    continue
                values = [value for other in others if (value := other._buffers.get(name)) is not None]
                if len(values) < len(others) or any(_of_one(value) != _of_one(first) for value in values):
                    raise InvalidArgument(
                        f"the forward gives the buffer {path}.{name} of some models another shape than that of others: "
                        "call the array once before StepRunner, or use width=B"
                    )
                module._buffers[name] = torch.cat([value.detach() for value in values])
                if name in others[0]._non_persistent_buffers_set:
                    module._non_persistent_buffers_set.add(name)
                taken.append(name)
        return taken

    def _layers(self) -> Iterator[tuple[str, Any, set[str]]]:
        """Yield the layers by name, with the names of their attributes that are a user's, and not torch's."""
        for path, module in self._root.named_modules() if self._root is not None else ():
            if not is_fused(module):
                of_ours = isinstance(module, ArrayModule)
                held = module.__dict__.get("extra_attributes", {}) if of_ours else vars(module)
                names = {name for name, value in held.items() if is_users_state(name, value)}
                if names:
                    yield path, module, names

    def _join_layer(self, path: str, layer: Any, names: set[str]) -> bool:
        """Give a layer of the array what code has left in an attribute that it had from the start.

        Returns True if that is another value.

        Raises:
            InvalidArgument: the models differ in it, and a layer of all models has one value.
        """
        held, models = vars(layer), self._models(path)[0]
        changed = {}
        for name in names:
            values = [vars(one).get(name, _MISSING) for one in models]
            if not all(same(value, held.get(name, _MISSING)) for value in values):
                try:
                    changed[name] = joined_inside(values)
                except NotJoined:
                    raise InvalidArgument(
                        f"the forward gives models other values of {name} in {path}, a {type(layer).__name__} that "
                        "they run together: keep it in an attribute of a module of your own, or train by hand"
                    ) from None
        held.update(changed)
        if changed and "extra_attributes" in held:  # another dictionary tells a runner to divide the array anew
            held["extra_attributes"] = {**held["extra_attributes"], **changed}
        return bool(changed)

    def _each(self, path: str) -> list[tuple[Any, int]]:
        """List the module at `path` of each model, and the model's number among all of that module."""
        found: list[tuple[Any, int]] = []
        for part in self._parts:
            models, B = _models_at(part, path), int(part.B)  # type: ignore[arg-type]
            found += [(one, 0) for one in models] if len(models) == B else [(models[0], k) for k in range(B)]
        return found

    def _numbers(self, path: str, module: Any) -> Set[str]:
        """Name the numbers and strings in which the models differ."""
        first, *others = map(vars, self._models(path)[0])
        plain = {n: value for n, value in first.items() if isinstance(value, PLAIN_VALUES) and n not in NO_ATTRIBUTES}
        return {n for n, value in plain.items() if not all(same(value, own.get(n, _MISSING)) for own in others)}

    def _join(self, path: str, module: Any, names: Set[str]) -> tuple[set[str], bool]:
        """Give the array's module what code of all models has left in it, tensors of all of them joined.

        Returns the names of what was joined, and True if containers of the array have changed.
        """
        models = [_models_at(part, path) for part in self._parts]
        if any(len(own) > 1 for own in models):
            return set(), False
        done, changed = set[str](), False
        for name in names - names_of_own(module):
            try:
                made = joined_inside([vars(own[0]).get(name, _MISSING) for own in models])
            except NotJoined:
                continue
            done.add(name)
            changed = _put(vars(module), name, made) or changed
        return done, changed


class OwnAttributes:
    """Attributes of models of `part` `[start, start + length)` of `array`, where models have their own.

    Values that the models' code sets, such as a counter, go back to the array.
    """

    def __init__(self, array: torch.nn.Module, part: torch.nn.Module, start: int, length: int) -> None:
        self._part, self._slots = part, slice(start, start + length)
        self._given: list[tuple[Any, Set[str]]] = []
        held = [(path, vars(m).get("_fused_parts")) for path, m in array.__dict__.get("_root", array).named_modules()]
        self._watched = [
            (path, parts, WatchedModels(_models_at(part, path), is_users_state))
            for path, parts in held
            if parts is not None and parts.own
        ]

    def give_back(self) -> None:
        """Set in the array's models what has changed since the last call; `withhold` then tells the array."""
        for path, parts, watched in self._watched:
            models, mine = _models_at(self._part, path), parts.models()[self._slots]
            for one, model, changed in zip(models, mine, watched.changed(models, mine), strict=True):
                if changed:
                    give_attributes(one, model, changed)
                    self._given.append((parts, changed))

    def withhold(self) -> None:
        """Let models have their own of what was given back, but for numbers and strings that all of them have alike,
        such as a counter: these are the array's, too."""
        for parts, changed in self._given:
            parts.withhold(name for name in changed if not _alike([vars(model).get(name) for model in parts.models()]))
        self._given = []


def _of_one(buffer: torch.Tensor) -> tuple[Any, ...]:
    return buffer.shape[1:], buffer.dtype


def _alike(values: Sequence[Any]) -> bool:
    return isinstance(values[0], PLAIN_VALUES) and all(same(values[0], other) for other in values)


def take_from_models(array: torch.nn.Module) -> bool:
    """Give the models of an array that ran one by one what their code has left in them: call before the array is
    copied, divided or edited, which makes its models anew.

    Returns True if models have attributes or tensors of their own, which a call may have changed.
    """
    root = array.__dict__.get("_root")
    if root is not None:
        refuse_held_in(root)
    own = root is not None and any(True for module in root.modules() for _ in left_in(module))
    give_settings(array)
    apart = []
    for path, module in list(root.named_modules()) if root is not None else ():
        models = _models_at(array, path) if is_fused(module) else [module]
        if models[0] is module:
            continue
        names = set[str]().union(*(unlike(vars(module), vars(one)) for one in models)) - names_of_own(module)
        parts = module.__dict__["_fused_parts"]
        if parts is not None and parts.own:
            own = True
            parts.withhold(names)
        elif names:
            _set_apart(module, [(one, 0) for one in models], names | names_of_own(module))
            apart.append(module)
            own = True
    for module in root.modules() if root is not None and apart else ():
        inside = set(map(id, module.modules())) - {id(module)}
        for plain in plain_models_of(module):
            if any(id(one) in inside for one in apart):
                plain.outdate()  # it takes over what is the part's from now on
    return own


def show_left(array: torch.nn.Module) -> None:
    """Let those who read an array find what code of models that ran one by one has left in containers and objects:
    what all have left alike, and nothing where they differ."""
    plain = [one for module in modules_of(array) for one in plain_models_of(module) if one.has_run]
    differing = [found for one in plain for found in one.show()]
    if differing:
        take_from_models(array)
    for part, names in differing:
        part.hide(names & names_of_own(part.module))


def give_settings(array: torch.nn.Module) -> None:
    """Give the layers of an array what code of models that run one by one has set in theirs."""
    for module in modules_of(array):
        for plain in plain_models_of(module):
            plain.give_settings()


def take_settings(array: torch.nn.Module, parts: Sequence[torch.nn.Module]) -> None:
    """Give the layers of an array what code of models that run one by one in its `parts` has set in theirs."""
    for part in parts:
        give_settings(part)
    for module in modules_of(array):
        for plain in plain_models_of(module):
            plain.has_run = False  # what code has set since is in the parts
    layers = [list(part.__dict__.get("_root", part).modules()) for part in parts]
    models = [int(part.B) for part in parts]  # type: ignore[arg-type]
    for place, layer in enumerate(array.__dict__.get("_root", array).modules()):
        join_settings(layer, [(own[place], B) for own, B in zip(layers, models, strict=True)])


def _put(held: dict[str, Any], name: str, made: Any) -> bool:
    """Put a value in an attribute, into the container that is there already; return True if its contents change."""
    now = held.get(name, _MISSING)
    if same(now, made):
        return False
    if type(now) is type(made) and type(now) in (list, dict, set, collections.deque):
        now.clear()
        (now.extend if hasattr(now, "extend") else now.update)(made)
    else:
        held[name] = made
    return not isinstance(made, torch.Tensor)  # no step asks for a tensor that a forward has left


def _set_apart(module: Any, models: Sequence[tuple[Any, int]], names: Set[str]) -> None:
    """Run the models one by one from now on, each with its own of the attributes `names`, as far as `models` have them.

    Args:
        models: the module of each model, and the model's number in it.
    """
    parts = module._fused_parts
    if parts is not None and parts.plain is not None:
        for model, (one, index) in zip(parts.models(), models, strict=True):
            if model is not one:
                give_attributes(one, model, names, index)
        parts.withhold(names)
    else:
        begin = []
        for number, (one, index) in enumerate(models):
            held, memo = vars(one), counterparts(one, module)
            given = {name: held[name] for name in names if name in held and not isinstance(held[name], StandIn)}
            begin.append(
                own_attributes(module, number, {}) | {n: value_of_model(v, index, memo) for n, v in given.items()}
            )
        module._fused_set_apart(begin, names, "")
    module._fused_own = None
    report = module._fused_report
    report.reason = report.reason or f"its code makes models differ in {min(names)}"


def _models_at(part: Any, path: str) -> list[Any]:
    """List the modules at `path` of the models of a shard, or the one that all of them have there."""
    choice = part.__dict__.get("_fused_choice")
    if choice is not None and choice.looping and choice.follows():  # a replay has set the array's alone
        return [model.get_submodule(path) for model in choice.models]
    root, names = part._root, path.split(".") if path else []
    for length in range(len(names) + 1):
        outer = root.get_submodule(".".join(names[:length]))
        parts = outer.__dict__.get("_fused_parts")
        if parts is not None and outer._fused_report.reason:
            models = parts.models()
            if models:
                return [model.get_submodule(".".join(names[length:])) for model in models]
    return [root.get_submodule(path)]
