# SPDX-License-Identifier: MIT
"""B ordinary torch modules on the storage of an array's module: the loop that a user would write, at its price.

Their parameters and buffers are views of the array's, so edits, `state_dict` and optimizers see one set of tensors.
Their random numbers are those of the array (`draws.py`), and what their code sets in Python stays in them
(`plain_parts.py`). The first call in a mode of training runs a copy of model 0, which tells what the code does.
"""

from __future__ import annotations

import collections
import copy
import types
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from operator import is_
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

from ..._code import keeps_state
from ..._torch import TorchDispatchMode, hidden_from_modes, mark_parameter, tree_leaves, tree_map
from ...nn.array_module import ArrayModule
from ...nn.model_tensor import ModelTensor, state
from ...nn.random_streams import FUNCTION_STREAM
from ...ops.shared import is_shared
from ..hooks import counterparts, take_hooks
from ..left_tensors import parts_in_place
from ..rules.once import shared_write
from ..single_model import model_of, narrow, paths_of, with_dense_gradients
from .call_user_code import call_model, method_named, torchs_checkpoints
from .draws import ONE_GENERATOR, Draws, StreamDraws, draw_as, seeded_generator
from .kept_state import KeptOutside, SharedNumbers, contents_in
from .late_draws import handles_gradients, may_write_parameters, names_that_draw, reachable
from .lent_parameters import OwnGradients, OwnMemory, lent, let_take
from .own_values import NO_ATTRIBUTES, is_fused
from .plain_parts import Buffers, Part

_KNOWN_LEAVES = (torch.Tensor, bool, int, float, complex, str, type(None), torch.dtype, torch.device)


@dataclass
class Seen:
    """Effects of a kind of call: those of its trial or, where it was not to be tried, all that it may have."""

    refusal: str = ""  # why a loop at the price of plain models does not compute what the array must
    writes: bool = False  # into parameters
    flips: bool = False  # names flags or gradients
    acts: bool = False  # sets attributes, or has hooks
    writes_arguments: bool = True  # into what it is given
    draws: bool = True  # from the streams of the array; or what a checkpoint runs again is the array's to note
    by_generator: bool = False  # from torch's generator
    counts_places: bool = False  # of a parameter or buffer from the start of its memory


