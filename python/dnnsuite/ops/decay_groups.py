# SPDX-License-Identifier: MIT
"""Parameter groups by dimensions: an array's parameters have one more than a model's.

`p.dim() >= 2` tells a model's matrices from its biases and norms; of an array both are `[B, ...]` and fulfil it, so
that biases decay that should not. Helpers ask the parameters before any optimizer sees them, so what they did shows in
the groups alone: a warning names the line to write instead.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from ..errors import InvalidArgument
from . import array_layers

Group = dict[str, Any]


class ChosenGroup(dict[str, Any]):
    """Group that is not by dimensions of an array: it was chosen for a model, or is one of an optimizer."""


def decay_groups(
    array: torch.nn.Module, weight_decay: Any = 1e-2, helper: Callable[[Any], Iterable[Any]] | None = None
) -> list[Group]:
    """Group the parameters of an array for an optimizer in the same way as those of one of its models.

    Args:
        array: an array of B models.
        weight_decay: decay of matrices and larger tensors, one number or one per model; vectors and scalars (biases,
            norms) do not decay.
        helper: function of one model that returns its groups as torch's optimizers take them, for another choice; it
            is called with model 0 and decides about `weight_decay` itself.

    Raises:
        InvalidArgument: the helper did not return groups of the model's parameters.

    >>> import torch
    >>> from dnnsuite import fuse, optim
    >>> array = fuse([torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8)) for _ in range(3)])
    >>> groups = optim.decay_groups(array, weight_decay=[0.1, 0.01, 0.0])
    >>> [(group["weight_decay"], len(group["params"])) for group in groups]
    [([0.1, 0.01, 0.0], 1), (0.0, 3)]
    >>> optimizer = optim.AdamW(groups, lr=1e-3)
    """
    held = [p for p in array.parameters() if p.requires_grad]
    if helper is None:
        chosen = ([p for p in held if p.dim() > 2], weight_decay), ([p for p in held if p.dim() <= 2], 0.0)
        return [ChosenGroup(params=params, weight_decay=decay) for params, decay in chosen if params]
    model = array[0]  # type: ignore[index]
    own = dict(zip(map(id, model.parameters()), array.parameters(), strict=True))
    try:
        found = list(helper(model))
        groups = found if found and isinstance(found[0], dict) else [{"params": found}]
        return [ChosenGroup({**group, "params": [own[id(p)] for p in group["params"]]}) for group in groups]
    except (KeyError, TypeError) as error:
        raise InvalidArgument(
            f"the helper returned no groups of model 0's parameters ({type(error).__name__}: {error}): return what "
            "torch's optimizers take of one model, a list of parameters or of dictionaries with 'params'"
        ) from error


def warn_of_dimensions(groups: Sequence[Group]) -> None:
    """Warn where the last of an optimizer's groups, and another or none, look like a choice by `p.dim() >= 2`: the one
    that decays more has vectors beside matrices of an array's models."""
    last = groups[-1]
    for other in groups[:-1] or [{"params": [], "weight_decay": 0.0}]:
        if isinstance(last, ChosenGroup) or "weight_decay" not in last or "weight_decay" not in other:
            continue
        more, less = sorted((last, other), key=_decay, reverse=True)
        vectors = [p for p in more["params"] if p.dim() == 2]
        if not vectors or len(vectors) == len(more["params"]) or _decay(more) == _decay(less):
            continue
        if _by_dimensions(vectors, less["params"]) and array_layers.has_any(vectors):
            vector = vectors[0]
            warnings.warn(
                f"weight_decay={_decay(more):g} is for matrices and for vectors of the models, one of which is "
                f"{list(vector.shape)} in the array: a choice by p.dim() or p.ndim counts the models' dimension. Write "
                f"optim.decay_groups(array, {_decay(more):g}), or optim.decay_groups(array, helper=f) for a function f "
                "of one model that chooses otherwise",
                stacklevel=_callers(),
            )
            return


def _by_dimensions(decayed: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    """Return True if all vectors decay, and if all do but those that their layers call biases, by which some helpers
    choose too."""
    if all(p.dim() < 2 for p in others):
        return True
    biases = {id(p) for name, p in array_layers.named_parameters() if name.startswith("bias")}
    vectors = [p for p in others if p.dim() == 2]
    return bool(vectors) and biases.issuperset(map(id, vectors)) and biases.isdisjoint(map(id, decayed))


def _callers() -> int:
    """Count the frames up to the code that makes the optimizer."""
    frame, depth = sys._getframe(1), 1
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in ("torch", "dnnsuite"):
        frame, depth = frame.f_back, depth + 1
    return depth


def _decay(group: Group) -> float:
    return float(torch.as_tensor(group["weight_decay"]).max())
