# SPDX-License-Identifier: MIT
"""Run the models of a module one by one, for code that cannot run for all of them at once.

Each model is an array of one, which shares the state of the array: its layers and its random streams are the same, and
questions like `if x.sum() > 0` have an answer. Where even that cannot run (an autograd.Function of the user's, a
scripted function), one plain torch module computes one model; its dropout then draws from torch's generator.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from ..._torch import mark_parameter, tree_flatten, tree_leaves, tree_map, tree_unflatten
from ...nn.array_module import ArrayModule
from ...nn.model_tensor import ModelTensor, NotFusable, WritesShared, outside, state, wrap
from ...nn.random_streams import FUNCTION_STREAM, seeds_of
from ...ops.partial_use import split_by_model
from ..rules.random import next_stream
from ..rules.table import settle_since
from ..single_model import model_of, with_dense_gradients
from ..slices import narrow
from .fused_attributes import INTERNAL

_NO_ATTRIBUTES = frozenset((*vars(torch.nn.Module()), *INTERNAL))
_NUMBERS = (bool, int, float, complex, str)


_changes = 0  # attributes that were set from outside, in any array


def note_change() -> None:
    """Note that an attribute of some module was set outside of a forward: copies of modules may lack it."""
    global _changes
    _changes += 1


Held = list[tuple[torch.nn.Module, str, str, torch.Tensor]]
Lent = Sequence[tuple[torch.nn.Module, str, str, Callable[[], torch.Tensor]]]
Put = dict[tuple[torch.nn.Module, str, str], Sequence[torch.Tensor | None]]


class ModelParts:
    """Models of `module` that run one by one. `trees` are those of models whose attributes differ."""

    def __init__(self, module: Any, trees: Sequence[torch.nn.Module] | None = None) -> None:
        self.module = module
        self.own = trees is not None
        self.trees: list[Any] = list(trees or [])
        self._plain: torch.nn.Module | None = None
        self._made_at = _changes  # copies of the module are made anew after a change
        self._draws: dict[
            bool, bool
        ] = {}  # whether that draws from torch's generator, when training and when not

    def __getstate__(self) -> dict[str, Any]:
        """Leave out, in a copy, the modules made for calls: they hold tensors of the last one, and are made again."""
        return {**vars(self), "_plain": None, "trees": self.trees if self.own else []}

    def attributes(self, index: int, target: torch.nn.Module) -> dict[str, Any]:
        """Copy the plain attributes of model `index` that may differ, with modules of `target` in them."""
        if not self.own:
            return {}
        tree, withheld = self.trees[index], self.module._fused_withheld
        # A layer of ours has attributes of its own, and some of torch's in another form.
        held = vars(model_of(tree, 0) if isinstance(tree, ArrayModule) else tree)
        parts = dict(target.named_modules())
        memo = {id(part): parts[path] for path, part in tree.named_modules() if path in parts}
        return {
            name: copy.deepcopy(value, memo)
            for name, value in held.items()
            if name in withheld or (name not in _NO_ATTRIBUTES and isinstance(value, _NUMBERS))
        }

    def __call__(self, args: Any, kwargs: Any) -> Any:
        if self._made_at != _changes and not self.own:
            self.trees, self._plain, self._made_at = [], None, _changes
        if self.module._fused_B == 1 and not self.own:
            return self._as_torch(args, kwargs)
        if not self.own and len(self.trees) != self.module._fused_B:
            self.trees = [narrow(self.module, index, 1) for index in range(self.module._fused_B)]
            for tree in self.trees:
                tree._fused_report.reason, tree._fused_parts = "", None
        leaves, spec = tree_flatten((args, kwargs))
        split = [torch.split(leaf.value, 1) if type(leaf) is ModelTensor else None for leaf in leaves]
        outputs = []
        owner = state.random
        held, put, lent = self._put_state()
        try:
            for index, tree in enumerate(self.trees):
                state.random = _stream_of(owner, index)
                inner_args, inner_kwargs = tree_unflatten(_of_model(leaves, split, index), spec)
                outputs.append(_called(tree, inner_args, inner_kwargs, lent[index]))
            self._take_buffers(put)
        finally:
            state.random = owner
            for module, names, name, value in held:
                _put(module, names, name, value)
        return _joined(outputs)

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

    def _called_as_torch(self, args: Any, kwargs: Any) -> Any:
        assert self._plain is not None
        training = self._plain.training
        if self._draws.get(training) is False:
            return self._plain(*args, **kwargs)
        with _own_numbers() as start:
            output = self._plain(*args, **kwargs)
            self._draws[training] = (
                not torch.equal(start, torch.get_rng_state()) or torch.cuda.is_initialized()
            )
        return output

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
                            _put(owner, names, name, part)
        return held, put, lent

    def _as_torch(self, args: Any, kwargs: Any) -> Any:
        if self._plain is None:
            self._plain = with_dense_gradients(model_of(self.module, 0))
        put = []
        theirs = dict(self._plain.named_modules())
        for path, module in self.module.named_modules():
            own = theirs.get(path)
            if own is None:
                continue  # a part that only our layer has
            own.train(module.training)
            for names in ("_parameters", "_buffers"):
                for name, value in getattr(module, names).items():
                    if name not in getattr(own, names):
                        continue
                    part = None if value is None else value[0]
                    if part is not None:
                        if names == "_parameters":
                            part = part.contiguous()  # as torch's own is
                            mark_parameter(part)
                        _put(own, names, name, part)
                    if names == "_buffers":
                        put.append((module, own, name, part))

        def first(value: Any) -> Any:
            return value.value[0].contiguous() if type(value) is ModelTensor else value

        plain = [
            a
            for a in tree_leaves((args, kwargs))
            if isinstance(a, torch.Tensor) and type(a) is not ModelTensor
        ]
        versions = [leaf._version for leaf in plain]
        args, kwargs = tree_map(first, (args, kwargs))
        with outside():
            output = self._called_as_torch(args, kwargs)
        if [leaf._version for leaf in plain] != versions:
            raise WritesShared(f"{type(self._plain).__name__} writes into a tensor that it is given")
        for module, own, name, part in put:
            now = own._buffers[name]
            if now is not part:
                module._buffers[name] = None if now is None else now.detach().unsqueeze(0)
        return tree_map(lambda o: wrap(o.unsqueeze(0)) if isinstance(o, torch.Tensor) else o, output)


@contextmanager
def lent_again(lent: Lent) -> Iterator[None]:
    """Context manager: modules hold what they were `lent` for a call; buffers as they are now in the array."""
    held = [(owner, names, name, getattr(owner, names)[name]) for owner, names, name, _ in lent]
    parts = [part() for *_, part in lent]
    try:
        for (owner, names, name, _), part in zip(lent, parts, strict=True):
            _put(owner, names, name, part)
        yield
    finally:
        for (owner, names, name, value), part in zip(held, parts, strict=True):
            now = getattr(owner, names)[name]
            if now is not part and now is not None:
                part.copy_(now.detach())
            _put(owner, names, name, value)


def _buffer(module: torch.nn.Module, name: str, index: int) -> torch.Tensor:
    """View a buffer of model `index` in the array's `module`."""
    held = module._buffers[name]
    assert held is not None
    return held.data.narrow(0, index, 1)


