# SPDX-License-Identifier: MIT
"""Rules of functions that treat every element alike, and broadcast, and of matrix products."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from ... import ops
from ...nn import functional
from ...nn.model_tensor import ModelTensor, NotFusable, check_stray, expanded, physical, state, wrap_all
from ...nn.waiting import gated_half, scaled_product, waiting_gate, waiting_relu
from ...ops.memory_order import in_one_piece
from ..code.epilogue_fusion import continued
from .once import shared_result
from .table import CONTINUING, FINDERS, WRITING, before_writing, in_place, map_over_models, rule

NAMES = (
    # of one tensor
    "abs absolute acos acosh angle arccos arccosh arcsin arcsinh arctan arctanh asin asinh atan atanh bitwise_not ceil "
    "celu clone conj cos cosh deg2rad digamma elu erf erfc erfinv exp exp2 expm1 fix floor frac gelu hardshrink "
    "hardsigmoid hardswish hardtanh i0 imag isfinite isinf isnan isneginf isposinf leaky_relu lgamma log log10 log1p "
    "log2 logical_not logit logsigmoid mish nan_to_num neg negative pos positive rad2deg real reciprocal relu relu6 "
    "round rsqrt selu sgn sigmoid sign signbit silu sin sinc sinh softplus softshrink softsign sqrt square tan tanh "
    "tanhshrink threshold _threshold trunc zeros_like ones_like full_like empty_like "
    "detach type float double half bfloat16 int long short cpu cuda byte "
    "zero fill invert log_sigmoid "
    # of several
    "add radd sub rsub subtract mul rmul multiply div divide truediv rtruediv floordiv rfloordiv floor_divide mod rmod "
    "remainder fmod pow rpow float_power atan2 arctan2 maximum minimum fmax fmin hypot lerp addcmul addcdiv clamp clip "
    "clamp_min clamp_max masked_fill copysign eq ne lt le gt ge greater less greater_equal less_equal "
    "not_equal isclose logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor and rand or ror xor rxor "
    "true_divide xlogy logaddexp logaddexp2 heaviside nextafter copy dequantize "
    "rdiv lshift rshift rlshift rrshift bitwise_left_shift bitwise_right_shift ldexp gcd lcm igamma igammac "
    # torch.special
    "special_digamma special_entr special_erf special_erfc special_erfcx special_erfinv special_exp2 special_expit "
    "special_expm1 special_gammaln special_i0 special_i0e special_i1 special_i1e special_log1p special_log_ndtr "
    "special_logit special_ndtr special_ndtri special_psi special_round special_sinc special_xlog1py special_xlogy "
    "special_zeta special_gammainc special_gammaincc"
)


def _as_scalar(value: torch.Tensor, others: list[torch.Tensor]) -> torch.Tensor:
    """Give one number per model the influence on the result's dtype that torch gives a 0-d tensor beside others."""
    wide = [other.dtype for other in others if other.dim() > 0]
    for dtype in wide:
        if dtype != value.dtype:
            result = torch.result_type(torch.empty(1, dtype=dtype), torch.empty((), dtype=value.dtype))
            if result != torch.promote_types(dtype, value.dtype):
                value = value.to(result)
    return value


def aligned(values: Sequence[Any]) -> list[Any]:
    """Insert dimensions after the model's, so that the tensors broadcast as those of one model do."""
    ranks: set[int] = set()
    held = []
    for value in values:
        if type(value) is ModelTensor:
            held.append(value.value)
            ranks.add(held[-1].dim() - 1)
        else:
            held.append(value)
            if isinstance(value, torch.Tensor):
                check_stray(value)
                ranks.add(value.dim())
    if len(ranks) == 1:
        return held
    rank = max(ranks)
    result = []
    for value in values:
        if type(value) is ModelTensor and value.dim() < rank:
            own = value.value
            if value.dim() == 0:
                others = [v.value[0] if type(v) is ModelTensor else v for v in values if isinstance(v, torch.Tensor)]
                own = _as_scalar(own, others)
            result.append(own.reshape(own.size(0), *(1,) * (rank - own.dim() + 1), *own.shape[1:]))
        else:
            result.append(value.value if type(value) is ModelTensor else value)
    return result


def _pair(a: Any, b: Any) -> Sequence[Any]:
    """Align two values: what stands beside a number, or a tensor of as many dimensions, is as it must be."""
    if type(a) is ModelTensor:
        value, other = a.value, b
        if type(b) is ModelTensor:
            other = b.value
            more = value.dim() - other.dim()
            if more == 0:
                return value, other
            if more == 1 and other.dim() > 1:  # a number of each model is no matrix to torch
                return value, other.unsqueeze(1)
            if more == -1 and value.dim() > 1:
                return value.unsqueeze(1), other
        elif type(b) in (int, float):
            return value, other
    return aligned((a, b))