class PlainModels:
    """The models of `module` as torch modules of the user's own classes, which share its storage."""

    def __init__(self, module: Any, B: int, before: PlainModels | None = None) -> None:
        """`before` are those that these take the place of: what their code has set goes on."""
        self.module, self.B = module, B
        self.complete = True  # all parameters can be exchanged
        self.has_run = False  # what the models' code has set is in these models
        with hidden_from_modes():  # made in some steps only, which is nothing for a recorder
            self.models: list[Any] = [with_dense_gradients(model_of(module, index, copied=False)) for index in range(B)]
        self._adopted: list[tuple[Any, Any, PlainModels]] = []  # a part, its models that run one by one, and these
        self._take_over_parts()
        self._trees = [dict(model.named_modules()) for model in self.models]
        known: dict[int, Part] = {id(part.module): part for *_, plain in self._adopted for part in plain._parts}
        report = vars(vars(module).get("_root", module)).get("_fused_report")
        apart = report is not None and bool(report.reason)
        pairs = [(part, owners) for path, part in paths_of(module) if (owners := self._counterparts(path))]
        self._parts: list[Part] = [
            one
            if (one := known.get(id(part))) is not None and all(map(is_, one.owners, owners))
            else Part(part, owners, apart)
            for part, owners in pairs
        ]
        self._streams: list[tuple[Any, list[Any], list[Any]]] = []
        self._find_state()
        copies = {id(part.owners[0]): part.module for part in self._parts}
        for part in self._parts:
            part.copies = copies
            for owner in () if part is known.get(id(part.module)) else part.owners:  # adopted ones have them
                take_hooks(part.module, owner)
        self._seen: dict[Any, Seen] = {}  # by kind of call
        if before is not None:
            self._begin_as(before)

    def _begin_as(self, before: PlainModels) -> None:
        """Let the models have what the code of those `before` has left in attributes of the user's modules."""
        self.has_run = before.has_run
        memos = [counterparts(old, new) for old, new in zip(before.models, self.models, strict=True)]
        known = {id(part.module): part for part in before._parts}
        adopted = {id(part) for *_, plain in self._adopted for part in plain._parts}
        for part in self._parts:
            old = known.get(id(part.module))
            if old is not None and is_fused(part.module) and id(part) not in adopted:
                part.begin_as(old, memos)

    def _take_over_parts(self) -> None:
        """Adopt the models of parts that run one by one: what their code has set, and sets from now on, is in these,
        whether they run as a part or in the whole. Those of a part that refers to its parent run in the whole only:
        the parent that they refer to is made with them."""
        for path, part in self.module.named_modules():
            held = part.__dict__.get("_fused_parts") if path else None
            if held is None or part._fused_refers_outside():
                continue
            if held.own or held.plain is not None:
                self._adopted.append((part, held, held.plain_models()))
                above, _, name = path.rpartition(".")
                for model, own in zip(self.models, held.plain.models, strict=True):
                    model.get_submodule(above)._modules[name] = own

    def _counterparts(self, path: str) -> list[Any]:
        return [tree[path] for tree in self._trees if path in tree]

    def _find_state(self) -> None:
        self._parameters: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
        self._shared: list[tuple[torch.Tensor, Sequence[torch.Tensor]]] = []  # of code that may write, as lent
        self._buffers: list[Buffers] = []
        self._places: list[tuple[Any, Any, Callable[[], Any]]] = []
        for path, module in self.module.named_modules():
            owners = self._counterparts(path)
            if not owners:
                continue  # a part that only our layer has
            if self._runs_as_array(path, module):
                self._streams.append((module, owners, []))
            if any(name in owners[0]._parameters for name in module._parameters):
                self._parameters.append((module._parameters, [owner._parameters for owner in owners]))
            shared = getattr(module, "shared_buffers", ())
            for name in module._buffers:
                if name in owners[0]._buffers and name not in shared:
                    self._buffers.append(Buffers(module._buffers, name, [owner._buffers for owner in owners]))
        self._find_places()

    def _find_places(self) -> None:
        """Find what else holds parameters or buffers: attributes, and lists (as torch's RNNs have), tuples, objects."""
        lent_names = {id(held) for _, owners in self._parameters for held in owners}
        for tree in self._trees:
            owned = {}
            for module in tree.values():
                for name, value in module._parameters.items():
                    if value is not None:
                        owned[id(value)] = (module._parameters, name)
                        self.complete = self.complete and id(module._parameters) in lent_names
                owned.update((id(b), (module._buffers, name)) for name, b in module._buffers.items() if b is not None)
            seen = set[int]()
            for module in tree.values():
                held = vars(module)
                self._places += [
                    (held, name, make)
                    for name, value in held.items()
                    if name not in NO_ATTRIBUTES and (make := self._maker(value, owned, seen)) is not None
                ]

    def _maker(self, value: Any, owned: dict[int, Any], seen: set[int]) -> Callable[[], Any] | None:
        """Return what makes `value` anew, of the parameters that are lent; None if it is or holds none."""
        weak = isinstance(value, weakref.ref)  # as torch's RNNs have beside the list
        registry, name = owned.get(id(value() if weak else value), (None, ""))
        if registry is not None:
            return (lambda: weakref.ref(registry[name])) if weak else (lambda: registry[name])
        value = () if type(value) in _KNOWN_LEAVES or isinstance(value, torch.Tensor) else parts_in_place(value)
        if not value or id(value) in seen:
            return None
        stays = isinstance(value, (list, dict, collections.deque))
        if stays:
            seen.add(id(value))
        items = list(dict.items(value)) if isinstance(value, dict) else list(enumerate(value))
        makers = [self._maker(item, owned, seen) for _, item in items]
        if stays:
            self._places += [
                (value, key, make) for (key, _), make in zip(items, makers, strict=True) if make is not None
            ]
            return None
        if not any(makers):
            return None
        build: Any = getattr(type(value), "_make", type(value))  # the former: a named tuple's
        return lambda: build([item if make is None else make() for (_, item), make in zip(items, makers, strict=True)])

    def _runs_as_array(self, path: str, module: Any) -> bool:
        """Return True for a module that draws in a way that torch's does not, or whose forward is for `[B, ...]`."""
        if is_fused(module):
            return not module._fused_code
        inner = [part for name, part in module.named_children() if not self._counterparts(f"{path}.{name}".lstrip("."))]
        return isinstance(module, ArrayModule) and any("rng" in one._buffers for one in (module, *inner))

    # -- before and after a call -------------------------------------------------------------------------------------

    def follow(self) -> bool:
        """Take over what was set in the array since the last call; False if the models must be made anew."""
        for part, held, plain in self._adopted:
            if part.__dict__.get("_fused_parts") is not held or held.plain is not plain:
                return False
        followed = [part.follow() for part in self._parts]
        return all(followed)

    def replaced(self) -> set[str]:
        """Name the attributes of the module that were set in the array since, and that the models could not take."""
        self.follow()
        return self._parts[0].replaced

    def outdate(self) -> None:
        """Let the models be made anew before the next call."""
        self._parts[0].outdated = True

    def layers_set(self) -> list[Any]:
        """List what the models' code has set in layers, by the place of the layer."""
        found = [(place, part.settings_set()) for place, part in enumerate(self._parts if self.has_run else ())]
        return [one for one in found if one[1]]

    def give_settings(self) -> None:
        """Give the array's layers what the models' code has set in theirs."""
        for part in self._parts if self.has_run else ():
            part.give_settings()

    def show(self) -> list[tuple[Part, set[str]]]:
        """Let the array's modules have what all models' code has left alike; list the parts with what differs."""
        shown = [(part, part.show()) for part in self._parts if is_fused(part.module)] if self.follow() else []
        return [(part, names) for part, names in shown if names]

    def acted(self) -> bool:
        """Return True if the last call of the models has set what a trial had left alone, and the array does not
        have."""
        found = [part.acted() for part in self._parts]  # each looks
        return any(found)

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
        self._shared = [pair for pair in zip(stacked, parts, strict=True) if apart and is_shared(pair[0])]
        for own in parts:
            for part in own:
                mark_parameter(part)
        for held, owners in self._parameters:
            for name, value in held.items():
                if value is not None and name in owners[0]:
                    for owner, part in zip(owners, parts[places[id(value)]], strict=True):
                        owner[name] = part
        for container, key, make in self._places:
            container[key] = make()
        for buffers in self._buffers:
            buffers.lend()
        self._lend_streams()
        return OwnGradients(stacked, parts, flags) if flips else None

    def _lend_streams(self) -> None:
        for place, (module, owners, known) in enumerate(self._streams):
            now = [
                (buffer, buffer._version if name == "p" else 0)
                for part in module.modules()
                for name, buffer in part._buffers.items()
                if name in ("p", "rng")
            ]
            if [(id(one), version) for one, version in known] != [(id(one), version) for one, version in now]:
                for index, owner in enumerate(owners):
                    draw_as(owner, narrow(module, index, 1), is_fused(module))
                self._streams[place] = (module, owners, now)

    # -- calls -------------------------------------------------------------------------------------------------------

    def known(self, args: Sequence[Any]) -> Seen | None:
        """Return what earlier calls of the kind of `args` do; None before the first."""
        return self._seen.get(self._kind_of(args))

    @property
    def may_act(self) -> bool:
        """True if a call of a kind that was looked at sets attributes, or could not be tried."""
        return any(seen.acts for seen in self._seen.values())

    def _kind_of(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """Describe what decides which code a call runs: the method, and the modules in training."""
        return method_named(args), *(part.module.training for part in self._parts)

    def seen(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Seen:
        """Return what calls of this kind do; the first of a kind is tried on a copy of model 0."""
        key = self._kind_of(args)
        if key not in self._seen:
            code = reachable(self.module, method_named(args))
            found = self._seen[key] = Seen(  # that it acts is so until a trial says otherwise
                writes=may_write_parameters(code), flips=handles_gradients(code), acts=True
            )
            named = bool(names_that_draw(code))
            found.refusal = self._not_to_be_tried(args, kwargs) or self._tried(found, named, args, kwargs)
        return self._seen[key]

    def _not_to_be_tried(self, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
        if not self.complete or not hasattr(TorchDispatchMode, "__torch_dispatch__"):
            return "a parameter is held where it cannot be exchanged"
        leaves = tree_leaves((args, kwargs))
        if any(not isinstance(leaf, _KNOWN_LEAVES) or type(leaf) is ModelTensor for leaf in leaves):
            return "an argument is not a tensor"
        held = (value for module in self.models[0].modules() for value in vars(module).values())
        if any(isinstance(value, types.FunctionType) and keeps_state(value) for value in held):  # of a copy, too
            return "it holds a function that remembers earlier calls"
        return ""

    def _tried(self, seen: Seen, named: bool, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
        """Run a copy of model 0, which leaves nothing, and note what it does; return the refusal.

        Args:
            named: its code names what draws.
        """
        state.turns += 1
        model = self._stranger()
        outside = KeptOutside(model, reachable(model, method_named(args)), [*args, *kwargs.values()])
        if outside.unknown:
            return f"its code can reach a {outside.unknown}, which a trial would move on"
        own_args, own_kwargs = tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) else v, (args, kwargs))
        given = [leaf for leaf in tree_leaves((own_args, own_kwargs)) if isinstance(leaf, torch.Tensor)]
        parameters = list(model.parameters())
        before = list(map(version_of, given)), list(map(version_of, parameters))
        attributes = {path: dict(vars(module)) for path, module in model.named_modules()}
        contents = contents_in(model.modules())
        state.checkpointed = False
        numbers, draws = SharedNumbers(), Draws()
        device = next((tensor.device for tensor in (*parameters, *model.buffers())), None)
        streams = StreamDraws(torch.zeros(1, 2, dtype=torch.int64, device=device))
        try:
            # A checkpoint around it must not count the tensors that are saved: its second run tries nothing.
            with saved_tensors_hooks(torch.Tensor.detach, lambda saved: saved), torchs_checkpoints, draws, streams.on():
                output = call_model(model, own_args, own_kwargs)
        finally:
            acts = numbers.moved() or outside.changed() or contents.changed()
            drew = draws.drew and numbers.torch_moved()  # other threads may move it, operators may draw nothing
            numbers.put_back(torchs=drew)  # the models themselves draw them next
            outside.restore()
        seen.acts = acts or self._seen_from_outside(model, attributes)
        seen.counts_places = draws.counts_in([*parameters, *model.buffers()])
        seen.writes_arguments = draws.counts_in(given) or list(map(version_of, given)) != before[0]
        seen.writes = seen.writes or list(map(version_of, parameters)) != before[1]
        seen.by_generator = drew
        again = state.checkpointed and bool(self._buffers or self._streams)
        seen.draws = drew or streams.drew or named or again
        reasons = {
            "a module has a forward for all models": any(
                is_fused(m) and not m._fused_code for m in self.module.modules()
            ),
            "its code draws random numbers": drew or streams.drew,
            "its code may draw random numbers": named,
            "its checkpoints may write buffers in the backward pass": again,
            "its code writes into its arguments": seen.writes_arguments,
            "its code counts places of a parameter": seen.counts_places,
            "its code looks at tensors of other modules": any(
                type(leaf) is ModelTensor for leaf in tree_leaves(output)
            ),
        }
        return next((reason for reason, holds in reasons.items() if holds), "")

    def _seen_from_outside(self, model: Any, before: dict[str, Any]) -> bool:
        """True if a forward has effects outside of parts that run model by model anyway: on attributes, or through
        hooks."""
        apart = tuple(
            path for path, part in self.module.named_modules() if is_fused(part) and part._fused_report.reason and path
        )
        for path, module in model.named_modules():
            if any(path == name or path.startswith(f"{name}.") for name in apart):
                continue
            old, now = before[path], vars(module)
            if module._forward_hooks or module._forward_pre_hooks or old.keys() != now.keys():
                return True
            if any(old[name] is not value for name, value in now.items()):
                return True
        return False

    def _stranger(self) -> Any:
        """Copy model 0, storage and random streams included: its forward changes nothing of the array."""
        model = with_dense_gradients(model_of(self.module, 0))
        for path, module in self.module.named_modules():
            if any(module is part for part, _, _ in self._streams):
                draw_as(model.get_submodule(path), copy.deepcopy(narrow(module, 0, 1)), is_fused(module))
        return model

    def run(self, given: Sequence[tuple[Sequence[Any], dict[str, Any]]], random: Any = None) -> list[Any]:
        """Call each model with its own arguments; return the models' outputs. Not inside code of all models.

        Args:
            random: holds the streams of functions that draw.
        """
        seen = self._seen.get(self._kind_of(given[0][0]), _UNSEEN)
        self.has_run = True
        for *_, plain in self._adopted:
            plain.has_run = True
        with self._lend(seen.writes, seen.flips) or nullcontext():
            outputs = []
            for index, arguments in enumerate(given):
                with OwnMemory() if self._shared else nullcontext() as own_memory:
                    outputs.append(self._call(index, seen, random, *arguments))
                if own_memory is not None:
                    self._refuse_shared_writes(index, own_memory)
        if seen.writes:
            self._take_parameters()
        self._take_buffers()
        for part in self._parts:
            part.take()
        return outputs

    def _refuse_shared_writes(self, index: int, own_memory: OwnMemory) -> None:
        """Refuse what the code of a model has written into a parameter that all models share."""
        for value, own in self._shared:
            if version_of(own[index]) != own_memory.times[id(own[index])] or own[index].data_ptr() != value.data_ptr():
                raise shared_write(next(name for name, held in self.module.named_parameters() if held is value))

    def _call(self, index: int, seen: Seen, random: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        stream = getattr(random, "_buffers", {}).get(FUNCTION_STREAM) if seen.draws else None
        if stream is None:
            return call_model(self.models[index], args, kwargs)
        draws = StreamDraws(stream.narrow(0, index, 1), self._take_buffers)
        seeded = seen.by_generator and self.module._fused_report.reason != ONE_GENERATOR
        with draws.on(), seeded_generator() if seeded else nullcontext():
            return call_model(self.models[index], args, kwargs)

    def _take_buffers(self) -> None:
        for buffers in self._buffers:
            buffers.take()

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


def following(plain: PlainModels | None, module: Any, B: int) -> PlainModels:
    """Return plain models that follow the array's `module`, made anew if `plain` cannot; what their code has set in
    layers is the array's then."""
    if plain is not None and plain.follow():
        return plain
    if plain is not None:
        plain.give_settings()
    return PlainModels(module, B, plain)


_UNSEEN = Seen(writes_arguments=False, draws=False)


def version_of(tensor: torch.Tensor) -> int:
    """Count the writes into a tensor; 0 if nobody counts them."""
    return 0 if tensor.is_inference() else tensor._version
