# SPDX-License-Identifier: MIT
"""Run the models of a module one by one, for code that cannot run for all of them at once.

Each model is a plain torch module on the storage of the array (`plain_models.py`). Code that draws random numbers runs
as an array of one per model, which has the random streams of the array; where even that cannot run (a user's
autograd.Function, a scripted function), the plain module draws from torch's generator, seeded from the model's stream.
"""

from __future__ import annotations

import threading
import types
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from ..._state import Watch
from ..._torch import own_parametrizations, tree_flatten, tree_unflatten
from ...nn.array_module import ArrayModule
from ...nn.model_tensor import ModelTensor, NotFusable, WritesShared, outside, state
from ...nn.random_streams import FUNCTION_STREAM, seeds_of
from ...ops.partial_use import split_by_model
from ..hooks import counterparts
from ..left_tensors import give_attributes, may_change_in_place
from ..module_copies import copied
from ..rules.random import next_stream
from ..rules.table import settle_since
from ..single_model import model_of
from ..slices import narrow
from ..unfused import ASKED
from .fused_attributes import NO_ATTRIBUTES, ModuleCoverage, is_fused
from .joined_outputs import joined
from .lent_parameters import Lent, put_at
from .plain_models import WRITES_ARGUMENTS, PlainModels

_NUMBERS = (bool, int, float, complex, str)
_FUNCTIONS = (types.FunctionType, types.MethodType, partial)


_changes = 0  # attributes that were set from outside, in any array


def note_change() -> None:
    """Note that an attribute of some module was set outside of a forward: copies of modules may lack it."""
    global _changes
    _changes += 1