_SLOW_OF_SLICES = frozenset({
    "celu", "cos", "elu", "erf", "exp", "expm1", "gelu", "log", "log1p", "mish", "selu", "sigmoid", "silu",
    "sin", "softplus", "sqrt", "tanh",
})  # fmt: skip
_SIGMOIDS = frozenset((torch.sigmoid, torch.Tensor.sigmoid, torch.nn.functional.sigmoid))
_PRODUCTS = frozenset((torch.mul, torch.Tensor.mul, torch.Tensor.__mul__, torch.multiply, torch.Tensor.multiply))
_RELUS = frozenset((torch.relu, torch.Tensor.relu, torch.nn.functional.relu))


_OURS = {"tanh": functional.tanh, "selu": functional.selu}  # torch.nn.functional's are found by `layer_rule`


class _Kind(NamedTuple):
    """Facts about a torch function that each of its calls asks for."""

    product: bool
    relu: bool
    sigmoid: bool
    in_place: bool
    slow_of_slices: bool
    ours: Callable[..., torch.Tensor] | None  # computes it for `[B, ...]`


@functools.cache
def facts_of(func: Any) -> _Kind:
    """Return the facts about a function of elements, found once."""
    known = (func in _PRODUCTS, func in _RELUS, func in _SIGMOIDS)
    return _Kind(*known, in_place(func), func.__name__ in _SLOW_OF_SLICES, _OURS.get(func.__name__))


