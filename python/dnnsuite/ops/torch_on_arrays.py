# SPDX-License-Identifier: MIT
"""torch's functions that compute one result from a whole parameter, where it is that of all models of an array.

They take each model by itself, or refuse: a step or a value of all models together would silently be another one.

`torch.nn.utils.clip_grad_norm_` computes one norm of all its tensors, which would couple the models of an array. Once
there is a layer of an array, its parts `get_total_norm` and `clip_grads_with_norm_` pass tensors of arrays to this
module, and all others to torch as before. `xavier_uniform_` and its kind count the numbers that go in and out by a
weight's shape, and `orthogonal_` takes its dimension 0 for rows: B is none of those.

SGD, Adam and most others change each number by its own gradient, so they train every model by itself. LBFGS searches
along one line for all models, and Adafactor and Muon compute with rows and columns, one of which is B. Steps of other
classes (LAMB's norm of a parameter, SAM's of all gradients) are tried before the first.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._torch import before_each_step, take_over_clipping, take_over_fan_counts, uncompiled
from ..errors import InvalidArgument
from . import array_layers, torch_means
from .decay_groups import warn_of_dimensions
from .optimizer import clip_by_norms_, in_memory_order, total_norms
from .optimizer_trial import coupling


def _listed(tensors: Any) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _of_arrays(tensors: Sequence[Tensor]) -> bool:
    """Return True if the tensors are parameters of arrays or their gradients; refuse a mixture with others."""
    wanted = {t.data_ptr() for t in tensors if t.numel()}
    found = wanted & set(_places())
    if found and found != wanted:
        raise InvalidArgument(
            f"{len(found)} of these tensors are those of an array of models and {len(wanted - found)} are not: clip "
            "the two by themselves, the array by dnnsuite.optim.clip_grad_norm_ or by torch's"
        )
    return bool(found)


def _places() -> Iterator[int]:
    for parameter in array_layers.parameters():
        yield parameter.data_ptr()
        if parameter.grad is not None:
            yield parameter.grad.data_ptr()


def _get_total_norm(
    original: Any, tensors: Any, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Tensor:
    tensors = _listed(tensors)
    if not _of_arrays(tensors):
        return original(tensors, norm_type, error_if_nonfinite, foreach)
    wide = any(t.dtype == torch.float64 for t in tensors)
    norms = total_norms(in_memory_order(tensors), norm_type, error_if_nonfinite)
    return norms.to(torch.float64 if wide else torch.float32)


def _clip_grads_with_norm(
    original: Any, parameters: Any, max_norm: Any, total_norm: Tensor, foreach: bool | None = None
) -> None:
    parameters = _listed(parameters)
    grads = [p.grad for p in parameters if p.grad is not None]
    if not grads or not _of_arrays(grads):
        original(parameters, max_norm, total_norm, foreach)
    else:
        clip_by_norms_(grads, max_norm, total_norm)


#: Functions of torch.nn.init whose values depend on the shape.
_NAMES = (
    "dirac_", "eye_", "kaiming_normal_", "kaiming_uniform_", "orthogonal_", "sparse_", "xavier_normal_",
    "xavier_uniform_",
)  # fmt: skip


def _each_model(original: Callable[..., Any]) -> Callable[..., Any]:
    """Let torch.nn.init's function fill each model's part of an array's parameter; others as before.

    Code that has imported it by name before keeps torch's: what it counts by the shape is then one model's, too.
    """

    @functools.wraps(original)
    def fill(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if not _is_array_weight(tensor):
            return original(tensor, *args, **kwargs)
        for model in tensor.detach():
            original(model, *args, **kwargs)
        return tensor

    del fill.__wrapped__  # code that is followed ends here, as at torch's own function
    return fill


def _is_array_weight(tensor: torch.Tensor) -> bool:
    """Return True for a parameter of an array; a weight of two dimensions has three there."""
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    return plain and tensor.dim() > 2 and array_layers.is_parameter(tensor)


def _without_metrics(original: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse metrics `[B]` in `torch.optim.lr_scheduler.ReduceLROnPlateau.step`."""

    @functools.wraps(original)
    def step(self: Any, metrics: Any, *args: Any, **kwargs: Any) -> Any:
        count = _count(metrics)
        if count > 1 and array_layers.has_any(p for g in self.optimizer.param_groups for p in g["params"]):
            raise InvalidArgument(
                f"torch's ReduceLROnPlateau follows one metric, got {count}: for one per model use "
                "dnnsuite.optim.lr_scheduler.ReduceLROnPlateau with an optimizer of dnnsuite.optim, for one of all "
                "models give their mean"
            )
        return original(self, metrics, *args, **kwargs)

    return step