def models_apart(module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield by name the modules that run one by one in place of `module`, a part of an array, if any do."""
    parts: Any = vars(module).get("_fused_parts")
    groups = [plain.models for plain in plain_models_of(module) if plain.follow()]
    if parts is not None and parts.plain is None:
        groups.append(parts.trees)
    for models in groups:
        for index, model in enumerate(models):
            for path, part in model.named_modules():
                yield f"{path} of model {index}", part


def plain_models_of(module: torch.nn.Module) -> list[PlainModels]:
    """List the plain models that were made in place of `module`, an array or a part of it."""
    holders = (vars(module).get("_fused_parts"), vars(module).get("_fused_choice"))
    found = [holder.plain for holder in holders if holder is not None and holder.plain is not None]
    return found[:1] if len(found) == 2 and found[0] is found[1] else found


def reads_own_values(array: torch.nn.Module) -> bool:
    """Return True if the models of a part run one by one because code reads, or makes, values of each model's own."""
    parts: list[Any] = [vars(module).get("_fused_parts") for module in array.modules()]
    return any(part is not None and part.own for part in parts)


Held = list[tuple[torch.nn.Module, str, str, torch.Tensor]]
Put = dict[tuple[torch.nn.Module, str, str], Sequence[torch.Tensor | None]]


class ModelParts:
    """Models of `module` that run one by one. `trees` are those of models whose attributes differ.

    They run as plain torch modules. Where those would not compute the same (code that draws random numbers, which are
    the array's streams'), each model is an array of one.
    """

    def __init__(self, module: Any, trees: Sequence[torch.nn.Module] | None = None) -> None:
        self.module = module
        self.own = trees is not None
        self.trees: list[Any] = list(trees or [])
        self.plain: PlainModels | None = None
        self._made_at = _changes  # copies of the module are made anew after a change
        self._trees_ran = False  # the plain models lack what the code of the trees has set
        self._seen = self._watches() if self.own else {}

    def __getstate__(self) -> dict[str, Any]:
        """Leave out, in a copy, the modules made for calls: they hold tensors of the last one, and are made again."""
        return {**vars(self), "plain": None, "trees": self.trees if self.own else [], "_seen": {}}

    def _watches(self) -> dict[Any, Watch]:
        """Watch what the array's modules hold."""
        return {part: Watch(vars(part), may_change_in_place) for part in self.module.modules() if is_fused(part)}

    def follow(self) -> None:
        """Let models that have their own attributes have what was changed in place in those that they share."""
        if not self.own:
            return
        before, self._seen = self._seen, self._seen or self._watches()
        for path, part in self.module.named_modules() if before else ():
            watch = before.get(part)
            changed = [] if watch is None else watch.changed(vars(part))
            names = [name for name in changed if name not in part._fused_withheld]
            for tree in self.trees if names else ():
                own = dict(tree.named_modules()).get(path)
                if own is not None:
                    give_attributes(part, own, names)

    def models(self) -> list[Any]:
        """List the modules that hold what the models' code has set."""
        if self.plain is not None and (self.plain.has_run or not self.trees):
            return list(self.plain.models)
        return [_innermost(tree) for tree in self.trees]

    def attributes(self, index: int, target: torch.nn.Module) -> dict[str, Any]:
        """Copy the plain attributes of model `index` that may differ, with modules of `target` in them."""
        sources: list[Any] = [_innermost(self.trees[index])] if self.own else []
        if self.plain is not None and self.plain.has_run and self.plain.follow():
            sources.append(self.plain.models[index])
        found: dict[str, Any] = {}
        for tree in sources:
            # A layer of ours has attributes of its own, and some of torch's in another form.
            held = vars(model_of(tree, 0) if isinstance(tree, ArrayModule) else tree)
            memo = counterparts(tree, target)
            for name, value in held.items():
                bound = name in found and isinstance(value, _FUNCTIONS)  # a plain model's function holds that model
                if self._is_own(name, value) and not bound:
                    found[name] = _detached_copy(value, memo)
        return found

    def withhold(self, names: Iterable[str]) -> None:
        """Let each model have its own of the attributes `names`, too. The module keeps what it has there: to take it
        away would be a change that models follow."""
        self.module._fused_withheld = self.module._fused_withheld.union(names)

    def look(self) -> None:
        """Take over what calls have changed in the models since their trees were made, as a counter."""
        for index, tree in enumerate(self.trees if self.own else ()):
            if not isinstance(tree, ArrayModule):
                tree.__dict__.update(self.attributes(index, tree))

    def _is_own(self, name: str, value: Any) -> bool:
        known = name in NO_ATTRIBUTES or not isinstance(value, _NUMBERS)
        return name in self.module._fused_withheld or not known

    def __call__(self, args: Any, kwargs: Any) -> Any:
        leaves, spec = tree_flatten((args, kwargs))
        parts = [_parts(leaf) if type(leaf) is ModelTensor else None for leaf in leaves]
        given = [tree_unflatten(_of_model(leaves, parts, i), spec) for i in range(self.module._fused_B)]
        with outside(), _checkpoints_of_torchs():
            plain = self.plain_models()
            refusal = plain.refusal(*given[0])
            if not refusal:
                if self._trees_ran:
                    plain = self._anew()
                return joined(plain.run(given), ModelTensor)
            if refusal == WRITES_ARGUMENTS and all(map(_may_be_written, leaves)):
                return self._on_copies(leaves, spec, parts)
        if self.module._fused_B > 1 or self.own or self.module._fused_report.reason == ASKED:
            return self._as_arrays(leaves, spec)
        shared = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and type(leaf) is not ModelTensor]
        versions = [leaf._version for leaf in shared]
        with _own_numbers(), outside(), _checkpoints_of_torchs():
            outputs = plain.run(given)
        if [leaf._version for leaf in shared] != versions:
            raise WritesShared(f"{type(plain.models[0]).__name__} writes into a tensor that it is given")
        return joined(outputs, ModelTensor)

    def _on_copies(self, leaves: Sequence[Any], spec: Any, parts: Sequence[Any]) -> Any:
        """Run code that writes into its arguments on a copy of each model's part, and copy the result back.

        Views of one tensor share a version counter: a write by one model would invalidate what another has saved for
        backward.
        """
        copies = [None if own is None else [part.clone() for part in own] for own in parts]
        before = [own and own[0]._version for own in copies]
        given = [tree_unflatten(_of_model(leaves, copies, i), spec) for i in range(self.module._fused_B)]
        outputs = self.plain_models().run(given)
        same = None
        for leaf, own, version in zip(leaves, copies, before, strict=True):
            if own is not None and any(part._version != version for part in own):
                leaf.value.copy_(torch.stack(own))
                if all(output is part for output, part in zip(outputs, own, strict=True)):
                    same = leaf  # as `relu_` returns what it was given
        return joined(outputs, ModelTensor) if same is None else same

    def plain_models(self) -> PlainModels:
        """Return the plain models; make them again if the array has changed in a way that they cannot follow."""
        if self.plain is None or not self.plain.follow():
            self.plain = PlainModels(self.module, self.module._fused_B)
        return self.plain

    def _anew(self) -> PlainModels:
        """Make the plain models again, with what the code of the trees has set."""
        self.plain, self._trees_ran = None, False
        return self.plain_models()

    def _as_arrays(self, leaves: Sequence[Any], spec: Any) -> Any:
        """Run each model as an array of one."""
        if self.plain is not None and self.plain.has_run:
            self.look()
            self.plain.has_run = False
        self._trees_ran = True
        self.follow()
        if self._made_at != _changes and not self.own:
            self.trees, self._made_at = [], _changes
        if not self.own and len(self.trees) != self.module._fused_B:
            self.trees = [narrow(self.module, index, 1) for index in range(self.module._fused_B)]
            for tree in self.trees:
                tree._fused_report, tree._fused_parts = ModuleCoverage(), None
        split = [torch.split(leaf.value, 1) if type(leaf) is ModelTensor else None for leaf in leaves]
        outputs = []
        owner = state.random
        held, put, lent = self._put_state()
        try:
            for index, tree in enumerate(self.trees):
                state.random = _stream_of(owner, index)
                args, kwargs = tree_unflatten(_of_one(leaves, split, index), spec)
                outputs.append(_called(tree, args, kwargs, lent[index]))
            self._take_buffers(put)
        finally:
            state.random = owner
            for module, names, name, value in held:
                put_at(module, names, name, value)
        return joined(outputs, _wrapped)

    def _take_buffers(self, put: Put) -> None:
        """Put buffers that the models' code has replaced into the array."""
        for (module, path, name), parts in put.items():
            now = [tree.get_submodule(path)._buffers[name] for tree in self.trees]
            if all(new is old for new, old in zip(now, parts, strict=True)):
                continue
            shapes = [None if value is None else list(value.shape[1:]) for value in now]
            for index, shape in enumerate(shapes):
                if shape != shapes[0]:
                    raise NotFusable(
                        f"models 0 and {index} give their buffer {name} different shapes, {shapes[0]} and {shape}"
                    )
            made = [value for value in now if value is not None]
            module._buffers[name] = torch.cat(made).detach() if made else None

    def _put_state(self) -> tuple[Held, Put, Sequence[Lent]]:
        """Lend the array's parameters and buffers to the single models; return what they held before, the buffers, and
        what each model is lent."""
        cut: dict[int, Sequence[torch.Tensor]] = {}
        held: Held = []
        put: Put = {}
        lent: list[list[Any]] = [[] for _ in self.trees]
        for path, module in self.module.named_modules():
            owners = [tree.get_submodule(path) for tree in self.trees]
            for owner in owners:
                owner.training = module.training
            for names, split in (("_parameters", True), ("_buffers", False)):
                for name, value in getattr(module, names).items():
                    if name in getattr(module, "shared_buffers", ()) or name not in getattr(owners[0], names):
                        continue  # the latter: the stream of the array's root
                    if value is not None and id(value) not in cut:
                        cut[id(value)] = split_by_model(value) if split else _views(value)
                    parts = [None] * len(owners) if value is None else cut[id(value)]
                    if not split:
                        put[module, path, name] = parts
                    for index, (owner, part) in enumerate(zip(owners, parts, strict=True)):
                        if part is not None:
                            now = (lambda part=part: part) if split else partial(_buffer, module, name, index)
                            lent[index].append((owner, names, name, now))
                            held.append((owner, names, name, getattr(owner, names)[name]))
                            put_at(owner, names, name, part)
        return held, put, lent


