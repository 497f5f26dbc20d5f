# SPDX-License-Identifier: MIT
"""B ordinary torch modules on the storage of an array's module: the loop that a user would write, at its price.

Their parameters and buffers are views of the array's, so edits, `state_dict` and optimizers see one set of tensors.
Layers of torch's that draw random numbers draw those of the array.
"""

from __future__ import annotations

import copy
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import torch

from ..._code import keeps_state
from ..._torch import TorchDispatchMode, mark_parameter, tree_leaves, tree_map
from ...nn.array_module import ArrayModule
from ...nn.model_tensor import ModelTensor, state
from ..hooks import take_hooks
from ..single_model import model_of, with_dense_gradients
from ..slices import narrow
from .checkpoints import torchs_checkpoints
from .fused_attributes import NO_ATTRIBUTES, is_fused
from .kept_state import KeptOutside, SharedNumbers, contents_in
from .late_draws import handles_gradients, may_write_parameters, names_that_draw
from .lent_parameters import OwnGradients, lent, let_take, lies_in_another_order
from .method_name import call_model, method_named
from .plain_draws import Draws, draw_as, generator_back
from .plain_parts import Buffers, Part, paths_of

WRITES_ARGUMENTS = "its code writes into its arguments"
_KNOWN_LEAVES = (torch.Tensor, bool, int, float, complex, str, type(None), torch.dtype, torch.device)