@rule(NAMES, writes=True)
def elementwise(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    kind = facts_of(func)
    if state.pending and [a for a in args if type(a) is ModelTensor and a.deferred is not None]:
        if kind.product and len(args) == 2 and not kwargs:
            result = _gated(*args)
            if result is not None:
                return result
        result = continued(func, args, kwargs)
        if result is not None:
            return result
        result = shared_result(func, args, kwargs)
        if result is not NotImplemented:
            return result
    alone = len(args) == 1 and type(args[0]) is ModelTensor
    if alone and kind.relu and not kwargs.get("inplace"):
        later = waiting_relu(args[0].value)
        if later is not None:
            return later
    if alone and kind.sigmoid and not kwargs:
        later = waiting_gate(args[0])
        if later is not None:
            return later
    if kind.in_place or kwargs.get("inplace"):
        return _in_place(func, args, kwargs)
    if "out" in kwargs:
        raise NotFusable(f"{func.__name__}(out=...) has no meaning for several models")
    if kind.slow_of_slices and args and type(args[0]) is ModelTensor:
        whole = in_one_piece(args[0].value)
        args = args if whole is args[0].value else (ModelTensor(whole), *args[1:])
    if kind.ours is not None and type(args[0]) is ModelTensor and _are_numbers((*args[1:], *kwargs.values())):
        return ModelTensor(kind.ours(args[0].value, *args[1:], **kwargs))
    if alone and not kwargs:
        return wrap_all(func(args[0].value))
    if not kwargs and len(args) == 2:
        pair = _pair(*args)
        product = scaled_product(*pair) if kind.product else None
        return wrap_all(func(*pair)) if product is None else ModelTensor(product)
    values = aligned([*args, *kwargs.values()])
    return wrap_all(func(*values[: len(args)], **dict(zip(kwargs, values[len(args) :], strict=True))))


CONTINUING.add(elementwise)


def _are_numbers(values: Sequence[Any]) -> bool:
    """Return True for settings of an activation that are the same in all models."""
    return all(type(value) in (int, float, bool, str) for value in values)


def _gated(a: Any, b: Any) -> Any:
    """Compute the product of a half and the sigmoid of the other half in one pass; None for other tensors."""
    if type(a) is not ModelTensor or type(b) is not ModelTensor:
        return None
    for half, gate in ((a, b), (b, a)):
        if half.deferred is None and gate.deferred is not None:
            result = gated_half(half, gate)
            if result is not None:
                return wrap_all(result)
    return None


def _in_place(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    target = args[0]
    before_writing(func, target)
    rank = target.dim()
    values = aligned([*args, *kwargs.values()])
    if values[0].dim() - 1 != rank:
        raise RuntimeError(f"{func.__name__}: the result does not have the shape {list(target.shape)}")
    func(*values[: len(args)], **dict(zip(kwargs, values[len(args) :], strict=True)))
    return target


@rule("where")
def _where(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Choose between two tensors; a condition alone gives the places of its true elements, another number per model."""
    if len(args) + len(kwargs) == 1:
        raise NotFusable("where of a condition alone finds another number of places in each model")
    return elementwise(func, args, kwargs)


@rule("to type_as")
def converted(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Convert a tensor to the dtype and device of another, whatever its shape; a shared tensor stays shared."""
    result = func(*map(physical, args), **{name: physical(value) for name, value in kwargs.items()})
    return wrap_all(result) if type(args[0]) is ModelTensor else result


def _set_data(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Carry out `x.data = y` as a write of y into x: no other tensor shows x's storage as one model's."""
    target, value = args
    before_writing(func, target)
    own = expanded(value, target.B)
    if own.shape != target.value.shape or own.dtype != target.dtype:
        raise NotFusable(".data is given another shape or dtype")
    target.value.data.copy_(own.detach())


FINDERS.append(lambda func: _set_data if func == torch.Tensor.data.__set__ else None)  # type: ignore[attr-defined]
WRITING.add(_set_data)


@rule("contains")
def _contains(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return bool((args[0] == args[1]).any())


@rule("bool int float index item tolist is_nonzero")
def number(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Convert to a Python number, if it is the same in all models."""
    if func in (torch.Tensor.float, torch.Tensor.int, torch.Tensor.bool):
        return elementwise(func, args, kwargs)
    value = args[0].value.detach()
    if state.report is not None:
        state.report.asked = True
        if state.B == 1 and not state.report.alone:
            state.report.alone = f"{func.__name__.strip('_')}() of a tensor, in a shard of one model"
    if value.size(0) > 1 and not bool((value == value[:1]).all()):
        raise NotFusable(f"{func.__name__.strip('_')}() of a tensor differs from model to model")
    return func(value[0])


@rule("matmul rmatmul mm bmm mv dot")
def matmul(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    a, b = args[:2]
    if func.__name__ == "__rmatmul__":
        a, b = b, a
    if type(a) is ModelTensor and type(b) is ModelTensor and a.dim() == b.dim() > 1:
        return wrap_all(ops.matmul(a.value, b.value))
    if a.dim() == 0 or b.dim() == 0:
        raise RuntimeError("both arguments to matmul need to be at least 1D, but they are 0D")
    if a.dim() > 2 >= b.dim():  # as torch, one product of all rows: many small ones have a gradient each to be summed
        return matmul(torch.matmul, (a.flatten(0, -2), b), {}).unflatten(0, a.shape[:-1])
    column, row = a.dim() == 1, b.dim() == 1
    rank = max(a.dim() + column, b.dim() + row, 2)
    left, right = _operand(a, rank, 0), _operand(b, rank, 1)
    result = product(left, right)
    if column:
        result = result.squeeze(-2)
    if row:
        result = result.squeeze(-1)
    return wrap_all(result)


def product(left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Compute `left @ right`, plus a `bias` [B, N]; dimension 0 is B, or 1 for a shared operand."""
    B = max(left.size(0), right.size(0))
    return ops.matmul(_widened(left, B), _widened(right, B), None if bias is None else _widened(bias, B))


def _widened(operand: torch.Tensor, B: int) -> torch.Tensor:
    return operand if operand.size(0) == B else operand.expand(B, *operand.shape[1:])


def _operand(tensor: Any, rank: int, vector_place: int) -> torch.Tensor:
    """Shape an operand as `[B or 1, batch..., M, K]`; a vector becomes a matrix of one row or column."""
    value = tensor.value if type(tensor) is ModelTensor else tensor.unsqueeze(0)
    if value.dim() == 2:
        value = value.unsqueeze(1) if vector_place == 0 else value.unsqueeze(2)
    return value.reshape(value.size(0), *(1,) * (rank + 1 - value.dim()), *value.shape[1:])


@rule("addmm baddbmm addbmm addmv addr")
def addmm(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    base, a, b = args[:3]
    beta, alpha = kwargs.get("beta", 1), kwargs.get("alpha", 1)
    if func.__name__ == "addmm" and base.shape == b.shape[1:] and alpha == beta == 1:
        offsets = base.value if type(base) is ModelTensor else base.unsqueeze(0)
        return wrap_all(product(_operand(a, 2, 0), _operand(b, 2, 1), offsets))
    if func.__name__ == "addr":
        result = a.unsqueeze(1) * b.unsqueeze(0)
    else:
        result = matmul(torch.matmul, (a, b), {})
        result = result.sum(0) if func.__name__ == "addbmm" else result
    result = result if alpha == 1 else result * alpha
    if beta == 0:  # torch does not read what it multiplies by zero, and gives it a gradient of zeros
        return torch.where(torch.ones_like(result, dtype=torch.bool), result, base) if base.requires_grad else result
    return result + (base if beta == 1 else base * beta)


@rule("einsum")
def einsum(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Add a letter for the models to each per-model operand and to the result."""
    equation, *tensors = args
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        tensors = list(tensors[0])
    if not isinstance(equation, str):
        return map_over_models(func, args, kwargs)
    left, arrow, right = equation.replace(" ", "").partition("->")
    letter = next(c for c in "ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvutsrqponmlkjihgfedcba" if c not in equation)
    if not arrow:
        letters = sorted(set(left) - set(",."))
        right = ("..." if "..." in left else "") + "".join(c for c in letters if left.count(c) == 1)
    terms = [
        letter + term if type(tensor) is ModelTensor else term
        for term, tensor in zip(left.split(","), tensors, strict=True)
    ]
    values = [t.value if type(t) is ModelTensor else t for t in tensors]
    return wrap_all(torch.einsum(f"{','.join(terms)}->{letter}{right}", *values))