def _innermost(tree: torch.nn.Module) -> Any:
    """Return the plain model that runs in place of a tree of one model, if there is one."""
    parts: Any = vars(tree).get("_fused_parts")
    found = parts.models() if parts is not None else []
    return found[0] if found else tree


def _buffer(module: torch.nn.Module, name: str, index: int) -> torch.Tensor:
    """View a buffer of model `index` in the array's `module`."""
    held = module._buffers[name]
    assert held is not None
    return held.data.narrow(0, index, 1)


@contextmanager
def _own_numbers() -> Iterator[None]:
    """Context manager: seed torch's generator from the model's stream; restores the generator on exit."""
    global _loans
    with _lock:  # it belongs to all threads
        _loans += 1
        # The seed is that of every GPU.
        devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(seeds_of(next_stream(1))[0])
            yield


@contextmanager
def _checkpoints_of_torchs() -> Iterator[None]:
    """Context manager: hide the array's forward from code that asks for one, such as a checkpoint."""
    before, state.random = state.random, None
    try:
        yield
    finally:
        state.random = before


_lock = threading.RLock()
_loans = 0


def generator_loans() -> int:
    """Count how often torch's generator was lent to a model for a while."""
    return _loans


def _may_be_written(leaf: Any) -> bool:
    """True for anything but a tensor, and for a tensor in which each model has memory of its own."""
    if type(leaf) is not ModelTensor:
        return not isinstance(leaf, torch.Tensor)
    value = leaf.value
    return not (value.is_leaf and value.requires_grad) and (value.size(0) == 1 or value.stride(0) != 0)


