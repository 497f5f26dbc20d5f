# SPDX-License-Identifier: MIT
"""Trial of an optimizer class of the user's: does a step of an array's parameter do what it does for each model's own?

The optimizer is copied with small parameters in place of its own, once `[2, ...]` as an array's and once for each of
two models alone. All take some steps with the same gradients, and what is random is one number for all. What differs
couples the models, or minds the number of dimensions or a size: neither has to be read in code, where a norm may hide
in a helper, a table or a compiled function.
"""

from __future__ import annotations

import collections
import copy
import inspect
import operator
import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._torch import TorchDispatchMode
from . import array_layers

_MODELS = 2
#: Elements of the small parameters' dimensions, wide ones and then tall ones, for code that compares their sizes.
_MOST = ((5, 7, 3, 2, 2, 2), (7, 5, 2, 3, 2, 2))
#: Of the gradients in each step. A clip may act on large ones only, and some steps come once in ten.
_SIZES = (0.1, 1.0, 100.0, *(1.0,) * 9)
_OF_A_KIND = 3  # parameters of one number of dimensions that are tried of each group
_TOLERANCE = 1e-6


def coupling(optimizer: torch.optim.Optimizer) -> str:
    """Say why the optimizer does not train each model of an array as alone, or why a trial cannot tell; empty if it
    does."""
    if _trial.under_way:  # the step of a copy, which is looked at before it, too
        return ""
    _trial.under_way = True
    generators = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        with torch.no_grad():
            apart = all(_alike(optimizer, most) for most in _MOST)
        return (
            ""
            if apart
            else (
                "tried on two small models, is another one for parameters of an array than for those of each model "
                "alone, by their dimensions or by what it computes of whole tensors"
            )
        )
    except Exception as error:
        return f"cannot be tried on two small models ({type(error).__name__}: {error})"
    finally:
        _trial.under_way = False
        random.setstate(generators[0])
        np.random.set_state(generators[1])
        torch.set_rng_state(generators[2])


class _Trial(threading.local):
    under_way = False


_trial = _Trial()


class _NothingRandom(TorchDispatchMode):
    """Dispatch mode in which random draws yield one number, so that draws of other shapes are the same."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if torch.Tag.nondeterministic_seeded in func.tags and isinstance(found, Tensor):
            found.fill_(0.75)
        return found


def _alike(optimizer: torch.optim.Optimizer, most: tuple[int, ...]) -> bool:
    small = _small_parameters(_tried(optimizer), most)
    joint = _stepped(optimizer, small, lambda x: x, of_array=True)
    alone = [_stepped(optimizer, small, operator.itemgetter(i), of_array=False) for i in range(_MODELS)]
    return all(
        _near(mine[index], own, start[index])
        for index, models in enumerate(alone)
        for mine, own, start in zip(joint, models, small.values(), strict=True)
    )


def _near(a: Tensor, b: Tensor, start: Tensor) -> bool:
    moved, off = ((b - one).abs().nan_to_num(0.0, 0.0).max() for one in (start, a))
    return torch.equal(a.isnan(), b.isnan()) and bool(off <= _TOLERANCE * moved + 1e-12)


def _tried(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """List some of each group's parameters, of every number of dimensions."""
    chosen: list[Tensor] = []
    for group in optimizer.param_groups:
        for dim in {p.dim() for p in group["params"]}:
            chosen += [p for p in group["params"] if p.dim() == dim][:_OF_A_KIND]
    return chosen


def _small_parameters(given: Sequence[Tensor], most: tuple[int, ...]) -> dict[int, Tensor]:
    """Make a small parameter `[2, ...]` for each, by id."""
    numbers = torch.Generator().manual_seed(0)
    return {
        id(p): torch.randn(_MODELS, *map(min, p.shape[1:], most), generator=numbers, dtype=torch.float64) for p in given
    }


