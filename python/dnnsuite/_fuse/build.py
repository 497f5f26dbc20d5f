# SPDX-License-Identifier: MIT
"""Conversion of B models into the tree of modules of an array."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.utils.parametrize

from .._state import slots_of
from .._torch import made_by_dynamo, no_fuse
from ..errors import InvalidArgument, Unavailable
from ..nn.array_module import ArrayModule, MoreState, made_of_others
from ..nn.model_tensor import ModelTensor
from ..nn.sharing import copies_of_shared
from .code.epilogue_fusion import Sequential
from .code.late_draws import CodeNames, names_in_code, written_names
from .code.own_values import ASKED, StandIns, give_own, is_fused, numbers_among
from .code.user_module import make_user_module
from .comparison import PROXIES, REGISTRIES, Comparison, differences, registered_in, same
from .hooks import FORWARD_HOOKS, bind_hooks, counterparts, hooked_inside, refuse_backward_hooks, refuse_other_hooks
from .layer_table import ELEMENTWISE, RULES, as_torch_made_it, know_layers_of, says_all
from .left_tensors import value_of_model
from .module_copies import copied
from .rebound import HeldTensors, refuse_what_cannot_follow
from .single_model import give_extra
from .state import sparse_once, stacked_parameter, stacked_tensor, tie

_OF_NO_SHAPE = frozenset(
    {"activation", "activation_relu_or_gelu", "enable_nested_tensor", "use_nested_tensor"}
    | {"eps", "num_groups", "padding_mode", "momentum", "alpha", "beta", "k", "norm_type"}
)


class Fusion:
    """Conversion of B models into one tree of modules."""

    def __init__(self, models: Sequence[torch.nn.Module], unfused: frozenset[int] = frozenset()) -> None:
        """Set up the conversion of `models`; `unfused` has the ids of modules of the first that run model by model."""
        if no_fuse is not None:
            raise Unavailable(no_fuse, remedy="install a torch that `dnnsuite doctor` has no warning for")
        know_layers_of(models)
        self.models, self.B = models, len(models)
        self._unfused = unfused
        self._registered = registered_in(models)
        self._written = written_names(models[0].modules())
        self._memo: dict[int, Any] = {}
        self._visited: dict[int, list[int]] = {}
        self._shells: list[tuple[torch.nn.Module, list[torch.nn.Module]]] = []
        self._own_memos: list[dict[int, Any]] = [{} for _ in models]
        self._stand_ins = StandIns()

    def tree(self) -> torch.nn.Module:
        """Build the root of the array."""
        self._visit(self.models, "")
        for part in self.models[0].modules():
            refuse_what_cannot_follow(part, self._visited, self._registered)
        held = self._held_tensors()
        root = self._copied()
        for part in root.modules():
            if type(part) is torch.nn.Sequential:
                part.__class__ = Sequential
            bind_hooks(part, self._memo)
            if isinstance(part, ArrayModule):
                give_extra(part, part, self._memo)
        for first, models in self._shells:
            module = self._memo.get(id(first))
            if module is None or is_fused(module):  # the latter: in another place of the model, too
                continue
            make_user_module(module, self.B)
            module._fused_report.reason = ASKED if id(first) in self._unfused else held.get(id(first), "")
            remade = self._join_remade(module, models)
            unlike = {n: i for n, i in differences(models, self._registered).items() if n not in remade}
            if unlike:
                self._set_apart(module, models, unlike)
        tie(root, self.models)
        return root

    def _held_tensors(self) -> dict[int, str]:
        """Say by the id of a module why it runs model by model: code in it reads a parameter or buffer in a list or the
        like, where it would be that of all models."""
        reasons: dict[int, str] = {}
        first = self.models[0]
        follower = HeldTensors(first, self._registered, self._code.stored)
        for part in first.modules():
            for name, tensor in follower.read_in(part, self._code.read):
                shell = self._around(part, name, tensor)
                reasons[id(shell)] = f"it reads {self._registered[id(tensor)]} in {name}, which is no part of a module"
        return reasons

    def _around(self, holder: torch.nn.Module, name: str, tensor: torch.Tensor) -> torch.nn.Module:
        """Find the smallest module that has `holder`, `tensor` and all modules whose code names the attribute."""
        readers = [model for model, _ in self._shells if name in names_in_code([model]).read]
        needed = {id(holder), id(tensor), *map(id, readers)}
        for model, _ in self._shells:  # inner ones first
            if needed <= {id(found) for found in (*model.modules(), *model.parameters(), *model.buffers())}:
                return model
        if not any(model is self.models[0] for model, _ in self._shells):
            self._shells.append((self.models[0], list(self.models)))
        return self.models[0]

    def _join_remade(self, module: torch.nn.Module, models: Sequence[torch.nn.Module]) -> set[str]:
        """Stack weights that a hook before each forward makes of parameters, as `spectral_norm` does; name them."""
        found = set()
        for name in made_of_others(models[0]):
            values: list[Any] = [vars(model).get(name) for model in models]
            if all(type(value) is torch.Tensor and value.shape == values[0].shape for value in values):
                vars(module)[name] = ModelTensor(torch.stack([value.detach() for value in values]))
                found.add(name)
        return found

    def _set_apart(self, module: Any, models: Sequence[torch.nn.Module], unlike: Mapping[str, int]) -> None:
        """Let each model have its own of the attributes `unlike`; where code reads what is no number, one by one."""
        asked = bool(module._fused_report.reason)
        numbers = None if asked else numbers_among(models, unlike, self._code, self._stand_ins)
        if numbers is not None:
            own = [
                {name: copied(vars(model)[name], memo) for name in unlike}
                for model, memo in zip(models, self._own_memos, strict=True)
            ]
            give_own(module, own, numbers, self._stand_ins)
            return
        name, index = next(iter(unlike.items()))
        proxy = next((held for held, value in vars(models[0]).items() if type(value) in PROXIES), None)
        if proxy is not None:
            raise InvalidArgument(
                f"{type(module).__name__}.{proxy} is a weakref.proxy in a part that runs model by model, for "
                f"models differ in {name} (models 0 and {index}): keep a weakref.ref in its place"
            )
        module._fused_report.reason = f"models differ in {name} (models 0 and {index})"
        for inside in (list(model.modules()) for model in models):
            for part in inside:
                refuse_what_cannot_follow(part, set(map(id, inside)), self._registered)
        begin = [
            {name: value_of_model(vars(model)[name], 0, memo) for name in unlike if name in vars(model)}
            for model, memo in zip(models, self._memos_of_models, strict=True)
        ]
        module._fused_set_apart(begin, unlike, "")

    @functools.cached_property
    def _memos_of_models(self) -> list[dict[int, Any]]:
        """By id, what the array has of the modules, parameters and buffers of each model."""
        root = self._memo[id(self.models[0])]
        return [counterparts(model, root) for model in self.models]

    @functools.cached_property
    def _code(self) -> CodeNames:
        return names_in_code(self.models[0].modules())

    def _copied(self) -> torch.nn.Module:
        try:
            copies_of_shared(self.models[0], self._memo)  # of layers of arrays, which a model may have
            root: torch.nn.Module = copied(self.models[0], self._memo)
        except (TypeError, NotImplementedError) as error:  # of pickle: generators, handles of C, ...
            raise InvalidArgument(
                f"fuse copies the models, and {_uncopied(self.models[0]) or 'a model'} cannot be copied ({error}): "
                "take it away, or give its class a __deepcopy__"
            ) from error
        return root

    def _visit(self, models: Sequence[torch.nn.Module], path: str) -> None:
        """Find what each part of the models becomes, a layer of an array or a copy of the user's module."""
        first, where = models[0], path or "the top"
        if id(first) in self._memo:
            self._check_shared(models, where)
            return
        self._visited[id(first)] = [id(model) for model in models]
        kind = type(first)
        _refuse_other_kinds(models, where)
        _refuse_what_is_no_plain_module(first, where)
        refuse_other_hooks(models, where)
        for together in zip(
            *(model.named_modules() if kind in RULES else [("", model)] for model in models), strict=False
        ):
            place = ".".join(filter(None, (path, together[0][0]))) or "the top"
            refuse_backward_hooks([part for _, part in together], place)
        leaf = self._leaf(models, path) if self._is_whole(models) else None
        if leaf is not None:
            for old, new in counterparts(first, leaf).items():  # lists and the like may hold its tensors
                self._memo.setdefault(old, new)
            return
        self._memo[id(first)] = None  # on the way
        self._visit_children(models, path)
        self._own_state(models, where)
        del self._memo[id(first)]
        as_it_is = (kind in ELEMENTWISE or kind is torch.nn.Sequential) and id(first) not in self._unfused
        if not (as_it_is and not differences(models, self._registered) and "forward" not in vars(first)):
            self._shells.append((first, list(models)))

    def _is_whole(self, models: Sequence[torch.nn.Module]) -> bool:
        """True if the modules may become one layer of an array: torch's classes, unmodified.

        A stack of layers refuses if a part of it has no rule; it is then fused part by part. So does a layer whose
        weight is made of other tensors before each forward, as torch's old weight_norm makes it.
        """
        first = models[0]
        rule = RULES.get(type(first))
        can_fuse, called = getattr(rule, "can_fuse", None), getattr(rule, "called_parts", ())
        apart = bool(self._unfused) and any(id(part) in self._unfused for part in first.modules())
        whole = not apart and as_torch_made_it(models) and not hooked_inside(first, called)
        return whole and (can_fuse is None or can_fuse(models)) and not made_of_others(first)

    def _visit_children(self, models: Sequence[torch.nn.Module], path: str) -> None:
        first = models[0]
        for index, model in enumerate(models):
            if list(model._modules) != list(first._modules):
                raise InvalidArgument(
                    f"models 0 and {index} differ at {path or 'the top'}: {list(first._modules)} and "
                    f"{list(model._modules)}"
                )
        for name, child in first._modules.items():
            children = [model._modules[name] for model in models]
            if child is not None and all(c is not None for c in children):
                self._visit(children, f"{path}.{name}".lstrip("."))  # type: ignore[arg-type]

    def _check_shared(self, models: Sequence[torch.nn.Module], where: str) -> None:
        """Refuse models if one of them uses a module in several places and another has different modules there."""
        known = self._visited.get(id(models[0]), [])
        for index, (model, before) in enumerate(zip(models, known, strict=False)):
            if id(model) != before:
                raise InvalidArgument(
                    f"models 0 and {index} differ at {where}: a module that model 0 has in another place too is not "
                    f"the one that model {index} has there"
                )

    def _leaf(self, models: Sequence[torch.nn.Module], path: str) -> torch.nn.Module | None:
        """Fuse these layers into one layer of the array; None if that would lose something: an eps or an attribute in
        which they differ, or tensors and parts that the user added.
        """
        first, rule = models[0], RULES[type(models[0])]
        if not all(says_all(rule, model) for model in models):
            return None
        try:
            leaf = rule.from_models(models)
        except (MoreState, AttributeError):  # the latter: a tensor of the layer's was taken away
            return None
        except InvalidArgument as error:
            if set(differences(models)) <= _OF_NO_SHAPE:
                return None
            raise InvalidArgument(f"at {path}: {error}" if path else str(error)) from None
        known = _attributes_of(leaf)
        if not known.issuperset((*first._buffers, *first._modules)):
            return None
        own = [name for name in vars(first) if name not in known]
        if own and set(own) & set(differences(models, self._registered)):
            return None
        extra = {name: vars(first)[name] for name in own}
        leaf.__dict__.update(extra, extra_attributes=extra)
        for name in FORWARD_HOOKS:
            hooks = getattr(first, name)
            # In the memo for handles that the models hold: their copies are of the copied hooks.
            self._memo[id(hooks)] = leaf.__dict__[name] = copy.copy(hooks)
        return leaf

    def _own_state(self, models: Sequence[torch.nn.Module], where: str) -> None:
        """Stack the tensors of this module, without its children's."""
        first = models[0]
        for kind, stacked in (("_parameters", stacked_parameter), ("_buffers", stacked_tensor)):
            held = getattr(first, kind)
            for index, model in enumerate(models):
                if list(getattr(model, kind)) != list(held):
                    raise InvalidArgument(
                        f"models 0 and {index} differ at {where}: {kind[1:]} {list(held)} and "
                        f"{list(getattr(model, kind))}"
                    )
            for name, value in held.items():
                values = [getattr(m, kind)[name] for m in models]
                for index, other in enumerate(values):
                    if (other is None) != (value is None):
                        raise InvalidArgument(
                            f"models 0 and {index} differ at {where}: {name} is None in one of them only"
                        )
                if value is not None and id(value) not in self._memo:
                    if value.layout != torch.strided:
                        self._memo[id(value)] = sparse_once(f"{where}.{name}", values)
                        continue
                    written = kind == "_buffers" and name in self._written
                    stack = partial(stacked_tensor, apart=True) if written else stacked
                    self._memo[id(value)] = stack(f"{where}.{name}", values)


