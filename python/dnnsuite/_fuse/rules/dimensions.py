# SPDX-License-Identifier: MIT
"""Rules of functions with a dimension argument: dimension 0 of one model is dimension 1 of the array."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from ..._torch import weight_norm
from ...nn import functional as ours
from ...nn.functional.mean import mean
from ...nn.model_tensor import ModelTensor, NotFusable, expanded, wrap_all
from ...nn.waiting import mark_halves
from ...ops.memory_order import by_memory_order
from ..code.epilogue_fusion import maximum
from .elementwise import elementwise
from .shapes import index_of_all, sizes_of, viewed
from .table import FINDERS, before_writing, check_own, in_place, map_over_models, raw, rule


def moved(dim: Any, rank: int) -> Any:
    """Convert a dimension of one model into the array's; each of a sequence; None stays None."""
    if type(dim) is not int:
        if dim is None or isinstance(dim, str):
            return dim
        if isinstance(dim, Sequence):
            return tuple(moved(d, rank) for d in dim)
        dim = int(dim)
    low = -max(rank, 1)
    if not low <= dim < -low:
        raise IndexError(f"Dimension out of range (expected to be in range of [{low}, {-low - 1}], but got {dim})")
    return (dim + max(rank, 1) if dim < 0 else dim) + 1 if rank else 1