def _stepped(
    optimizer: torch.optim.Optimizer, small: dict[int, Tensor], part: Callable[[Tensor], Tensor], of_array: bool
) -> list[Tensor]:
    """Take steps with a copy of `optimizer` that has the parts of the `small` parameters; return these afterwards."""
    made = {key: torch.nn.Parameter(part(value).clone()) for key, value in small.items()}
    layer = torch.nn.Module()
    layer._parameters = {str(place): parameter for place, parameter in enumerate(made.values())}
    if of_array:  # torch's functions for gradients take those of an array model by model
        array_layers.add(layer)
    probe = _copied(optimizer, made, part)
    numbers = torch.Generator().manual_seed(1)
    random.seed(0)
    np.random.seed(0)
    ways = {key: torch.randn(small[key].shape, generator=numbers, dtype=torch.float64) for key in made}
    for count, size in enumerate(_SIZES):  # mostly one way, by which some find how far to go
        grads: dict[int, Tensor] = {}
        for key in made:
            noise = torch.randn(small[key].shape, generator=numbers, dtype=torch.float64)
            grad = size * (ways[key] + 0.3 * noise)
            grads[key] = part(grad if count else _orthogonal(grad, small[key]))

        def closure(grads: dict[int, Tensor] = grads) -> Tensor:
            """Give the parameters the gradients of a parabola about them."""
            for key, parameter in made.items():
                parameter.grad = grads[key] + parameter.detach() - part(small[key])
            return torch.stack([p.detach().square().sum() for p in made.values()]).sum()

        closure()
        with _NothingRandom():
            probe.step(closure) if _takes_closure(probe) else probe.step()
    array_layers.forget(layer)
    return [parameter.detach() for parameter in made.values()]


def _orthogonal(grad: Tensor, to: Tensor) -> Tensor:
    """Make each model's gradient orthogonal to its parameter, as a norm behind a layer does: some projections act then
    alone."""
    grads, other = grad.view(_MODELS, -1), to.view(_MODELS, -1)
    along = (grads * other).sum(1, True) / other.square().sum(1, True)
    return (grads - along * other).view_as(grad) if grads.size(1) > 1 else grad


def _takes_closure(optimizer: Any) -> bool:
    first = next(iter(inspect.signature(optimizer.step).parameters.values()), None)
    return first is not None and (first.name == "closure" or first.default is inspect.Parameter.empty)


def _copied(optimizer: Any, made: dict[int, torch.nn.Parameter], part: Callable[[Tensor], Tensor]) -> Any:
    memo: dict[int, Any] = dict(made)
    probe = object.__new__(type(optimizer))
    own = {name: value for name, value in vars(optimizer).items() if name not in ("param_groups", "state")}
    own |= {name: collections.OrderedDict() for name in own if name.endswith(("_pre_hooks", "_post_hooks"))}
    vars(probe).update(copy.deepcopy(own, memo))
    probe.param_groups = [
        copy.deepcopy({**group, "params": [p for p in group["params"] if id(p) in made]}, memo)
        for group in optimizer.param_groups
    ]
    probe.state = collections.defaultdict(dict)
    for group in optimizer.param_groups:
        for parameter in (p for p in group["params"] if id(p) in made):
            for name, value in optimizer.state.get(parameter, {}).items():
                probe.state[made[id(parameter)]][name] = _small_state(value, parameter, made[id(parameter)], part)
    return probe


def _small_state(value: Any, parameter: Tensor, small: Tensor, part: Callable[..., Any]) -> Any:
    """Cut a state of a parameter's shape to the size of its small one."""
    if not isinstance(value, Tensor) or value.shape != parameter.shape:
        return copy.deepcopy(value)
    rows = value[:_MODELS].double()
    rows = rows if rows.size(0) == _MODELS else rows.expand(_MODELS, *rows.shape[1:])
    for dim, size in enumerate(small.shape[small.dim() - value.dim() + 1 :], 1):
        rows = rows.narrow(dim, 0, size)
    return part(rows).clone()
