# SPDX-License-Identifier: MIT
"""Models into an array of models, and back."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_map

from . import nn
from .errors import InvalidArgument
from .nn._base import ArrayModule

#: torch's layer to the array layer that computes B of it.
RULES: dict[Any, type[ArrayModule]] = {
    layer.torch_class: layer
    for layer in vars(nn).values()
    if isinstance(layer, type)
    and issubclass(layer, ArrayModule)
    and isinstance(layer.__dict__.get("torch_class"), type)
}
#: Layers without parameters that treat every element alike: they are right on `[B, ...]` as they are.
ELEMENTWISE: tuple[type[torch.nn.Module], ...] = (
    torch.nn.CELU,
    torch.nn.ELU,
    torch.nn.GELU,
    torch.nn.Hardshrink,
    torch.nn.Hardsigmoid,
    torch.nn.Hardswish,
    torch.nn.Hardtanh,
    torch.nn.Identity,
    torch.nn.LeakyReLU,
    torch.nn.LogSigmoid,
    torch.nn.Mish,
    torch.nn.ReLU,
    torch.nn.ReLU6,
    torch.nn.SELU,
    torch.nn.SiLU,
    torch.nn.Sigmoid,
    torch.nn.Softplus,
    torch.nn.Softshrink,
    torch.nn.Softsign,
    torch.nn.Tanh,
    torch.nn.Tanhshrink,
    torch.nn.Threshold,
)
CONTAINERS: tuple[type[torch.nn.Module], ...] = (
    torch.nn.Sequential,
    torch.nn.ModuleList,
    torch.nn.ModuleDict,
)


class Mapped(torch.nn.Module):
    """B modules whose class has no rule: their own `forward`, mapped over the models by `torch.vmap`.

    It means what each module means alone, also for code like `x.view(x.size(0), -1)`, and has the same state as a fused
    layer, but runs torch's operators under a map, without our kernels; random numbers come from torch's generator.
    """

    _skeleton: torch.nn.Module

    def __init__(self, models: Sequence[torch.nn.Module]) -> None:
        super().__init__()
        self.B = len(models)
        stacked = copy.deepcopy(models[0])
        _stack_state(stacked, models)
        # The children only hold the state under torch's names; `_call` runs a skeleton without any.
        self._modules, self._parameters, self._buffers = (
            stacked._modules,
            stacked._parameters,
            stacked._buffers,
        )
        self.__dict__["_skeleton"] = copy.deepcopy(models[0]).to("meta")
        self.training = models[0].training

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        state = {**dict(self.named_parameters()), **dict(self.named_buffers())}

        def one(own: dict[str, torch.Tensor], inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
            return torch.func.functional_call(self._skeleton, own, inputs, named)

        mapped = tree_map(lambda value: 0 if isinstance(value, torch.Tensor) else None, (args, kwargs))
        self._skeleton.train(self.training)
        return torch.vmap(one, in_dims=(0, *mapped), randomness="different")(state, args, kwargs)

    def to_model(self, index: int) -> torch.nn.Module:
        """Module `index` with its own copy of the state."""
        model = copy.deepcopy(self._skeleton).to_empty(device=next(self.parameters()).device)
        model.load_state_dict({name: value[index].clone() for name, value in self.state_dict().items()})
        return model.train(self.training)


class Cover(NamedTuple):
    """How one submodule of an array runs: `fused`, `elementwise`, or `mapped` (torch's operators under a map)."""

    name: str
    layer: str
    how: str


def fuse(models: Sequence[torch.nn.Module], *, seeds: Sequence[int] | None = None) -> torch.nn.Module:
    """An array that computes what each of the `models` would, on inputs and outputs `[B, ...]`.

    The models are ordinary torch modules of one architecture; their parameters and buffers are copied, so
    they stay as they are. Layers with a rule become layers of `dnnsuite.nn`; containers, and modules whose
    class says `array_forward = True`, keep their own forward on `[B, ...]`; every other module is mapped over
    the models with torch's own operators (`coverage` lists which). `seeds` starts model i's dropout streams
    (`dnnsuite.nn.seed`); without them they come from torch's generator.

    Raises InvalidArgument naming the first difference when the models do not have the same shape.
    """
    models = list(models)
    if not models:
        raise InvalidArgument("fuse takes one or more models, got none")
    array = _fuse(models, "", {})
    _tie(array, models[0])
    array.B = len(models)  # type: ignore[assignment]
    first = next(iter(models[0].parameters()), None)
    if first is not None:
        array.to(first.device)
    array.train(models[0].training)
    if seeds is not None:
        nn.seed(array, seeds)
    return array


def _fuse(models: Sequence[torch.nn.Module], path: str, known: dict[int, torch.nn.Module]) -> torch.nn.Module:
    """The array module for the submodules at `path`, the same one again where the model holds it twice."""
    first = models[0]
    if id(first) in known:
        return known[id(first)]
    for index, model in enumerate(models):
        if type(model) is not type(first):
            raise InvalidArgument(
                f"models 0 and {index} differ at {path or 'the top'}: {type(first).__name__} and {type(model).__name__}"
            )
    try:
        fused = _convert(models, path, known)
    except InvalidArgument as error:
        if path and "models " in str(error) and " at " not in str(error):
            raise InvalidArgument(f"at {path}: {error}") from None
        raise
    known[id(first)] = fused
    return fused


def _convert(
    models: Sequence[torch.nn.Module], path: str, known: dict[int, torch.nn.Module]
) -> torch.nn.Module:
    first = models[0]
    if type(first) in RULES:
        return RULES[type(first)].from_models(models)
    if type(first) in ELEMENTWISE:
        return copy.deepcopy(first)
    if not isinstance(first, CONTAINERS) and not getattr(first, "array_forward", False):
        return Mapped(models)
    shell = copy.copy(first)
    shell._parameters, shell._buffers = dict(first._parameters), dict(first._buffers)
    names = list(first._modules)
    for index, model in enumerate(models):
        if list(model._modules) != names:
            raise InvalidArgument(
                f"models 0 and {index} differ at {path or 'the top'}: {names} and {list(model._modules)}"
            )
    shell._modules = {
        name: None if child is None else _fuse(_children(models, name), f"{path}.{name}".lstrip("."), known)
        for name, child in first._modules.items()
    }
    _stack_own(shell, models)
    return shell


def _children(models: Sequence[torch.nn.Module], name: str) -> list[torch.nn.Module]:
    return [model.get_submodule(name) for model in models]


@torch.no_grad()
def _stack_own(shell: torch.nn.Module, models: Sequence[torch.nn.Module]) -> None:
    """Stacks the tensors that belong to this very module, not to its children."""
    for name, value in shell._parameters.items():
        if value is not None:
            values = [m._parameters[name] for m in models]
            shell._parameters[name] = torch.nn.Parameter(
                _stacked(name, values), requires_grad=value.requires_grad
            )
    for name, buffer in shell._buffers.items():
        if buffer is not None:
            shell._buffers[name] = _stacked(name, [m._buffers[name] for m in models])


def _stack_state(shell: torch.nn.Module, models: Sequence[torch.nn.Module]) -> None:
    """Stacks the state of `shell` and of all its children."""
    names = [name for name, _ in shell.named_modules()]
    for name in names:
        _stack_own(shell.get_submodule(name), [model.get_submodule(name) for model in models])


def _stacked(name: str, values: Sequence[Any]) -> torch.Tensor:
    for index, value in enumerate(values):
        if value is None or value.shape != values[0].shape:
            other = None if value is None else list(value.shape)
            raise InvalidArgument(
                f"models 0 and {index} differ: {name} is {list(values[0].shape)} and {other}"
            )
    return torch.stack([value.detach() for value in values])


def _tie(target: torch.nn.Module, like: torch.nn.Module) -> None:
    """Makes parameters of `target` one tensor where they are one in `like` (tied weights)."""
    owner: dict[int, torch.nn.Parameter] = {}
    for name, parameter in like.named_parameters(remove_duplicate=False):
        path, _, leaf = name.rpartition(".")
        place = target.get_submodule(path)
        owner.setdefault(id(parameter), place._parameters[leaf])  # type: ignore[arg-type]
        place._parameters[leaf] = owner[id(parameter)]


def unfuse(array: torch.nn.Module) -> list[torch.nn.Module]:
    """The models of an array as ordinary torch modules with their own copies of parameters and buffers.

    `unfuse(array)[i]` computes what the array computes for model i. The models' optimizers are
    `optimizer.to_model(i, model.parameters())`.
    """
    models = [_unfuse(array, index, {}) for index in range(width(array))]
    for model in models:
        _tie(model, array)
    return models


def _unfuse(module: torch.nn.Module, index: int, known: dict[int, torch.nn.Module]) -> torch.nn.Module:
    if id(module) in known:
        return known[id(module)]
    if isinstance(module, (ArrayModule, Mapped)):
        model = module.to_model(index)
    elif type(module) in ELEMENTWISE:
        model = copy.deepcopy(module)
    else:
        model = copy.copy(module)
        model.__dict__.pop("B", None)
        model._parameters = {
            name: None
            if value is None
            else torch.nn.Parameter(_take(value, index), requires_grad=value.requires_grad)
            for name, value in module._parameters.items()
        }
        model._buffers = {
            name: None if value is None else _take(value, index) for name, value in module._buffers.items()
        }
        model._modules = {
            name: None if child is None else _unfuse(child, index, known)
            for name, child in module._modules.items()
        }
    known[id(module)] = model
    return model


def _take(value: torch.Tensor, index: int) -> torch.Tensor:
    """A copy of what is model `index`'s in a stacked tensor."""
    return value.detach()[index].clone()


def width(array: torch.nn.Module) -> int:
    """B, the number of models in `array`. Raises InvalidArgument for a module that is no array."""
    for module in array.modules():
        if isinstance(module, (ArrayModule, Mapped)):
            return module.B
    raise InvalidArgument(
        f"{type(array).__name__} is no array of models: make one with dnnsuite.fuse or dnnsuite.nn.array"
    )


def coverage(array: torch.nn.Module) -> list[Cover]:
    """How each part of `array` runs, leaf by leaf."""
    found: list[Cover] = []

    def visit(module: torch.nn.Module, name: str) -> None:
        if isinstance(module, ArrayModule):
            found.append(Cover(name, type(module).__name__, "fused"))
        elif isinstance(module, Mapped):
            found.append(Cover(name, type(module._skeleton).__name__, "mapped"))
        elif type(module) in ELEMENTWISE:
            found.append(Cover(name, type(module).__name__, "elementwise"))
        else:
            for child_name, child in module.named_children():
                visit(child, f"{name}.{child_name}".lstrip("."))

    visit(array, "")
    return found


def stack(batch: torch.Tensor | Sequence[torch.Tensor], B: int | None = None) -> torch.Tensor:
    """A batch for an array: one tensor that all B models share becomes `[B, ...]` without a copy (stride 0 in dimension
    0), a sequence of B tensors is stacked."""
    if isinstance(batch, torch.Tensor):
        if B is None or B < 1:
            raise InvalidArgument(f"stack of one shared tensor needs the number of models, B; got {B!r}")
        return batch.unsqueeze(0).expand(B, *batch.shape)
    tensors = list(batch)
    if not tensors or (B is not None and len(tensors) != B):
        raise InvalidArgument(
            f"stack got {len(tensors)} tensors for {B if B is not None else 'one or more'} models"
        )
    for index, tensor in enumerate(tensors):
        if tensor.shape != tensors[0].shape:
            raise InvalidArgument(
                f"tensors 0 and {index} differ: {list(tensors[0].shape)} and {list(tensor.shape)}"
            )
    return torch.stack(tensors)


def unstack(batch: torch.Tensor) -> list[torch.Tensor]:
    """`[B, ...]` as a list of B views."""
    return list(batch.unbind(0))
