# SPDX-License-Identifier: MIT
"""Functions of tensors that all models share, computed once; in-place functions, and what is computed before them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch

from ..._torch import standard_gamma, tree_leaves, tree_map
from ...nn.model_tensor import ModelTensor, NotFusable, Refused, mark_fresh, outside, state
from ...nn.random_streams import FUNCTION_STREAM, pass_over
from ...nn.sharing import is_frozen, own, spread
from ..code.stand_in import ModelNumber

#: Functions whose results are no tensors to go on with, or that change what a tensor is; their rules answer.
_OTHERS = frozenset([
    "__get__", "__set__", "__bool__", "__int__", "__float__", "__index__", "__contains__", "__array__",
    "bool", "int", "float", "item", "tolist", "is_nonzero", "numpy", "data_ptr", "storage", "set_",
    "untyped_storage", "register_hook", "backward", "retain_grad", "requires_grad_", "share_memory_",
    "detach_", "apply_", "map_", "__reduce_ex__", "__deepcopy__", "__dlpack__", "__len__", "__iter__",
])  # fmt: skip
_DRAWING = frozenset([
    "rand_like", "randn_like", "randint_like", "normal", "uniform", "exponential", "bernoulli", "geometric",
    "log_normal", "cauchy", "random", "multinomial", "poisson", "binomial", "rrelu", "gumbel_softmax",
    "fractional_max_pool2d", "fractional_max_pool3d", "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d_with_indices", "multi_head_attention_forward",
])  # fmt: skip
_GAMMA = getattr(standard_gamma, "__name__", None)
#: Functions that drop, and where `training`, or the rate of attention's dropout, stands among their arguments.
DROPPING = {
    **{f"{kind}dropout{end}": 2 for kind in ("", "alpha_", "feature_alpha_", "feature_") for end in ("", "_")},
    **{f"dropout{dims}d": 2 for dims in (1, 2, 3)},
    "scaled_dot_product_attention": 4,
}


#: By rule, the function for tensors `[1, ...]` that computes what the rule does for a model that is alone.
FOR_ONE: dict[Any, Callable[..., Any]] = {}


def shared_result(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], rule: Any = None) -> Any:
    """Compute `func(*args, **kwargs)`, of which `rule` is the rule, once; NotImplemented if it is not the same for all
    models."""
    leaves = [*args, *kwargs.values()]
    if any(isinstance(leaf, (tuple, list, dict)) for leaf in leaves):
        leaves = tree_leaves(leaves)
    if not any(type(leaf) is ModelTensor for leaf in leaves) or not all(map(_is_of_all, leaves)):
        return NotImplemented
    name = getattr(func, "__name__", "__get__")
    if name in _OTHERS or draws_numbers(name, args, kwargs) or kwargs.get("generator") is not None or "out" in kwargs:
        return NotImplemented
    if name in DROPPING:  # its rule takes a draw of the stream, used or not: later ones are the same in any company
        pass_over_a_draw()
    writes = in_place(func) or bool(kwargs.get("inplace"))
    if writes and type(args[0]) is ModelTensor and args[0].fresh is None:
        return NotImplemented
    if rule in FOR_ONE and not writes:
        args_of_one, kwargs_of_one = tree_map(_first, (args, kwargs))
        result = FOR_ONE[rule](args_of_one, kwargs_of_one)
        return tree_map(lambda value: _spread(value, args, kwargs), result)
    if writes:
        settle()
    own_args, own_kwargs = tree_map(_of_one, (args, kwargs))
    result = func(*own_args, **own_kwargs)
    if writes:
        return _written(args[0], own_args[0], result)
    return tree_map(lambda value: _shown(value, args, kwargs), result)


def _is_of_all(leaf: Any) -> bool:
    """True for a value that is the same for all models, except a parameter that code reaches past its module."""
    if type(leaf) is ModelTensor:
        known = leaf.deferred
        return known.shared if known is not None else is_frozen(leaf.value)
    if isinstance(leaf, torch.Tensor):
        return not leaf.requires_grad and not isinstance(leaf, torch.nn.Parameter)
    return type(leaf) is not ModelNumber


def draws_numbers(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return True if a call of the function of this name draws numbers, as far as its arguments tell."""
    if name == "scaled_dot_product_attention":
        return _drops(_given(("dropout_p",), DROPPING[name], args, kwargs, 0.0))
    if name in DROPPING:
        training = _given(("training", "train"), DROPPING[name], args, kwargs, True)
        return bool(training) and _drops(_given(("p",), 1, args, kwargs, 0.5))
    return name in _DRAWING or name == _GAMMA or (name.endswith("_") and name.rstrip("_") in _DRAWING)


