# SPDX-License-Identifier: MIT
"""Rules of functions that give a tensor another shape, or take a part of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...nn.functional.vision import contiguous_pixels, joined_pixels
from ...nn.model_tensor import ModelTensor, NotFusable, WritesShared, check_stray, wrap_all
from ...nn.sharing import is_shared
from .elementwise import elementwise
from .once import own_before_writing
from .table import check_writable, map_over_models, rule, settle


def sizes_of(args: Sequence[Any], kwargs: dict[str, Any], *names: str) -> tuple[Any, ...]:
    """Collect sizes that are given one by one, as one sequence, or by name."""
    for name in names:
        if name in kwargs:
            return tuple(kwargs[name])
    if len(args) == 1 and isinstance(args[0], Sequence):
        return tuple(args[0])
    return tuple(args)


@rule("view reshape")
def reshape(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x = args[0].value
    if (len(args) == 2 and isinstance(args[1], torch.dtype)) or "dtype" in kwargs:
        return wrap_all(x.view(args[1] if len(args) == 2 else kwargs["dtype"]))
    sizes = _solved(sizes_of(args[1:], kwargs, "size", "shape"), args[0].shape)
    copy = joined_pixels(x, sizes)
    return viewed(args[0], x.reshape(x.size(0), *sizes) if copy is None else copy)


@rule("contiguous")
def contiguous(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x = args[0].value
    copy = None if kwargs or x.dim() < 5 or x.is_contiguous() else contiguous_pixels(x)
    if copy is None:
        return elementwise(func, args, kwargs)
    result = wrap_all(copy)
    result.of_layer = True
    return result


def viewed(source: ModelTensor, result: torch.Tensor) -> Any:
    """Wrap a reshaped tensor. A write to a view must reach its source. A view of one model's tensor may need a copy in
    the array, where a layer chose another memory order: then the copy replaces the source."""
    x = source.value
    if result.data_ptr() == x.data_ptr() or not x.numel():
        return wrap_all(result)
    if source.of_layer:
        source.become(x.contiguous())
        return wrap_all(source.value.view(result.shape))
    copied = wrap_all(result)
    copied.unsure = True
    return copied


def _solved(sizes: tuple[Any, ...], shape: torch.Size) -> tuple[int, ...]:
    """Replace -1 in `sizes`, which torch cannot infer beside a dimension of size 0."""
    if -1 not in sizes:
        return sizes
    known = 1
    for n in sizes:
        known *= n if n != -1 else 1
    if known == 0:
        raise RuntimeError(f"cannot reshape {list(shape)} into {list(sizes)}: the -1 could be anything")
    return tuple(shape.numel() // known if n == -1 else n for n in sizes)


@rule("expand broadcast_to")
def expand(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, sizes = args[0].value, sizes_of(args[1:], kwargs, "size")
    more = len(sizes) + 1 - x.dim()
    if more:
        x = x.reshape(x.size(0), *(1,) * more, *x.shape[1:])
    return wrap_all(x.expand(x.size(0), *sizes))


@rule("view_as reshape_as expand_as")
def _shaped_as(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    function = torch.Tensor.expand if func.__name__ == "expand_as" else torch.Tensor.reshape
    return function(args[0], tuple(args[1].shape))


@rule("broadcast_tensors")
def _broadcast_tensors(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Expand each tensor to the shape that all have together; a tensor that all models share stays one."""
    shape = tuple(torch.broadcast_shapes(*(tuple(tensor.shape) for tensor in args)))
    return tuple(expand(func, (t, shape), {}) if type(t) is ModelTensor else t.expand(shape) for t in args)


