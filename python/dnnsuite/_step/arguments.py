# SPDX-License-Identifier: MIT
"""Arguments of a StepRunner and of its steps: structure of batches, copies of them for steps that run after their
caller has gone on, and refusals of arguments, optimizers and batches that it cannot train with."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

import torch

from .. import optim
from .._fuse import is_record, names_of_record
from .._torch import step_hooks, tree_leaves
from ..errors import InvalidArgument
from ..ops.torch_on_arrays import takes_joint_steps
from ..optim import ArrayOptimizer, GradScaler

Build = Callable[[Sequence[Any]], Any]


def opened(value: Any) -> tuple[Sequence[Any], Sequence[Any], Build] | None:
    """Take a tuple, named tuple, mapping, dataclass or namespace apart; None for anything else.

    Returns the names of its parts, the parts, and a function that builds such a value from other parts.
    """
    if isinstance(value, tuple):
        names = getattr(value, "_fields", None)
        return names or (), value, type(value) if names is None else type(value)._make  # type: ignore[attr-defined]
    if isinstance(value, MutableMapping):
        keys = tuple(value)

        def fill(parts: Sequence[Any]) -> Any:
            other = copy.copy(value)
            for key, part in zip(keys, parts, strict=True):
                other[key] = part
            return other

        return keys, [value[key] for key in keys], fill
    if is_record(value):
        fields = names_of_record(value)

        def assign(parts: Sequence[Any]) -> Any:
            other = copy.copy(value)
            for name, part in zip(fields, parts, strict=True):
                object.__setattr__(other, name, part)  # also where it is frozen
            return other

        return fields, [getattr(value, name) for name in fields], assign
    return None


def with_parts(value: Any, function: Callable[[Any], Any]) -> Any:
    """Apply `function` to the parts of `value` and put the results together again; values without parts stay as they
    are."""
    found = opened(value)
    return value if found is None else found[2]([function(part) for part in found[1]])


def own_copy(batch: Any, leave: Callable[[torch.Tensor], bool] = lambda tensor: False) -> Any:
    """Copy a batch: same structure, layouts and values, tensors of its own but for those to `leave`."""
    known: dict[int, torch.Tensor] = {}

    def copied(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in known:
                known[id(value)] = value if leave(value) else static_copy(value)
            return known[id(value)]
        if isinstance(value, list):
            return list(map(copied, value))
        return with_parts(value, copied)

    return copied(batch)


def static_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor with its layout; a dimension of stride 0 (a batch that all models share) stays one."""
    if tensor.layout != torch.strided:
        return tensor.detach().clone()
    once = compact(tensor)
    copy = torch.empty_strided(once.shape, once.stride(), dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(once).expand(tensor.shape)


def compact(tensor: torch.Tensor) -> torch.Tensor:
    """View a tensor without autograd, and with one place only along dimensions that repeat it (of stride 0)."""
    tensor = tensor.detach()
    if tensor.layout == torch.strided and 0 in tensor.stride():
        for dimension, stride in enumerate(tensor.stride()):
            if stride == 0:
                tensor = tensor.narrow(dimension, 0, min(1, tensor.size(dimension)))
    return tensor


def check_counts(named: Mapping[str, Any]) -> None:
    """Refuse values other than an integer of 1 or more; None stands for a default."""
    for name, value in named.items():
        if value is not None and (not isinstance(value, int) or value < 1):
            raise InvalidArgument(f"{name} must be a whole number, 1 or more; got {value!r}")


def check_array(array: Any) -> None:
    """Refuse anything but a module, for example an optimizer in its place."""
    if not isinstance(array, torch.nn.Module):
        raise InvalidArgument(
            f"StepRunner takes (array, optimizer, loss_function), in this order; got a {type(array).__name__} first"
        )


def in_parts(optimizer: Any, loss_function: Any, scaler: Any) -> tuple[tuple[Any, ...], ...]:
    """Read optimizer, loss function and scaler as those of a step's parts, one of each or lists of as many.

    Returns:
        (optimizers, loss functions, scalers) of all parts; a part without a scaler has None.
    """
    optimizers, losses = _listed(optimizer), _listed(loss_function)
    if len(optimizers) != len(losses) or not losses:
        raise InvalidArgument(
            "StepRunner takes one loss function for each optimizer, in the order in which a step trains; got "
            f"{len(optimizers)} optimizers and {len(losses)} loss functions"
        )
    scalers = (None,) * len(losses) if scaler is None else _listed(scaler)
    if len(scalers) != len(losses):
        raise InvalidArgument(
            f"each of {len(losses)} optimizers scales its losses by its own scaler, got {len(scalers)}: give a "
            "list, with None where gradients need no scale"
        )
    return optimizers, losses, scalers


def _listed(given: Any) -> tuple[Any, ...]:
    return tuple(given) if isinstance(given, (list, tuple)) else (given,)


def check_scaler(scaler: Any, on_cpu: bool) -> None:
    """Refuse torch's GradScaler for an array on a CPU."""
    if on_cpu and scaler is not None and not isinstance(scaler, GradScaler):
        raise InvalidArgument(
            "torch's GradScaler is for float16 on a GPU; on a CPU give dnnsuite.optim.GradScaler, or none"
        )


def check_optimizer(optimizer: Any, B: int) -> None:
    """Refuse an optimizer that is not for an array of `B` models."""
    kind = type(optimizer)
    if isinstance(optimizer, ArrayOptimizer):
        if not kind.step.__module__.startswith("dnnsuite."):
            raise InvalidArgument(
                f"{kind.__name__} has its own step, which StepRunner would not call: compute what it adds in a "
                "hook (register_step_post_hook), or train by hand"
            )
        if not optimizer.passes:
            raise InvalidArgument(
                f"{kind.__name__} computes losses as often as its search needs, which no recording follows: train by "
                "hand, by optimizer.step(closure)"
            )
        if optimizer.B != B:
            raise InvalidArgument(
                f"the array holds {B} models and its optimizer {optimizer.B}: pass the optimizer to the "
                "edit of the array, for example array.drop(2, optimizer)"
            )
    elif isinstance(optimizer, torch.optim.Optimizer) and hasattr(optim, kind.__name__):
        raise InvalidArgument(
            f"StepRunner trains with optimizers of dnnsuite.optim, got torch's {kind.__name__}: "
            f"dnnsuite.optim.{kind.__name__}(array.parameters(), ...) takes the same arguments, each also with one "
            "value per model"
        )
    elif takes_joint_steps(optimizer):
        raise InvalidArgument(
            f"StepRunner trains with optimizers of dnnsuite.optim, got torch's {kind.__name__}, which would take one "
            f"step for all models together: use one of these, or one {kind.__name__} for each model of "
            "dnnsuite.unfuse(array)"
        )
    else:
        raise InvalidArgument(
            f"StepRunner trains with optimizers of dnnsuite.optim, got a {kind.__name__}: write StepRunner(array, "
            "dnnsuite.optim.Adam(array.parameters(), lr=1e-3), loss_function), or step by hand"
        )


def hooks_after_a_step(optimizer: ArrayOptimizer) -> list[Any]:
    """Return the optimizer's hooks that wait for a step; refuse those before it, which would see no gradients."""
    own = vars(optimizer).get("step")
    of_a_scheduler = getattr(own, "__wrapped__", None) is type(optimizer).step
    if own is not None and not of_a_scheduler:
        raise InvalidArgument(
            "the optimizer's step was replaced by a function, which StepRunner would not call: compute what it adds in "
            "a hook (register_step_post_hook), or train by hand"
        )
    before, after = step_hooks(optimizer)
    if before:
        raise InvalidArgument(
            "there is a hook before each step of the optimizer, which would see no gradients under StepRunner: "
            "remove it, use the optimizer's max_grad_norm, or train without StepRunner"
        )
    return after


def check_batch(batch: Any, B: int) -> bool:
    """Refuse a batch that is not one of `B` models; return True if a list of one tensor per model is in it."""
    if isinstance(batch, torch.Tensor):
        if batch.layout != torch.strided:
            raise InvalidArgument(
                f"a tensor {list(batch.shape)} in a batch has layout {batch.layout}, of which StepRunner cannot take a "
                "part: give its indices and values, keep a matrix that all models share as a buffer of theirs, or "
                "train by hand"
            )
        if batch.dim() == 0 or batch.size(0) != B:
            raise InvalidArgument(
                f"a batch for {B} models is [{B}, ...], got {list(batch.shape)}; dnnsuite.stack(x, B={B}) "
                "shares one batch among them"
            )
        return False
    if getattr(batch, "ndim", 0) and hasattr(batch, "__array__"):
        raise InvalidArgument(
            f"a batch has a {type(batch).__name__} of numbers in it: torch.as_tensor makes it a tensor"
        )
    if not isinstance(batch, list):
        ragged = [check_batch(part, B) for part in _parts(batch)]
        return any(ragged)
    kinds = {(value.dtype, value.dim()) if isinstance(value, torch.Tensor) else None for value in batch}
    if len(batch) != B or None in kinds or len(kinds) > 1:
        raise InvalidArgument(
            f"a list in a batch holds one tensor per model, {B}, of one dtype and number of dimensions; got "
            f"{len(batch)} values. A DataLoader yields lists: pass `runner.step(*batch)` or a tuple"
        )
    return True


def _parts(batch: Any) -> Sequence[Any]:
    """List the parts of a batch; refuse an object that holds tensors in an unknown way."""
    if type(batch) is tuple:
        return batch
    found = opened(batch)
    if found is not None:
        return found[1]
    held = getattr(batch, "__dict__", {})
    for name, value in held.items() if not isinstance(batch, (type, torch.nn.Module)) else ():
        if isinstance(value, torch.Tensor):
            raise InvalidArgument(
                f"a batch is of tensors, tuples, lists, mappings and dataclasses; a {type(batch).__name__} holds a "
                f"tensor in .{name}, which StepRunner would not deal out: give the tensors themselves"
            )
    return ()


def explain_loss(loss_function: Callable[..., Any], batch: tuple[Any, ...], error: Exception) -> None:
    """Raise a refusal in place of an error of a loss function with other arguments, or with torch's own loss."""
    if isinstance(error, TypeError):
        try:
            inspect.signature(loss_function).bind(None, *batch)
        except TypeError:
            raise InvalidArgument(
                f"the loss function is called with the array and the {len(batch)} parts of the batch, as "
                f"loss_function(array, x, y) is, and does not take them: {error}"
            ) from error
        except ValueError:  # no signature
            return
        if "not Array" in str(error):
            raise InvalidArgument(
                "the loss function is called with the array, not with its outputs: write "
                f"lambda array, x, y: dnnsuite.nn.functional.cross_entropy(array(x), y) ({error})"
            ) from error
    elif str(error).startswith("Expected target size"):
        raise InvalidArgument(
            f"torch's loss takes the outputs of one model: write dnnsuite.nn.functional.cross_entropy ({error})"
        ) from error


def warn_of_single_samples(batch: tuple[Any, ...], B: int) -> None:
    """Warn if the tensors `[B, ...]` of `batch` look like one batch of B samples without `dnnsuite.stack`: if a tensor
    has one number per model, usually a label, and none shows more than one sample.
    """
    tensors = [leaf for leaf in tree_leaves(batch) if isinstance(leaf, torch.Tensor)]
    if B > 1 and len(tensors) > 1 and _single_samples(tensors):
        shapes = ", ".join(str(list(tensor.shape)) for tensor in tensors)
        warnings.warn(
            f"each of the {B} models trains on one sample without a batch dimension (the batch is {shapes}); if "
            f"these are {B} samples for all models, pass dnnsuite.stack(batch, B={B})",
            stacklevel=5,
        )


def _single_samples(tensors: Sequence[torch.Tensor]) -> bool:
    numbers = [tensor for tensor in tensors if tensor.dim() == 1]
    labels = any(not tensor.is_floating_point() for tensor in numbers)
    flat = all(tensor.dim() <= 2 for tensor in tensors)
    return bool(numbers) and (labels or flat) and not any(tensor.stride(0) == 0 for tensor in tensors)