def _drops(rate: Any) -> bool:
    return rate.any() if type(rate) is ModelNumber else bool(rate)


def _given(words: tuple[str, ...], place: int, args: tuple[Any, ...], kwargs: dict[str, Any], usual: Any) -> Any:
    """Find an argument by one of its names or by its place; `usual` if it is not given."""
    named = [kwargs[word] for word in words if word in kwargs]
    return (named or [*args[place : place + 1], usual])[0]


def pass_over_a_draw() -> None:
    """Move the stream of functions past a draw that a function does not take."""
    stream = getattr(state.random, "_buffers", {}).get(FUNCTION_STREAM)
    if stream is not None:
        pass_over(stream)


def _of_one(value: Any) -> Any:
    return value.value[0] if type(value) is ModelTensor else value


def _first(value: Any) -> Any:
    if type(value) is ModelTensor:
        return value.value[:1]
    return value.unsqueeze(0) if isinstance(value, torch.Tensor) else value


def _shown(value: Any, args: Any, kwargs: Any) -> Any:
    return _spread(value.unsqueeze(0), args, kwargs) if isinstance(value, torch.Tensor) else value


def _spread(value: Any, args: Any, kwargs: Any) -> Any:
    """Show a result `[1, ...]` as that of all models."""
    if not isinstance(value, torch.Tensor):
        return value
    result = ModelTensor(spread(value, state.B))
    mark_fresh(result, (args, kwargs))
    return result


def _written(target: Any, one: torch.Tensor, result: Any) -> Any:
    """Return what an in-place function returns; `target` has the shape that it has been given."""
    if type(target) is not ModelTensor:
        return result
    if one.shape != target.shape or one.stride() != target.value.stride()[1:]:
        target.become(spread(one.unsqueeze(0), target.B))
    return None if result is None else target


def own_before_writing(target: ModelTensor) -> None:
    """Give each model its own memory for a tensor of all, into which each is about to write its own values.

    Raises:
        Refused: for a buffer or parameter that all models share.
        NotFusable: for a tensor of which other tensors are views.
    """
    if target.fresh is not None:
        if target.fresh.tensors > 1:
            raise NotFusable("it writes each model's values into a view of what all models share")
        target.become(own(target.value))
        target.fresh = None
        return
    name = _name_of(target.value)
    if name:
        raise shared_write(name)


def shared_write(name: str) -> Refused:
    """Return the error for a write into a parameter or buffer that all models share."""
    return Refused(
        f"the forward writes each model's values into {name}, which all models share: fuse models that have their "
        "own (copy.deepcopy)"
    )


def _name_of(value: torch.Tensor) -> str:
    """Name the shared parameter or buffer in whose memory `value` lies."""
    owner, place = state.random, value.untyped_storage().data_ptr()
    with outside():
        root = getattr(owner, "__dict__", {}).get("_root", owner)
        held = (*root.named_parameters(), *root.named_buffers()) if isinstance(root, torch.nn.Module) else ()
        return next((name for name, other in held if other.untyped_storage().data_ptr() == place), "")


IN_PLACE_OPERATORS = frozenset([
    "add", "sub", "mul", "div", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift",
])  # fmt: skip


@functools.lru_cache(maxsize=4096)
def in_place(func: Any) -> bool:
    """Return True if a function writes into its first argument."""
    name: str = func.__name__
    if name.startswith("__"):
        return (name[2] == "i" and name[3:-2] in IN_PLACE_OPERATORS) or name == "__setitem__"
    return name.endswith("_")


def settle_since(mark: int, output: Any = None) -> None:
    """Compute deferred tensors that are needed, of those created after the first `mark`.

    A module's `output` stays deferred if the caller may take its maximum.
    """
    late = state.pending[mark:]
    del state.pending[mark:]
    if late and output is not None:
        for tensor in tree_leaves(output):
            waiting = tensor.deferred if type(tensor) is ModelTensor else None
            if waiting is not None and waiting.layer.before_maximum(waiting.x):
                late = [other for other in late if other is not tensor]
                state.pending.append(tensor)
    while late:
        tensor = late.pop()
        # What was done together with its successor, and no one holds any more, is not done again.
        if tensor.deferred is not None and not (tensor.deferred.taken and sys.getrefcount(tensor) <= 2):
            tensor.value  # noqa: B018


def settle() -> None:
    """Compute all deferred tensors, before something is written in place."""
    settle_since(0)
