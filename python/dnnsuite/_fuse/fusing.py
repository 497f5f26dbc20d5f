# SPDX-License-Identifier: MIT
"""Models into an array, an array into models, and batches for it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, overload

import torch

from .. import _under_way as under_way
from .. import nn
from ..errors import InvalidArgument
from ..nn.array_module import ArrayModule
from ..nn.sharing import equal_values
from .array import Array
from .build import Fusion
from .code.user_module import UserModule
from .comparison import PROXIES
from .diverged import take_from_models
from .single_model import models_of


def fuse(
    models: Sequence[torch.nn.Module],
    *more: torch.nn.Module,
    seeds: Sequence[int] | None = None,
    unfused: Unfused = (),
    share: str = "same",
) -> Array:
    """Make an array of `models`: one module that computes what each model would, on inputs and outputs `[B, ...]`.

    The models are ordinary torch modules of one architecture. Their parameters and buffers are copied, so the models
    stay unchanged; weights, dropout rates and other hyper-parameters may differ. torch's layers become layers of
    `dnnsuite.nn`. A module class of the user keeps its code, which runs once for all models: every tensor in it looks
    like that of one model. Code that cannot be fused, such as a branch on data, runs once per model;
    `array.coverage()` lists it. A class with `array_forward = True` has a `forward` that handles `[B, ...]` itself.

    A tensor that all models share and that takes no gradient, such as a weight of a frozen base, is kept once:
    `[B, ...]` with stride 0 in dimension 0. Such parameters are not copied, and buffers are copied once; running
    statistics become separate for each model when they are trained. Results that depend on shared tensors alone are
    computed once, for a batch that the models share. On a CPU the weights of frozen convolutions are converted to
    channels-last layout, in the models too.

    Args:
        models: B modules; model i is slot i of the array.
        more: must be empty: `fuse(a, b)` is refused with a hint to write `fuse([a, b])`.
        seeds: seeds of the models' random streams (`dnnsuite.nn.seed`); by default drawn from torch's generator.
        unfused: parts to run model by model although they could be fused: names of modules (`"fc"`, `"layer1.0"`, or
            patterns of `fnmatch` like `"blocks.*"`), or a function of a module's name and the module that returns True
            for them.
        share: "same" keeps a frozen tensor once if all models hold the same tensor; "equal" also if each has its own
            with equal values.

    Returns:
        The array, with the `state_dict` names of the models and parameters `[B, ...]`.

    Raises:
        InvalidArgument: the models have different shapes, `unfused` matches no module, or models share a tensor that
            takes a gradient. The message names the first difference, the nearest modules, or the tensor.

    >>> import torch, dnnsuite
    >>> models = [torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()) for _ in range(3)]
    >>> array = dnnsuite.fuse(models)
    >>> array
    Array(
      Sequential, B=3
      (0): Linear(in_features=8, out_features=4, bias=True, B=3)
      (1): ReLU()
    )
    >>> x = torch.randn(5, 8)
    >>> y = array(dnnsuite.stack(x, B=3))
    >>> y.shape, torch.allclose(y[1], models[1](x), atol=1e-6)
    (torch.Size([3, 5, 4]), True)
    """
    if more:
        raise InvalidArgument("fuse takes the models in one list: dnnsuite.fuse([a, b]), not dnnsuite.fuse(a, b)")
    if share not in ("same", "equal"):
        raise InvalidArgument(f"share is 'same' or 'equal', got {share!r}")
    if isinstance(models, torch.nn.Module) and not isinstance(models, torch.nn.ModuleList):
        raise InvalidArgument(
            f"fuse takes a list of models, and got one {type(models).__name__}: dnnsuite.fuse([make_model() for _ in "
            "range(8)]), or [model] for an array of one"
        )
    models = list(models)
    if not models:
        raise InvalidArgument("fuse takes one or more models, got none")
    for index, model in enumerate(models):
        if not isinstance(model, torch.nn.Module):
            raise InvalidArgument(
                f"fuse takes a list of torch modules, and model {index} is a {type(model).__name__}. Call a function "
                "or class that makes models; of a dictionary give its values; load a state_dict into a model first"
            )
        if isinstance(model, (Array, ArrayModule)):
            raise InvalidArgument(f"model {index} is an array of models already")
        _refuse_parts_without_an_end(model, "", [])
    with equal_values(share == "equal"):
        array = Array(Fusion(models, unfused=chosen_parts(models[0], unfused)).tree(), len(models))
    if seeds is not None:
        nn.seed(array, seeds)
    return array


def unfuse(array: torch.nn.Module) -> list[torch.nn.Module]:
    """Copy the models of an array into ordinary torch modules.

    Args:
        array: an array of B models.

    Returns:
        B modules; module i computes what the array computes for model i. Tensors that the models share in the array
        are copied once and shared again. `optimizer.to_model(i, module.parameters())` makes the optimizer of module i,
        with its state.

    >>> import torch, dnnsuite
    >>> array = dnnsuite.fuse([torch.nn.Linear(8, 4) for _ in range(3)])
    >>> dnnsuite.unfuse(array)[2]
    Linear(in_features=8, out_features=4, bias=True)
    """
    if not isinstance(array, torch.nn.Module):
        raise InvalidArgument(f"unfuse takes the array that dnnsuite.fuse returned, and got a {type(array).__name__}")
    under_way.finish(array)
    if isinstance(array, Array):
        take_from_models(array)
        return [array._finished(model, i) for i, model in enumerate(models_of(array._root, array.B))]
    return models_of(array, width(array))


def width(array: torch.nn.Module) -> int:
    """Return B, the number of models in `array`. Raises InvalidArgument for a module that is no array."""
    for module in array.modules():
        if isinstance(module, UserModule):
            return module._fused_B
        if isinstance(module, (Array, ArrayModule)):
            return module.B
    raise InvalidArgument(
        f"{type(array).__name__} is not an array of models: make one with dnnsuite.fuse or dnnsuite.nn.array"
    )


def _refuse_parts_without_an_end(module: torch.nn.Module, path: str, above: list[torch.nn.Module]) -> None:
    """Refuse a model with a part that holds the model as a part of its own."""
    for name, part in module._modules.items():
        if type(part) in PROXIES or any(part is one for one in (*above, module)):
            raise InvalidArgument(
                f"{path}{name} is a module that holds this one, and torch takes it for a part, so that going through "
                f"all parts has no end: set it past torch, by object.__setattr__(self, {name!r}, ...), or keep a "
                "weakref.ref"
            )
        if part is not None:
            _refuse_parts_without_an_end(part, f"{path}{name}.", [*above, module])


#: A name, names, or a function of a module's name and the module.
Unfused = str | Iterable[str] | Callable[[str, torch.nn.Module], bool]
_SHOWN = 3
_NO_FORWARD = (
    torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.ParameterList, torch.nn.ParameterDict,
)  # fmt: skip


def chosen_parts(model: torch.nn.Module, unfused: Unfused) -> frozenset[int]:
    """Return the identities of the modules of `model` that `unfused` names; of nested ones the outermost.

    A list of modules that is never called itself (`ModuleList`, `ModuleDict`) stands for the modules in it.

    Raises:
        InvalidArgument: for a name that matches no module, with the nearest names there are.
    """
    parts = dict(model.named_modules(remove_duplicate=False))
    if callable(unfused):
        names = [name for name, part in parts.items() if unfused(name, part)]
    else:
        names = _matching(parts, [unfused] if isinstance(unfused, str) else unfused)
    below = {name: f"{name}." if name else "" for name in names}  # how the names of its parts begin
    outermost = [name for name in names if not any(name != one and name.startswith(below[one]) for one in names)]
    return frozenset(id(part) for name in outermost for part in _called(parts[name]))


def _matching(parts: dict[str, torch.nn.Module], patterns: Iterable[str]) -> list[str]:
    found: dict[str, None] = {}
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise InvalidArgument(
                f"unfused takes names of modules or a function of name and module, got a {type(pattern).__name__}"
            )
        names = [name for name in parts if fnmatchcase(name, pattern)]
        if not any(True for name in names for _ in _called(parts[name])):
            near = difflib.get_close_matches(pattern, [name for name in parts if name], _SHOWN, 0.0)
            there = ", ".join(near) if near else "none, for the model has no parts"
            raise InvalidArgument(f"unfused={pattern!r} matches no module of the models; the nearest are {there}")
        found |= dict.fromkeys(names)
    return list(found)


def _called(part: torch.nn.Module) -> Iterable[torch.nn.Module]:
    """Yield the module, or those in it if it only holds them."""
    if not isinstance(part, _NO_FORWARD) or type(part).forward is not torch.nn.Module.forward:
        yield part
        return
    for child in part.children():
        yield from _called(child)


@overload
def stack(batch: torch.Tensor | Sequence[torch.Tensor], B: int | None = None) -> torch.Tensor: ...
@overload
def stack(batch: Mapping[str, Any] | Sequence[Mapping[str, Any]], B: int | None = None) -> dict[str, Any]: ...


def stack(batch: Any, B: int | None = None) -> Any:
    """Make a batch `[B, ...]` for an array.

    Args:
        batch: one tensor that all models share, or a sequence of B tensors of one shape. A shared tensor is not copied
            (stride 0 in dimension 0) unless it is sparse. A mapping, or a sequence of B mappings, gives a dictionary of
            such batches; values in it that are not tensors are kept unchanged.
        B: number of models; required for a shared batch.

    Raises:
        InvalidArgument: B is missing or is not the number of tensors, the tensors have different shapes, or something
            else is given in place of a tensor.

    >>> import torch, dnnsuite
    >>> x = dnnsuite.stack(torch.ones(5, 8), B=3)
    >>> x.shape, x.stride()
    (torch.Size([3, 5, 8]), (0, 8, 1))
    >>> dnnsuite.stack({"input_ids": torch.ones(5, 8)}, B=3)["input_ids"].shape
    torch.Size([3, 5, 8])
    """
    if isinstance(batch, Mapping):
        return {name: stack(v, B) if isinstance(v, torch.Tensor) else v for name, v in batch.items()}
    if B is not None and (type(B) is not int or B < 1):
        what = repr(B) if isinstance(B, (int, float)) else f"a {type(B).__name__}"
        raise InvalidArgument(f"stack takes a batch and the number of models, B, 1 or more; got {what} for B")
    if isinstance(batch, torch.Tensor):
        if B is None:
            raise InvalidArgument("stack of one shared tensor needs the number of models: dnnsuite.stack(x, B=4)")
        if batch.layout == torch.strided:
            return batch.unsqueeze(0).expand(B, *batch.shape)
        batch = [batch] * B
    if not isinstance(batch, Iterable) or hasattr(batch, "__array__"):
        raise InvalidArgument(f"stack takes tensors, got a {type(batch).__name__}: torch.as_tensor makes one of it")
    parts = list(batch)
    if not parts or (B is not None and len(parts) != B):
        raise InvalidArgument(
            f"stack got {len(parts)} tensors for {B if B is not None else 'one or more'} models: give one for each "
            "model, and stack the parts of a batch one by one, dnnsuite.stack(x, B=4), dnnsuite.stack(y, B=4)"
        )
    if all(isinstance(part, Mapping) for part in parts):
        return _stacked_by_name(parts)
    _check_alike(parts)
    return torch.stack(parts)


def _stacked_by_name(batches: list[Mapping[str, Any]]) -> dict[str, Any]:
    for index, other in enumerate(batches):
        if other.keys() != batches[0].keys():
            raise InvalidArgument(f"batches 0 and {index} have different names: {[*batches[0]]} and {[*other]}")
    return {
        name: stack([batch[name] for batch in batches]) if isinstance(first, torch.Tensor) else first
        for name, first in batches[0].items()
    }


def _check_alike(tensors: list[Any]) -> None:
    """Refuse what is no tensor, and tensors of different shapes."""
    for index, tensor in enumerate(tensors):
        if not isinstance(tensor, torch.Tensor):
            raise InvalidArgument(
                "stack takes tensors or mappings of tensors, one or a list of one per model; got a "
                f"{type(tensor).__name__} in place {index}: stack the tensors of a tuple one by one; torch.as_tensor "
                "makes tensors of arrays"
            )
        if tensor.layout not in (torch.strided, torch.sparse_coo):
            raise InvalidArgument(
                f"tensor {index} has layout {tensor.layout}, of which torch stacks no tensors: give "
                "x.to_sparse_coo(), or keep a matrix that all models share as a buffer of theirs"
            )
        if tensor.shape != tensors[0].shape:
            raise InvalidArgument(f"tensors 0 and {index} differ: {list(tensors[0].shape)} and {list(tensor.shape)}")


def unstack(batch: torch.Tensor) -> list[torch.Tensor]:
    """List the B views of a batch `[B, ...]`, one per model.

    >>> import torch, dnnsuite
    >>> [part.tolist() for part in dnnsuite.unstack(torch.tensor([[1, 2], [3, 4]]))]
    [[1, 2], [3, 4]]
    """
    return list(batch.unbind(0))