_known_attributes: dict[type, frozenset[str]] = {}


def _attributes_of(leaf: ArrayModule) -> frozenset[str]:
    """Collect the attributes, buffers and parts that torch itself gives a layer of this kind."""
    if type(leaf) not in _known_attributes:
        layer = leaf.to_model(0)
        _known_attributes[type(leaf)] = frozenset((*vars(layer), *layer._buffers, *layer._modules))
    return _known_attributes[type(leaf)]


def _unlike(a: torch.nn.Module, b: torch.nn.Module) -> str | None:
    """Say what the classes of two modules do not have in common; None for nothing."""
    kinds: tuple[Any, Any] = type(a), type(b)
    if all(map(torch.nn.utils.parametrize.is_parametrized, (a, b))):  # each has a class of its own
        kinds = kinds[0].__base__, kinds[1].__base__
    if kinds[0] is kinds[1] or same(*kinds):
        return None
    names = [kind.__name__ for kind in kinds]
    if kinds[0].__qualname__ != kinds[1].__qualname__:
        return " and ".join(names)
    return (
        f"two classes of the name {names[0]} that differ in {Comparison().unlike(*kinds)}: make the models of one "
        "class, and give it what differs as an argument"
    )


def _uncopied(model: torch.nn.Module) -> str | None:
    """Name the attribute that keeps a model from being copied."""
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            try:
                copied(value, {}) if name not in REGISTRIES else None
            except Exception:
                return f"{path}.{name}".lstrip(".")
    return None