def _call(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if "out" in kwargs:
        raise NotFusable(f"{func.__name__}(out=...) has no meaning for several models")
    return func(*(raw(a) for a in args), **{name: raw(value) for name, value in kwargs.items()})


def _named(name: str, places: dict[int, str], defaults: dict[str, Any]) -> None:
    """Register a rule for `name`, whose arguments at `places` are dimensions."""
    quick = 1 + len(places) if name != "flatten" and [*places] == [*range(1, 1 + len(places))] else 0

    @rule(name, writes=True)
    def apply(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if type(args[0]) is not ModelTensor:
            return map_over_models(func, args, kwargs)
        first, rank = args[0], args[0].dim()
        values = list(args)
        if quick and not kwargs and len(args) == quick and not in_place(func):
            for place in places:
                values[place] = moved(values[place], rank)
            result = wrap_all(func(first.value, *values[1:]))
            if first.unsure and type(result) is ModelTensor:
                result.unsure = True
            return result
        kwargs = dict(kwargs)
        for place, dim_name in places.items():
            key = "axis" if dim_name == "dim" and "axis" in kwargs else dim_name
            if len(values) > place:
                values[place] = moved(values[place], rank)
            elif key in kwargs:
                kwargs[key] = moved(kwargs[key], rank)
            elif dim_name in defaults:
                kwargs[dim_name] = moved(defaults[dim_name], rank)
        if in_place(func):
            before_writing(func, first)
            _call(func, values, kwargs)
            first.become(first.value)  # of another shape
            return first
        result = wrap_all(_call(func, values, kwargs))
        if name == "flatten":
            return viewed(first, result.value)
        if first.unsure and type(result) is ModelTensor:
            result.unsure = True
        return result


_TABLE: list[tuple[str, dict[int, str], dict[str, Any]]] = [
    *[(n, {1: "dim"}, {}) for n in ["cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"]],
    *[(n, {1: "dim"}, {"dim": -1}) for n in ["sort", "argsort", "mode"]],
    ("diff", {2: "dim"}, {"dim": -1}),
    *[(n, {2: "dim"}, {"dim": -1}) for n in ["topk", "kthvalue"]],
    *[(n, {1: "dim"}, {"dim": 0}) for n in ["unbind"]],
    *[(n, {1: "dim"}, {}) for n in ["narrow", "select", "unflatten"]],
    ("flatten", {1: "start_dim", 2: "end_dim"}, {"start_dim": 0, "end_dim": -1}),
    *[(n, {1: "dim0", 2: "dim1"}, {}) for n in ["transpose", "swapdims"]],
    ("swapaxes", {1: "axis0", 2: "axis1"}, {}),
    ("movedim", {1: "source", 2: "destination"}, {}),
    ("moveaxis", {1: "source", 2: "destination"}, {}),
    ("rot90", {2: "dims"}, {"dims": (0, 1)}),
]
for _name, _places, _defaults in _TABLE:
    _named(_name, _places, _defaults)


@rule("softmax log_softmax")
def _softmax(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    values = dict(zip(("input", "dim", "dtype"), args, strict=False)) | kwargs
    x = values.pop("input")
    if "out" in values or x.dim() == 0:
        return map_over_models(func, args, kwargs)
    ours_of_all = ours.softmax if func.__name__ == "softmax" else ours.log_softmax
    return wrap_all(ours_of_all(x.value, **values))


@rule("chunk split tensor_split split_with_sizes")
def parts(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Cut a tensor in parts, views of it."""
    if type(args[0]) is not ModelTensor:
        return map_over_models(func, args, kwargs)
    first, dim = args[0], args[2] if len(args) > 2 else kwargs.get("dim", 0)
    sizes = {name: raw(value) for name, value in kwargs.items() if name != "dim"}

    def cut(tensors: list[torch.Tensor], dim: int) -> tuple[torch.Tensor, ...]:
        return tuple(func(tensors[0], *args[1:2], dim=dim, **sizes))

    whole, dim = first.value, moved(dim, first.dim())
    found = wrap_all(by_memory_order(cut, [whole], dim))
    mark_halves(whole, found, dim)
    for part in found:
        part.unsure = first.unsure
    return found


@rule("renorm")
def _renorm(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Apply `renorm`: its norm covers all dimensions but one, so none of them may be the models'."""
    if type(args[0]) is not ModelTensor:
        return map_over_models(func, args, kwargs)
    own = args[0].value.clone()  # its gradient needs it, and the in-place twin writes over the other
    return wrap_all(torch.stack([torch.renorm(x, *args[1:], **kwargs) for x in own]))


_FEW_FACTORS = 4  # multiplied one by one: the gradient of torch's `prod` looks for zeros, and cannot be recorded
_OVER_ALL = {  # the function that reduces one dimension as `name()` reduces all
    "max": lambda x: x.amax(1),
    "min": lambda x: x.amin(1),
    "median": lambda x: x.median(1).values,
    "nanmedian": lambda x: x.nanmedian(1).values,
}


@rule(
    "sum nansum mean nanmean prod amax amin all any std var logsumexp count_nonzero argmax argmin max min median "
    "nanmedian std_mean var_mean aminmax"
)
def reduction(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if type(args[0]) is not ModelTensor or any(type(a) is ModelTensor for a in (*args[1:], *kwargs.values())):
        return elementwise(func, args, kwargs)  # max(a, b)
    rank, name = args[0].dim(), func.__name__
    kwargs = dict(kwargs)
    key = "axis" if "axis" in kwargs else "dim"
    dim = args[1] if len(args) > 1 else kwargs.pop(key, None)
    if name == "max" and type(dim) is int and "out" not in kwargs and (found := maximum(args[0], dim)):
        if not (args[2] if len(args) > 2 else kwargs.get("keepdim", False)):
            found = found[0].squeeze(-1), found[1].squeeze(-1)
        return wrap_all(torch.return_types.max(found))
    x = args[0].value
    if isinstance(dim, bool) and name in ("std", "var", "std_mean", "var_mean"):  # std(unbiased)
        kwargs["unbiased"], dim = dim, None
    if isinstance(dim, torch.Tensor):
        return elementwise(func, (args[0], dim), kwargs)
    rest = args[2:]
    if name == "max" and isinstance(dim, int) and "out" not in kwargs:
        return wrap_all(ours.max(x, dim, rest[0] if rest else kwargs.get("keepdim", False)))
    if name == "prod" and isinstance(dim, int) and rank and kwargs.keys() <= {"keepdim"}:
        factors = x.unbind(moved(dim, rank)) if x.is_floating_point() else ()
        if 1 < len(factors) <= _FEW_FACTORS:
            product = functools.reduce(torch.mul, factors)
            return ModelTensor(product.unsqueeze(moved(dim, rank)) if any((*rest, *kwargs.values())) else product)
    if dim is not None and not (isinstance(dim, Sequence) and not dim):
        if name == "mean" and kwargs.keys() <= {"keepdim"}:
            return wrap_all(mean(x, moved(dim, rank), *rest, **kwargs))
        return wrap_all(func(x, moved(dim, rank), *rest, **kwargs))
    if kwargs.pop("keepdim", False):
        return wrap_all(func(x, tuple(range(1, rank + 1)), *rest, keepdim=True, **kwargs))
    flat = x.reshape(x.size(0), -1)
    if name in _OVER_ALL:
        return wrap_all(_OVER_ALL[name](flat))
    if name == "aminmax":
        return wrap_all(func(flat, dim=1))
    return wrap_all(func(flat, 1, *rest, **kwargs))


@rule("_is_all_true _is_any_true")
def _is_true(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    flat = args[0].value.reshape(args[0].B, -1)
    return ModelTensor(flat.all(1) if "all" in func.__name__ else flat.any(1))


@rule("norm linalg_vector_norm linalg_norm")
def norm(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Take a norm over dimensions of each model; norms of matrices by `linalg_norm` are mapped."""
    values = dict(zip(("x", "ord", "dim", "keepdim"), args, strict=False)) | kwargs
    x, order, dim = values.pop("x", None), values.pop("ord", values.pop("p", None)), values.pop("dim", None)
    of_vectors = func.__name__ != "linalg_norm" or order is None or isinstance(dim, int) or x.dim() == 1
    if type(x) is not ModelTensor or not of_vectors or values.get("out") is not None:
        return map_over_models(func, args, kwargs)
    dims = tuple(range(1, x.dim() + 1)) if dim is None else moved(dim, x.dim())
    order = 2 if order is None or order == "fro" else order
    return wrap_all(torch.linalg.vector_norm(x.value, order, dims, **{k: v for k, v in values.items() if k != "out"}))


@rule("squeeze")
def squeeze(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, rank = args[0], args[0].dim()
    dim = args[1] if len(args) > 1 else kwargs.get("dim")
    if dim is None:
        dim = tuple(i for i, n in enumerate(x.shape) if n == 1)
    return wrap_all(x.value.squeeze(moved(dim, rank)))


@rule("unsqueeze")
def unsqueeze(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return wrap_all(args[0].value.unsqueeze(moved((*args[1:], *kwargs.values())[0], args[0].dim() + 1)))


@rule("t")
def _transposed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x = args[0].value
    return wrap_all(x.transpose(1, 2) if x.dim() == 3 else x)


@rule("permute")
def permute(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    dims = sizes_of(args[1:], kwargs, "dims")
    return wrap_all(args[0].value.permute(0, *moved(dims, args[0].dim())))


def _weight_norm(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Give rows of `v` the lengths `g`: rows along `dim`, or all of `v` where that is -1."""
    v, g, dim = (*args, *kwargs.values(), 0)[:3]
    others = [other for other in range(v.dim()) if other != dim]
    return v * (g / torch.linalg.vector_norm(v, dim=others, keepdim=True))


FINDERS.append(lambda func: _weight_norm if func is weight_norm else None)


@rule("flip")
def flip(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return wrap_all(args[0].value.flip(moved(sizes_of(args[1:], kwargs, "dims"), args[0].dim())))


@rule("roll")
def roll(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    values = dict(zip(("input", "shifts", "dims"), args, strict=False)) | kwargs
    x, shifts, dims = values["input"], values["shifts"], values.get("dims")
    if dims is None or (isinstance(dims, Sequence) and not dims):  # over all elements in their order
        return wrap_all(x.value.flatten(1).roll(shifts, 1).view(x.value.shape))
    return wrap_all(x.value.roll(shifts, moved(dims, x.dim())))


_NOTHING = torch.Size((0,))


@rule("cat concat concatenate stack")
def cat(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensors = given = args[0] if args else kwargs["tensors"]
    dim = args[1] if len(args) > 1 else kwargs.get("dim", kwargs.get("axis", 0))
    stacking = func.__name__ == "stack"
    if not stacking:
        tensors = [t for t in tensors if t.shape != _NOTHING]  # as torch does, for the sake of old code
    if all(type(t) is ModelTensor for t in tensors):
        values = [t.value for t in tensors]
    else:
        B = next(t.B for t in given if type(t) is ModelTensor)
        values = [expanded(t, B) for t in tensors]
    rank = max(v.dim() - 1 for v in values)
    dim = moved(dim, rank + stacking)
    if stacking:
        return wrap_all(torch.stack(values, dim))
    result = wrap_all(by_memory_order(torch.cat, values, dim))
    result.of_layer = True  # in a memory order that torch's may not have
    return result


@rule("gather scatter scatter_add scatter_reduce take_along_dim", writes=True)
def indexed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    name = func.__name__.rstrip("_")
    own = any(type(a) is ModelTensor for a in (*args[2:], *kwargs.values()))
    if type(args[0]) is not ModelTensor or (name == "take_along_dim" and own):
        return _by_models(func, args, kwargs)
    B, rank = args[0].B, args[0].dim()
    values = list(args)
    if len(values) > 1:
        values[1] = moved(values[1], rank)
    kwargs = {k: moved(v, rank) if k == "dim" else v for k, v in kwargs.items()}
    if name != "take_along_dim":  # index and source have the tensor's dimensions
        values = [expanded(v, B) for v in values]
        kwargs = {k: expanded(v, B) for k, v in kwargs.items()}
    return _written_or_made(func, args[0], values, kwargs)


@rule("index_select index_add index_copy index_fill", writes=True)
def by_one_index(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Pick places along a dimension, or add and write to them, by an index that is the same in all models."""
    values = dict(zip(("input", "dim", "index", "source"), args, strict=False)) | kwargs
    x, index, source = values["input"], index_of_all(values.get("index")), values.get("source")
    number = func.__name__.startswith("index_fill") and isinstance(values.get("value", source), torch.Tensor)
    if type(x) is not ModelTensor or index is None or number:
        return _by_models(func, args, kwargs)
    dim, rest = moved(values["dim"], x.dim()), {k: v for k, v in kwargs.items() if k == "alpha"}
    operands = [values[name] for name in ("source", "value") if name in values]
    if isinstance(source, torch.Tensor):
        operands = [expanded(source, x.B)]
    return _written_or_made(func, x, [x, dim, index, *operands], rest)


def _written_or_made(func: Any, x: ModelTensor, values: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call a function of `x`, which it may write into."""
    if in_place(func):
        before_writing(func, x)
        _call(func, values, kwargs)
        return x
    return wrap_all(_call(func, values, kwargs))


def _by_models(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if in_place(func):
        check_own(func, args[0])
    result = map_over_models(func, args, kwargs)
    return args[0] if in_place(func) else result