@rule("repeat_interleave")
def _repeat_interleave(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Repeat each element as often as the others; counts in a tensor are for torch.vmap."""
    values = dict(zip(("input", "repeats", "dim"), args, strict=False)) | kwargs
    x, repeats, dim = values.pop("input", None), values.pop("repeats", None), values.pop("dim", None)
    if type(x) is not ModelTensor or type(repeats) is not int or values:
        return map_over_models(func, args, kwargs)
    if dim is None:
        return wrap_all(x.value.reshape(x.B, -1).repeat_interleave(repeats, 1))
    return wrap_all(x.value.repeat_interleave(repeats, range(x.dim())[dim] + 1))


@rule("repeat tile")
def repeat(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, counts = args[0].value, sizes_of(args[1:], kwargs, "repeats", "dims")
    counts = (1,) * (args[0].dim() - len(counts)) + counts
    x = x.reshape(x.size(0), *(1,) * (len(counts) - args[0].dim()), *x.shape[1:])
    return wrap_all(x.repeat(1, *counts))


@rule("tril triu one_hot matrix_exp")
def trailing(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Apply a function of the last dimensions, with any number before them."""
    if type(args[0]) is not ModelTensor:
        return map_over_models(func, args, kwargs)
    if func.__name__ == "one_hot" and len(args) < 2 and kwargs.get("num_classes", -1) == -1:
        raise NotFusable("one_hot without num_classes depends on the data")
    return wrap_all(func(args[0].value, *args[1:], **kwargs))


@rule("get")
def attribute(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Read a property of a tensor, by its descriptor's name."""
    name = func.__self__.__name__
    tensor = args[0]
    if name in ("device", "dtype", "layout", "is_cuda", "requires_grad", "is_sparse", "is_quantized", "is_meta",
                "is_nested", "itemsize", "is_cpu", "is_mps", "is_xpu", "is_mkldnn", "is_leaf", "grad_fn"):  # fmt: skip
        return getattr(tensor.value, name)
    if name in ("T", "H"):
        return wrap_all(tensor.value.permute(0, *range(tensor.dim(), 0, -1)))
    if name in (
        "mT",
        "mH",
        "real",
        "imag",
        "grad",
        "data",
    ):  # the last has a version of its own, which `detach` has not
        return wrap_all(getattr(tensor.value, name))
    if name == "names":
        return tensor.value.names[1:]
    raise NotFusable(f"the tensor's attribute {name} has no meaning for several models")


@rule(
    "len is_contiguous is_floating_point is_complex element_size nelement numel dim size stride get_device is_signed "
    "is_inference ndimension storage_offset is_shared is_pinned is_tensor is_same_size has_names"
)
def question(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Answer a question on a tensor as one model's tensor would."""
    name, x = func.__name__, args[0]
    if name == "is_contiguous":
        return (x.of_layer and not kwargs) or not x.value.size(0) or x.value[0].is_contiguous(**kwargs)
    answer = _ANSWERS.get(name)
    return func(x.value, *args[1:], **kwargs) if answer is None else answer(x, *args[1:], **kwargs)


_ANSWERS: dict[str, Any] = {
    **{name: lambda x: x.shape.numel() for name in ("numel", "nelement")},
    **{name: lambda x: x.dim() for name in ("dim", "ndimension")},
    "__len__": len,
    "size": lambda x, *dim, **named: x.size(*dim, **named),
    "stride": lambda x, *dim: x.value.stride()[1:][dim[0]] if dim else x.value.stride()[1:],
    "is_same_size": lambda x, other: x.shape == other.shape,
}


@rule("new new_zeros new_ones new_empty new_full new_tensor")
def factory(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make a tensor for each model, so that it may be written to."""
    x, name = args[0].value, func.__name__
    if name == "new_tensor" or (name == "new" and not all(isinstance(n, int) for n in sizes_of(args[1:], {}))):
        return func(x, *args[1:], **kwargs)
    if name == "new_full":
        size, rest = tuple(args[1]), args[2:]
    else:
        size, rest = sizes_of(args[1:], kwargs, "size"), ()
        kwargs = {k: v for k, v in kwargs.items() if k != "size"}
    if name == "new":  # takes a tuple for the data
        return wrap_all(x.new_empty((x.size(0), *size)))
    return wrap_all(func(x, (x.size(0), *size), *rest, **kwargs))


SIMPLE_INDICES = frozenset((int, slice, type(None), type(...)))


def _physical_index(index: Any, rank: int) -> tuple[Any, ...] | None:
    """Convert one model's index to the array's; None where tensors or masks in it need a look-up per model."""
    items = index if isinstance(index, tuple) else (index,)
    if SIMPLE_INDICES.issuperset(map(type, items)):
        return (slice(None), *items)
    tensors = [i for i in items if isinstance(i, (torch.Tensor, list))]
    if any(type(i) is ModelTensor for i in tensors):
        return None
    places = [n for n, i in enumerate(items) if isinstance(i, (torch.Tensor, list))]
    numbers = [n for n, i in enumerate(items) if isinstance(i, int) and not isinstance(i, bool)]
    if tensors and (numbers or places != list(range(places[0], places[0] + len(places)))):
        return None  # such an index moves its result to the front, before the models
    if any(isinstance(i, bool) for i in items):
        return None
    return (slice(None), *items)


@rule("getitem")
def getitem(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensor, index = args
    if type(tensor) is ModelTensor:
        found = _physical_index(index, tensor.dim())
        if found is not None:
            result = wrap_all(tensor.value[found])
            result.unsure = tensor.unsure
            return result
        if type(index) is ModelTensor and index.dtype == torch.bool:
            raise NotFusable("a mask picks another number of elements in each model")
        places = places_in(tensor.value, index)
        if places is not None:
            return wrap_all(tensor.value[places])
    elif type(index) is ModelTensor and is_index(index):
        check_stray(tensor)
        return wrap_all(tensor[index.value])
    return map_over_models(func, args, kwargs)


@rule("setitem", writes=True)
def setitem(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensor, index, value = args
    if type(tensor) is not ModelTensor:
        raise WritesShared("a value of each model is written into a part of a tensor that all models share")
    settle()
    check_writable(tensor)
    if tensor.fresh is None and is_shared(tensor.value):
        own_before_writing(tensor)
    found = _physical_index(index, tensor.dim())
    if found is None:
        if type(index) is ModelTensor and index.dtype == torch.bool and type(value) is not ModelTensor:
            mask = index.value
            mask = mask.reshape(*mask.shape, *(1,) * (tensor.dim() - index.dim()))
            if not isinstance(value, torch.Tensor) or value.dim() == 0:
                tensor.value.masked_fill_(mask, value)
                return None
        found = places_in(tensor.value, index)
    if found is None:
        return _write(tensor, index, value)
    target = tensor.value[found]
    if type(value) is ModelTensor:
        own = value.value
        rank = target.dim() - 1
        while own.dim() - 1 > rank and own.size(1) == 1:
            own = own.squeeze(1)
        if own.dim() - 1 < rank:  # else it stays the very view that `x[i] += 1` writes back
            own = own.reshape(own.size(0), *(1,) * (rank - own.dim() + 1), *own.shape[1:])
        tensor.value[found] = own
    else:
        tensor.value[found] = value
    return None


def _write(tensor: ModelTensor, index: Any, value: Any) -> None:
    def write(x: torch.Tensor, i: Any, v: Any) -> torch.Tensor:
        x = x.clone()
        x[i] = v
        return x

    tensor.value.copy_(map_over_models(write, (tensor, index, value), {}).value)


_MASKS = (torch.bool, torch.uint8)


def is_index(value: Any) -> bool:
    """Return True for a tensor of whole numbers, which picks places; booleans pick another number in each model."""
    return isinstance(value, Tensor) and value.dtype not in _MASKS and not value.dtype.is_floating_point


def _of_all(index: ModelTensor) -> Tensor | None:
    """Return the index `[...]` that is that of all models; None if each has its own."""
    value = index.value
    return value[0] if value.size(0) == 1 or is_shared(value) else None


def places_in(x: Tensor, index: Any) -> tuple[Any, ...] | None:
    """Convert one model's `index` to that of `x` `[B, ...]`; None if it has no whole numbers, or not side by side.

    Numbers of each model's own must be first in the index: others move the result's dimensions.
    """
    items = list(index) if isinstance(index, tuple) else [index]
    places = [n for n, item in enumerate(items) if isinstance(item, Tensor)]
    if not all(is_index(items[n]) for n in places) or any(isinstance(item, (int, list)) for item in items):
        return None
    if not places or places != list(range(places[0], places[-1] + 1)):
        return None
    shared = {n: index_of_all(items[n]) for n in places}
    if all(value is not None for value in shared.values()):
        return slice(None), *(shared.get(n, item) for n, item in enumerate(items))
    if places[0] > 0:
        return None
    rank = max(items[n].dim() for n in places)
    own = {n: _aligned(items[n].value, rank) if shared[n] is None else shared[n] for n in places}
    return _models(x, rank), *(own.get(n, item) for n, item in enumerate(items))


def _aligned(index: Tensor, rank: int) -> Tensor:
    """View `[B, ...]` with `rank` dimensions after the model's."""
    return index.reshape(index.size(0), *(1,) * (rank + 1 - index.dim()), *index.shape[1:])


def _models(x: Tensor, rank: int) -> Tensor:
    return torch.arange(x.size(0), device=x.device).view(-1, *(1,) * rank)


def index_of_all(index: Any) -> Tensor | None:
    """Return an index, `[...]`, that is the same in all models; None if each has its own."""
    return _of_all(index) if type(index) is ModelTensor else index