def _parts(tensor: ModelTensor) -> Sequence[torch.Tensor]:
    """Split a tensor of all models into one per model, in the memory order that torch's layers give."""
    value = tensor.value
    return (value.contiguous() if tensor.of_layer else value).unbind(0)


def _of_model(leaves: Sequence[Any], parts: Sequence[Any], index: int) -> list[Any]:
    pairs = zip(leaves, parts, strict=True)
    return [leaf if own is None else own[index] for leaf, own in pairs]


def _of_one(leaves: Sequence[Any], split: Sequence[Any], index: int) -> list[Any]:
    pairs = zip(leaves, split, strict=True)
    return [leaf if parts is None else ModelTensor(parts[index]) for leaf, parts in pairs]


def _called(tree: Any, args: Any, kwargs: Any, lent: Lent) -> Any:
    before = state.B, state.lent
    state.B, state.lent = 1, (*state.lent, *lent)
    mark = len(state.pending)
    try:
        with own_parametrizations():
            output = tree(*args, **kwargs)
        settle_since(mark)  # all of it: soon the part does not hold its parameters any more
        return output
    finally:
        state.B, state.lent = before


def _views(value: torch.Tensor) -> list[torch.Tensor]:
    # `.data` starts a version counter of its own: what a model writes is no change of another's.
    return [value.data.narrow(0, index, 1) for index in range(value.size(0))]


def _stream_of(owner: Any, index: int) -> Any:
    stream = getattr(owner, "_buffers", {}).get(FUNCTION_STREAM)
    if stream is None:
        return owner
    return SimpleNamespace(_buffers={FUNCTION_STREAM: stream.narrow(0, index, 1)})


def _detached_copy(value: Any, memo: dict[int, Any]) -> Any:
    # What a forward has made of parameters (a normalized weight) refers to their gradients, which no copy has.
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return copied(value, memo)


def _wrapped(value: torch.Tensor) -> ModelTensor:
    """Wrap outputs of arrays of one, `[B, 1, ...]`, as one model's code sees them."""
    return ModelTensor(value.flatten(0, 1))