def _refuse_other_kinds(models: Sequence[torch.nn.Module], where: str) -> None:
    """Refuse modules of which one is of another class or in another mode than the first."""
    first = models[0]
    for index, model in enumerate(models):
        unlike = _unlike(first, model)
        if unlike is not None:
            raise InvalidArgument(f"models 0 and {index} differ at {where}: {unlike}")
        if model.training != first.training:
            raise InvalidArgument(
                f"models 0 and {index} differ at {where}: training is {first.training} and {model.training}"
            )


def _refuse_what_is_no_plain_module(module: torch.nn.Module, where: str) -> None:
    name = type(module).__name__
    if isinstance(module, torch.jit.ScriptModule):
        raise InvalidArgument(f"{where} is a {name} of torch.jit, whose code cannot be read: give the module itself")
    if made_by_dynamo(module):
        raise InvalidArgument(
            f"{where} is what torch.compile made: give the module itself (._orig_mod) and compile the array"
        )
    kind: Any = type(module)
    slotted = next((slot for slot in slots_of(kind) if hasattr(module, slot)), None)
    if slotted is not None:
        raise InvalidArgument(
            f"{where}, a {name}, keeps {slotted} in __slots__, which torch does not copy: remove it from __slots__"
        )
    for parameter, value in module._parameters.items():
        if value is not None and torch.nn.parameter.is_lazy(value):
            raise InvalidArgument(
                f"{parameter} of {where}, a {name}, has no shape yet: call each model once before fuse"
            )