class PlainModels:
    """The models of `module` as torch modules of the user's own classes, which share its storage."""

    def __init__(self, module: Any, B: int) -> None:
        self.module, self.B = module, B
        self.has_run = False  # what the models' code has set is in these models
        self.models: list[Any] = [with_dense_gradients(model_of(module, index, copied=False)) for index in range(B)]
        self._take_over_parts()
        self._trees = [dict(model.named_modules()) for model in self.models]
        self._parts = [Part(part, owners) for path, part in paths_of(module) if (owners := self._counterparts(path))]
        self._streams: list[tuple[Any, list[Any], Any]] = []
        self._find_state()
        for part in self._parts:
            for owner in part.owners:
                take_hooks(part.module, owner)
        self._refusals: dict[Any, str] = {}
        self._writing: set[Any] = set()  # calls that write, or may, into parameters
        self._acting: set[Any] = set()  # calls that set attributes
        self._flipping: dict[str, bool] = {}  # by method: its code names flags or gradients

    def _take_over_parts(self) -> None:
        """Adopt parts that ran one by one already, with the attributes that their code has set."""
        for path, part in self.module.named_modules():
            held = part.__dict__.get("_fused_parts")
            if path and held is not None and held.plain is not None and held.plain.follow():
                above, _, name = path.rpartition(".")
                for model, own in zip(self.models, held.plain.models, strict=True):
                    model.get_submodule(above)._modules[name] = own

    def _counterparts(self, path: str) -> list[Any]:
        return [tree[path] for tree in self._trees if path in tree]

    def _find_state(self) -> None:
        self._parameters: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
        self._buffers: list[Buffers] = []
        self._places: list[tuple[Any, Any, dict[str, Any], str, bool]] = []
        for path, module in self.module.named_modules():
            owners = self._counterparts(path)
            if not owners:
                continue  # a part that only our layer has
            if "rng" in module._buffers and not module._parameters:
                self._streams.append((module, owners, None))
            if any(name in owners[0]._parameters for name in module._parameters):
                self._parameters.append((module._parameters, [owner._parameters for owner in owners]))
            shared = getattr(module, "shared_buffers", ())
            for name in module._buffers:
                if name in owners[0]._buffers and name not in shared:
                    self._buffers.append(Buffers(module._buffers, name, [owner._buffers for owner in owners]))
        self.complete = self._find_places()

    def _find_places(self) -> bool:
        """Find the lists and dictionaries that hold parameters (as torch's RNNs do); False if one cannot be written."""
        lent_names = {id(held) for _, owners in self._parameters for held in owners}
        complete = True
        for tree in self._trees:
            owned = {}
            for module in tree.values():
                for name, value in module._parameters.items():
                    if value is not None:
                        owned[id(value)] = (module._parameters, name)
                        complete = complete and id(module._parameters) in lent_names
            for module in tree.values():
                for name, value in vars(module).items():
                    if name not in NO_ATTRIBUTES:
                        complete = self._search(value, owned, 4) and complete
        return complete

    def _search(self, value: Any, owned: dict[int, Any], depth: int) -> bool:
        if isinstance(value, (list, dict)):
            items = list(enumerate(value)) if isinstance(value, list) else list(value.items())
            inner = []
            for key, item in items:
                weak = isinstance(item, weakref.ref)  # as torch's RNNs have beside the list
                found = owned.get(id(item() if weak else item))
                if found is None:
                    inner.append(item)
                else:
                    self._places.append((value, key, *found, weak))
            found_all = [depth > 0 and self._search(item, owned, depth - 1) for item in inner]
            return all(found_all)
        if isinstance(value, (tuple, set, frozenset)):
            return not any(id(item) in owned for item in value)
        return id(value) not in owned

    # -- before and after a call -------------------------------------------------------------------------------------

    def follow(self) -> bool:
        """Take over what was set in the array since the last call; False if the models must be made anew."""
        followed = [part.follow() for part in self._parts]
        return all(followed)

    def marks(self) -> Callable[[], None]:
        """Keep what is known of the last call, around a trial; return a function that brings it back."""
        kept = [part.marks() for part in self._parts]

        def put_back() -> None:
            for one in kept:
                one()

        return put_back

    def _lend(self, apart: bool, flips: bool) -> OwnGradients | None:
        """Lend the array's parameters and buffers to the models; `apart` for code that writes into parameters.

        Code that `flips` flags, or looks at gradients, runs in the mode that is returned.
        """
        places: dict[int, int] = {}
        stacked: list[torch.Tensor] = []
        for held, _ in self._parameters:
            for value in held.values():
                if value is not None and id(value) not in places:
                    places[id(value)] = len(stacked)
                    stacked.append(value)
        flags = let_take(stacked) if flips else []
        parts = lent(stacked, apart)
        for own in parts:
            for part in own:
                mark_parameter(part)
        for held, owners in self._parameters:
            for name, value in held.items():
                if value is not None and name in owners[0]:
                    for owner, part in zip(owners, parts[places[id(value)]], strict=True):
                        owner[name] = part
        for container, key, owner, name, weak in self._places:
            container[key] = weakref.ref(owner[name]) if weak else owner[name]
        for buffers in self._buffers:
            buffers.lend()
        self._lend_streams()
        return OwnGradients(stacked, parts, flags) if flips else None

    def _lend_streams(self) -> None:
        for place, (module, owners, known) in enumerate(self._streams):
            rates = module._buffers.get("p")
            now = [module._buffers["rng"], rates, None if rates is None else rates._version]
            if known is None or known[2] != now[2] or any(a is not b for a, b in zip(now[:2], known, strict=False)):
                for index, owner in enumerate(owners):
                    draw_as(owner, narrow(module, index, 1))
                self._streams[place] = (module, owners, now)

    # -- calls -------------------------------------------------------------------------------------------------------

    def refusal(self, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
        """Explain why plain models do not compute what the array must; an empty string if they do.

        The first call in a mode of training runs a copy of model 0 to see it.
        """
        key = self._kind_of(args)
        if key not in self._refusals:
            self._refusals[key] = self._looked_at(args, kwargs)
        return self._refusals[key]

    def known_refusal(self, args: Sequence[Any]) -> str | None:
        """Return what `refusal` said of earlier calls of the kind; None before the first."""
        return self._refusals.get(self._kind_of(args))

    def has_side_effects(self, args: Sequence[Any]) -> bool:
        """Return True if a call with `args`, which was looked at, sets attributes or has hooks."""
        return self._kind_of(args) in self._acting

    def _kind_of(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """Describe what decides which code a call runs: the method, and the modules in training."""
        return method_named(args), *(part.module.training for part in self._parts)

    def _looked_at(self, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
        if not self.complete or not hasattr(TorchDispatchMode, "__torch_dispatch__"):
            return "a parameter is held where it cannot be exchanged"
        if any(is_fused(m) and not m._fused_code for m in self.module.modules()):
            return "a module has a forward for all models"
        if names_that_draw(self.module, method_named(args)):
            return "its code may draw random numbers"
        leaves = tree_leaves((args, kwargs))
        if any(not isinstance(leaf, _KNOWN_LEAVES) or type(leaf) is ModelTensor for leaf in leaves):
            return "an argument is not a tensor"
        model = self._stranger()
        if any(map(_remembers, model.modules())):
            return "it holds a function that remembers earlier calls"
        own_args, own_kwargs = tree_map(_cloned, (args, kwargs))
        given = [leaf for leaf in tree_leaves((own_args, own_kwargs)) if isinstance(leaf, torch.Tensor)]
        before = [tensor._version for tensor in (*given, *model.parameters())]
        attributes = {path: dict(vars(module)) for path, module in model.named_modules()}
        outside = KeptOutside(model, method_named(args), [*args, *kwargs.values()])
        if outside.unknown:
            return f"its code can reach a {outside.unknown}, which a trial would move on"
        contents = contents_in(model.modules())
        state.checkpointed = False
        numbers = SharedNumbers()
        acts = False
        try:
            with torchs_checkpoints, Draws() as draws, generator_back(draws):
                output = call_model(model, own_args, own_kwargs)
        finally:
            acts = numbers.moved() or outside.changed() or contents.changed()
            numbers.put_back()  # the models themselves draw them next
            outside.put_back()
        after = [tensor._version for tensor in (*given, *model.parameters())]
        kind, writes = self._kind_of(args), after[len(given) :] != before[len(given) :]
        in_order = not any(map(lies_in_another_order, self.module.parameters()))
        writes_later = in_order and may_write_parameters(self.module, method_named(args))
        self._writing |= {kind} if writes or writes_later else set()
        self._acting |= {kind} if acts or self._seen_from_outside(model, attributes) else set()
        if draws.drew:
            return "its code draws random numbers"
        if writes and not in_order:
            return "its code writes into parameters"
        if state.checkpointed and self._buffers:
            return "its checkpoints may write buffers in the backward pass"
        if after[: len(given)] != before[: len(given)]:
            return WRITES_ARGUMENTS
        if any(type(leaf) is ModelTensor for leaf in tree_leaves(output)):
            return "its code looks at tensors of other modules"
        return ""

    def _seen_from_outside(self, model: Any, before: dict[str, Any]) -> bool:
        """True if a forward has effects outside of parts that run model by model anyway: on attributes, or through
        hooks."""
        apart = tuple(
            path for path, part in self.module.named_modules() if is_fused(part) and part._fused_report.reason and path
        )
        for path, module in model.named_modules():
            if any(path == name or path.startswith(f"{name}.") for name in apart):
                continue
            if module._forward_hooks or module._forward_pre_hooks or _differ(before[path], vars(module)):
                return True
        return False

    def _stranger(self) -> Any:
        """Copy model 0, storage and random streams included: its forward changes nothing of the array."""
        model = with_dense_gradients(model_of(self.module, 0))
        for path, module in self.module.named_modules():
            if any(module is part for part, _, _ in self._streams):
                draw_as(model.get_submodule(path), copy.deepcopy(narrow(module, 0, 1)))
        return model

    def run(self, given: Sequence[tuple[Sequence[Any], dict[str, Any]]]) -> list[Any]:
        """Call each model with its own arguments; return the models' outputs. Not inside code of all models."""
        writes = self._kind_of(given[0][0]) in self._writing
        method = method_named(given[0][0])
        if method not in self._flipping:
            self._flipping[method] = handles_gradients(self.models[0], method)
        self.has_run = True
        with self._lend(writes, self._flipping[method]) or nullcontext():
            outputs = [call_model(model, *arguments) for model, arguments in zip(self.models, given, strict=True)]
        if writes:
            self._take_parameters()
        for buffers in self._buffers:
            buffers.take()
        for part in self._parts:
            part.take()
        return outputs

    @torch.no_grad()
    def _take_parameters(self) -> None:
        """Copy what the models' code has put in the place of a parameter's memory, by `.data = ...`, to the array."""
        for held, owners in self._parameters:
            for name, value in held.items():
                for index, owner in enumerate(owners if value is not None else ()):
                    part = owner.get(name)
                    row = value.data[index]
                    if part is not None and part.data_ptr() != row.data_ptr():
                        row.copy_(part.data)

    def attributes(self, index: int) -> Iterator[tuple[torch.nn.Module, dict[str, Any]]]:
        """Yield each module of the array and the attributes that model `index` has there."""
        for part in self._parts:
            if not isinstance(part.module, ArrayModule):
                yield part.module, vars(part.owners[index])


def _cloned(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def _remembers(module: torch.nn.Module) -> bool:
    """Return True for a module with a function that a call of a copy would change, too."""
    return any(isinstance(held, types.FunctionType) and keeps_state(held) for held in vars(module).values())


def _differ(before: dict[str, Any], after: dict[str, Any]) -> bool:
    return before.keys() != after.keys() or any(before[name] is not value for name, value in after.items())
