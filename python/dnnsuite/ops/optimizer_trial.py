# SPDX-License-Identifier: MIT
"""Trial of an optimizer class of the user's: does a step of an array's parameter do what it does for each model's own?

The optimizer is copied with small parameters in place of its own, once `[2, ...]` as an array's and once for each of
two models alone. All take three steps with the same gradients. What differs couples the models, or minds the number of
dimensions or a size: neither has to be read in code, where a norm may hide in a helper, a table or a compiled function.
"""

from __future__ import annotations

import collections
import copy
import operator
import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from . import array_layers

__all__ = ["keeps_models_apart"]

_MODELS = 2
#: Elements of the small parameters' dimensions, wide ones and then tall ones, for code that compares their sizes.
_MOST = ((3, 4, 2, 2, 2, 2), (5, 2, 3, 2, 2, 2))
_SIZES = (0.1, 1.0, 100.0)  # of the gradients in each step: a clip may act on large ones only
_TOLERANCE = 1e-6


def keeps_models_apart(optimizer: torch.optim.Optimizer) -> bool | None:
    """Return True if the optimizer trains each model of an array as alone, False if not, None if a trial cannot tell,
    as for one that draws random numbers or wants a closure."""
    if _trial.under_way:  # the step of a copy, which is looked at before it, too
        return None
    _trial.under_way = True
    generators = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        with torch.no_grad():
            return all(_alike(optimizer, most) for most in _MOST)
    except Exception:
        return None
    finally:
        _trial.under_way = False
        random.setstate(generators[0])
        np.random.set_state(generators[1])
        torch.set_rng_state(generators[2])


class _Trial(threading.local):
    under_way = False


_trial = _Trial()


class _Draws(Exception):
    """Raised where a step draws random numbers."""


def _alike(optimizer: torch.optim.Optimizer, most: tuple[int, ...]) -> bool:
    small = _small_parameters([p for group in optimizer.param_groups for p in group["params"]], most)
    before = random.getstate(), torch.get_rng_state()
    joint = _stepped(optimizer, small, lambda x: x, of_array=True)
    if not torch.equal(torch.get_rng_state(), before[1]) or random.getstate() != before[0]:
        raise _Draws
    alone = [_stepped(optimizer, small, operator.itemgetter(i), of_array=False) for i in range(_MODELS)]
    return all(
        _near(mine[index], own, start[index])
        for index, models in enumerate(alone)
        for mine, own, start in zip(joint, models, small.values(), strict=True)
    )


def _near(a: torch.Tensor, b: torch.Tensor, start: torch.Tensor) -> bool:
    moved, off = ((b - one).abs().nan_to_num(0.0, 0.0).max() for one in (start, a))
    return torch.equal(a.isnan(), b.isnan()) and bool(off <= _TOLERANCE * moved + 1e-12)


def _small_parameters(given: Sequence[torch.Tensor], most: tuple[int, ...]) -> dict[int, torch.Tensor]:
    """Make a small parameter `[2, ...]` for each, by id."""
    numbers = torch.Generator().manual_seed(0)
    return {
        id(p): torch.randn(_MODELS, *map(min, p.shape[1:], most), generator=numbers, dtype=torch.float64)
        for p in given
    }


def _stepped(
    optimizer: torch.optim.Optimizer,
    small: dict[int, torch.Tensor],
    part: Callable[[torch.Tensor], torch.Tensor],
    of_array: bool,
) -> list[torch.Tensor]:
    """Take steps with a copy of `optimizer` that has the parts of the `small` parameters; return these afterwards."""
    made = {key: torch.nn.Parameter(part(value).clone()) for key, value in small.items()}
    layer = torch.nn.Module()
    layer._parameters = {str(place): parameter for place, parameter in enumerate(made.values())}
    if of_array:  # torch's functions for gradients take those of an array model by model
        array_layers.add(layer)
    probe = _copied(optimizer, made, part)
    numbers = torch.Generator().manual_seed(1)
    for size in _SIZES:
        for key, parameter in made.items():
            grad = size * torch.randn(small[key].shape, generator=numbers, dtype=torch.float64)
            parameter.grad = part(grad).clone()
        probe.step()
    array_layers.forget(layer)
    return [parameter.detach() for parameter in made.values()]


def _copied(
    optimizer: Any, made: dict[int, torch.nn.Parameter], part: Callable[[torch.Tensor], torch.Tensor]
) -> Any:
    memo: dict[int, Any] = dict(made)
    probe = object.__new__(type(optimizer))
    own = {name: value for name, value in vars(optimizer).items() if name not in ("param_groups", "state")}
    own |= {name: collections.OrderedDict() for name in own if name.endswith(("_pre_hooks", "_post_hooks"))}
    vars(probe).update(copy.deepcopy(own, memo))
    probe.param_groups = copy.deepcopy(optimizer.param_groups, memo)
    probe.state = collections.defaultdict(dict)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            for name, value in optimizer.state.get(parameter, {}).items():
                probe.state[made[id(parameter)]][name] = _small_state(
                    value, parameter, made[id(parameter)], part
                )
    return probe


def _small_state(value: Any, parameter: torch.Tensor, small: torch.Tensor, part: Callable[..., Any]) -> Any:
    """Cut a state of a parameter's shape to the size of its small one."""
    if not isinstance(value, torch.Tensor) or value.shape != parameter.shape:
        return copy.deepcopy(value)
    rows = value[:_MODELS].double()
    rows = rows if rows.size(0) == _MODELS else rows.expand(_MODELS, *rows.shape[1:])
    for dim, size in enumerate(small.shape[small.dim() - value.dim() + 1 :], 1):
        rows = rows.narrow(dim, 0, size)
    return part(rows).clone()