@contextmanager
def _own_numbers() -> Iterator[torch.Tensor]:
    """Context manager: seed torch's generator from the model's stream; restores the generator on exit."""
    with _lock:  # it belongs to all threads
        devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(seeds_of(next_stream(1))[0])
            yield torch.get_rng_state()


_lock = threading.RLock()


def _put(module: torch.nn.Module, names: str, name: str, value: torch.Tensor) -> None:
    """Replace a parameter or buffer, also where the module holds it in a plain list (as torch's RNNs do)."""
    held = getattr(module, names)
    for attribute in vars(module).values():
        if type(attribute) is list:
            for place, item in enumerate(attribute):
                if item is held[name]:
                    attribute[place] = value
    held[name] = value


def _of_model(leaves: Sequence[Any], split: Sequence[Any], index: int) -> list[Any]:
    pairs = zip(leaves, split, strict=True)
    return [leaf if parts is None else ModelTensor(parts[index]) for leaf, parts in pairs]


def _called(tree: Any, args: Any, kwargs: Any, lent: Lent) -> Any:
    before = state.B, state.lent
    state.B, state.lent = 1, (*state.lent, *lent)
    mark = len(state.pending)
    try:
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


def _joined(outputs: list[Any]) -> Any:
    """Stack the outputs of the models."""
    flat = [tree_flatten(output) for output in outputs]
    for index, (_, spec) in enumerate(flat):
        if spec != flat[0][1]:
            raise NotFusable(f"models 0 and {index} give outputs of different structure")
    joined: list[Any] = []
    for leaves in zip(*(leaves for leaves, _ in flat), strict=True):
        if any(isinstance(leaf, torch.Tensor) for leaf in leaves):
            values = [leaf.value if type(leaf) is ModelTensor else leaf.unsqueeze(0) for leaf in leaves]
            for index, value in enumerate(values):
                if value.shape != values[0].shape:
                    raise NotFusable(
                        f"models 0 and {index} give outputs of different shape: {list(values[0].shape[1:])} and "
                        f"{list(value.shape[1:])}"
                    )
            joined.append(ModelTensor(torch.cat(values)))
        else:
            for index, leaf in enumerate(leaves):
                if leaf is not leaves[0] and type(leaf).__eq__ is not object.__eq__ and leaf != leaves[0]:
                    raise NotFusable(
                        f"models 0 and {index} give different outputs: {leaves[0]!r} and {leaf!r}"
                    )
            # Objects that cannot be compared, a cache for example, stay each model's own.
            opaque = leaves[0] is not None and type(leaves[0]).__eq__ is object.__eq__
            joined.append(list(leaves) if opaque else leaves[0])
    return tree_unflatten(joined, flat[0][1])
