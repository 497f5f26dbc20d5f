# SPDX-License-Identifier: MIT
"""Models into an array, and an array into models."""

from __future__ import annotations

from collections.abc import Sequence

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
from .unfused import Unfused, chosen_parts

__all__ = ["fuse", "unfuse", "width"]


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