def _count(metrics: Any) -> int:
    """Count the numbers of a list, a tuple, an array or a tensor."""
    if isinstance(metrics, torch.Tensor):
        return metrics.numel()
    return int(np.size(metrics)) if isinstance(metrics, (list, tuple, np.ndarray)) else 1


_JOINT = tuple(getattr(torch.optim, name) for name in ("LBFGS", "Adafactor", "Muon") if hasattr(torch.optim, name))

#: Optimizers of others' classes that were tried, and how many groups they had.
_tried: weakref.WeakKeyDictionary[torch.optim.Optimizer, int] = weakref.WeakKeyDictionary()


def takes_joint_steps(optimizer: Any) -> bool:
    """Return True for an optimizer of torch's whose step of a number depends on other numbers."""
    return isinstance(optimizer, _JOINT)


def _with_a_look_at_decay(original: Callable[..., Any]) -> Callable[..., Any]:
    plain = uncompiled(original)

    @functools.wraps(original)
    def add_param_group(self: torch.optim.Optimizer, param_group: dict[str, Any]) -> None:
        plain(self, param_group)
        if len(self.param_groups) > 1:
            warn_of_dimensions(self.param_groups)

    return add_param_group


def _try(optimizer: torch.optim.Optimizer) -> None:
    """Refuse an optimizer of another's class whose steps couple models, or mind that an array's parameters have one
    dimension more: before its first step, and after groups were added."""
    kind, groups = type(optimizer), len(optimizer.param_groups)
    if _tried.get(optimizer) == groups or not _is_of_others(kind):
        return
    _tried[optimizer] = groups
    if not array_layers.has_any(p for group in optimizer.param_groups for p in group["params"]):
        return
    why = coupling(optimizer)
    if why:
        raise InvalidArgument(
            f"a step of {kind.__name__}{', ' if why.startswith('tried') else ' '}{why}: use an optimizer of "
            f"dnnsuite.optim, or one {kind.__name__} for each model of dnnsuite.unfuse(array); if its code minds "
            f"dimension 0, set {kind.__name__}.keeps_models_apart = True"
        )


def _is_of_others(kind: type) -> bool:
    ours = any(base.__module__.partition(".")[0] == "dnnsuite" for base in kind.__mro__)
    torchs = kind.__module__.startswith("torch.optim")
    return not (ours or torchs or getattr(kind, "keeps_models_apart", False))


def _check(optimizer: Any, args: Any, kwargs: Any) -> None:
    if not takes_joint_steps(optimizer):
        _try(optimizer)
        return
    if array_layers.has_any(p for group in optimizer.param_groups for p in group["params"]):
        name = type(optimizer).__name__
        raise InvalidArgument(
            f"torch.optim.{name} would take one step for all models of an array together: use dnnsuite.optim.{name}, "
            f"or one {name} for each model of dnnsuite.unfuse(array)"
        )


_taken_over = False


def take_over() -> None:
    """Let torch's clipping, initial values, schedules and optimizers look for parameters of arrays, from now on."""
    take_over_clipping(_get_total_norm, _clip_grads_with_norm)
    take_over_fan_counts(lambda tensor: tensor[0] if _is_array_weight(tensor) else tensor)
    before_each_step(_check)
    changes: list[tuple[Any, str, Callable[..., Any]]] = [(torch.nn.init, name, _each_model) for name in _NAMES]
    changes.append((torch.optim.lr_scheduler.ReduceLROnPlateau, "step", _without_metrics))
    changes.append((torch.optim.Optimizer, "add_param_group", _with_a_look_at_decay))
    for owner, name, change in changes:
        original = getattr(owner, name, None)
        if original is not None and not hasattr(original, "looks_for_arrays"):
            changed = change(original)
            changed.__dict__["looks_for_arrays"] = True
            setattr(owner, name, changed)


def register(layer: torch.nn.Module) -> None:
    """Note that the parameters of `layer` are `[B, ...]`, those of B models."""
    global _taken_over
    if not _taken_over:
        _taken_over = True
        take_over()
        torch_means.take_over()
    array_layers.add(layer)


def forget(layer: torch.nn.Module) -> None:
    """Note that `layer` has become one of a single model."""
    array_layers.forget(layer)
