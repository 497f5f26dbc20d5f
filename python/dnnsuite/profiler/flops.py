# SPDX-License-Identifier: MIT
"""Floating-point operations and bytes of an operator, from the shapes of its arguments.

The numbers are analytic, not counted by a PMU. Matrix products, convolutions, attention and recurrences count 2 per
multiply-add, as in `torch.utils.flop_counter`; everything else (element-wise work, norms, softmax, optimizers) counts 0
FLOPs and its bytes. Two differences from torch's formulas: operators of this package have formulas, and the weight
gradient of a grouped convolution counts its own group only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

Shape = Sequence[int]
Shapes = Sequence[Shape]
Values = Sequence[Any]


class Work(NamedTuple):
    """Work of an operator: FLOPs, and the shapes of its outputs."""

    flops: int
    outputs: tuple[tuple[int, ...], ...]


Formula = Callable[[Shapes, Values], Work]


def _product(first: int) -> Formula:
    """[..., M, K] times [..., K, N], the arguments from `first` on: 2 M N K for each matrix."""
    return lambda s, v: Work(2 * prod(s[first]) * s[first + 1][-1], ((*s[first][:-1], s[first + 1][-1]),))


def _vector(first: int) -> Formula:
    return lambda s, v: Work(2 * prod(s[first]), (tuple(s[first][:-1]),))


def _pair(value: Any, dims: int) -> list[int]:
    given = list(value) if isinstance(value, (list, tuple)) else [value]
    return given * dims if len(given) == 1 else given


def _convolution(shapes: Shapes, values: Values) -> Work:
    """x [N, C, ...], weight [O, C/groups, ...] (transposed: [C, O/groups, ...])."""
    x, weight = shapes[0], shapes[1]
    dims = len(weight) - 2
    stride, padding, dilation = (_pair(values[i], dims) for i in (3, 4, 5))
    transposed, extra, groups = values[6], _pair(values[7], dims), values[8]
    kernel = [d * (k - 1) + 1 for d, k in zip(dilation, weight[2:], strict=True)]
    if transposed:
        size = [(x[2 + i] - 1) * stride[i] - 2 * padding[i] + kernel[i] + extra[i] for i in range(dims)]
        return Work(2 * prod(x) * prod(weight[1:]), ((x[0], weight[1] * groups, *size),))
    size = [(x[2 + i] + 2 * padding[i] - kernel[i]) // stride[i] + 1 for i in range(dims)]
    out = (x[0], weight[0], *size)
    return Work(2 * prod(out) * prod(weight[1:]), (out,))


def _gradients(one: int, shapes: Shapes, wanted: Sequence[bool]) -> Work:
    """Gradients of input, weight and bias that are wanted; `one` product each for the first two."""
    outputs = tuple(tuple(shape) for shape, is_wanted in zip(shapes, wanted, strict=True) if is_wanted)
    return Work(one * (bool(wanted[0]) + bool(wanted[1])), outputs)


def _convolution_backward(shapes: Shapes, values: Values) -> Work:
    """Two gradients, each of as many products as the forward pass."""
    grad, x, weight = shapes[0], shapes[1], shapes[2]
    one = 2 * prod(x if values[7] else grad) * prod(weight[1:])
    return _gradients(one, (x, weight, (grad[1],)), values[10])


def _of_models(formula: Formula, shapes: Shapes, values: Values) -> Work:
    """A formula of one model for [B, ...]."""
    done = formula([shape[1:] for shape in shapes], values)
    return Work(shapes[0][0] * done.flops, tuple((shapes[0][0], *shape) for shape in done.outputs))


def _convolve_models(shapes: Shapes, values: Values) -> Work:
    return _of_models(_convolution, shapes, values)


def _convolve_models_backward(shapes: Shapes, values: Values) -> Work:
    return _of_models(_convolution_backward, shapes, [*values[:3], None, *values[3:9], values[9:12]])


def _low_rank(shapes: Shapes, values: Values) -> Work:
    """y [..., O], x [..., I], down [B, R, I]: each model at its own rank."""
    y, x, ranks = shapes[0], shapes[1], values[5]
    rows = values[6] or [prod(x[1:-1])] * len(ranks)
    done = sum(2 * count * rank * (x[-1] + y[-1]) for count, rank in zip(rows, ranks, strict=True))
    return Work(done, (tuple(y), (prod(x[:-1]), shapes[2][1])))


def _low_rank_backward(shapes: Shapes, values: Values) -> Work:
    grad, x, down, up = shapes[:4]
    done = _low_rank((grad, x, down), [*values[:5], *values[6:8]]).flops
    inputs = done * x[-1] // (x[-1] + grad[-1])
    outputs = (tuple(down), tuple(up))
    return Work(2 * done - (0 if values[10] else inputs), (tuple(x), *outputs) if values[10] else outputs)


def _depthwise(shapes: Shapes, values: Values) -> Work:
    """x [B, N, H, W, C], weight [B, h, w, C]."""
    x, weight = shapes[0], shapes[1]
    stride, padding, dilation = (values[i : i + 2] for i in (3, 5, 7))
    size = [(x[2 + i] + 2 * padding[i] - dilation[i] * (weight[1 + i] - 1) - 1) // stride[i] + 1 for i in range(2)]
    out = (x[0], x[1], *size, x[4])
    return Work(2 * prod(out) * weight[1] * weight[2], (out,))


def _pool(dilated: bool) -> Formula:
    """x [B, N, H, W, C], then the window's size, stride, padding (and dilation), height before width; no FLOPs."""

    def pool(shapes: Shapes, values: Values) -> Work:
        x = shapes[0]
        size = []
        for i in (0, 1):
            kernel, stride, padding = (values[at + i] for at in (1, 3, 5))
            reach = (values[7 + i] if dilated else 1) * (kernel - 1) + 1
            left = x[2 + i] + 2 * padding - reach
            size.append((-(-left // stride) if values[9 if dilated else 7] else left // stride) + 1)
        return Work(0, ((x[0], x[1], *size, x[4]),))

    return pool


_FORMULAS: dict[str, Formula] = {
    "aten::mm": _product(0),
    "aten::bmm": _product(0),
    "aten::addmm": _product(1),
    "aten::baddbmm": _product(1),
    "aten::mv": _vector(0),
    "aten::addmv": _vector(1),
    "aten::dot": _vector(0),
    "aten::convolution": _convolution,
    "aten::convolution_backward": _convolution_backward,
    # Query [N, H, L, D], key [N, h, S, D], value [N, h, S, V]: two products; a causal mask is not discounted.
    "aten::_scaled_dot_product_flash_attention_for_cpu": lambda s, v: Work(
        2 * prod(s[0][:3]) * s[2][-2] * (s[0][3] + s[2][-1]), ((*s[0][:3], s[2][-1]),)
    ),
    # Five products: the scores again, and the gradients of value, weights, query and key.
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": lambda s, v: Work(
        2 * prod(s[1][:3]) * s[3][-2] * (3 * s[1][3] + 2 * s[3][-1]), tuple(map(tuple, s[1:4]))
    ),
    # Input [T, N, I], weights [G H, I] and [G H, H].
    "aten::mkldnn_rnn_layer": lambda s, v: Work(
        2 * s[0][0] * s[0][1] * s[1][0] * (s[0][2] + s[2][1]), ((s[0][0], s[0][1], s[2][1]),)
    ),
    # Two gradients for each product of the forward pass: of what went in and of the weight.
    "aten::mkldnn_rnn_layer_backward": lambda s, v: Work(
        4 * s[0][0] * s[0][1] * s[1][0] * (s[0][2] + s[2][1]), tuple(tuple(s[i]) for i in (0, 1, 2, 3, 3, 5, 5))
    ),
    "dnnsuite::convolve_models": _convolve_models,
    "dnnsuite::convolve_models_backward": _convolve_models_backward,
    # A convolution of windows is never transposed: its values have neither that nor an extra padding.
    "dnnsuite::window_convolution": lambda s, v: _convolve_models(s, [*v[:6], False, [0, 0], v[6]]),
    "dnnsuite::window_convolution_backward": lambda s, v: _convolve_models_backward(s, [*v[:6], False, [0, 0], *v[6:]]),
    # x [B, R, I], weight [B, O, I].
    "dnnsuite::linear": lambda s, v: Work(2 * prod(s[0]) * s[1][1], ((s[0][0], s[0][1], s[1][1]),)),
    "dnnsuite::linear_backward": lambda s, v: _gradients(2 * prod(s[0]) * s[1][-1], (s[1], s[2], s[2][:2]), v[4:7]),
    "dnnsuite::low_rank": _low_rank,
    "dnnsuite::low_rank_backward": _low_rank_backward,
    "dnnsuite::matmul": _product(0),
    # x [B, N, I, P] times weight [B, O, I].
    "dnnsuite::pixel_products": lambda s, v: Work(2 * prod(s[0]) * s[1][1], ((*s[0][:2], s[1][1], s[0][3]),)),
    # [B, S, M, K] times [B, S, K, N], summed over S.
    "dnnsuite::sum_of_products": lambda s, v: Work(2 * prod(s[0]) * s[1][-1], ((s[0][0], s[0][2], s[1][3]),)),
    # qkv [B, N, L, 3 E]: two products of L x L scores; backward the scores again, and four gradients.
    "dnnsuite::attention": lambda s, v: Work(
        4 * prod(s[0][:-1]) * s[0][-2] * (s[0][-1] // 3), ((*s[0][:-1], s[0][-1] // 3),)
    ),
    "dnnsuite::attention_backward": lambda s, v: Work(
        10 * prod(s[1][:-1]) * s[1][-2] * (s[1][-1] // 3), (tuple(s[1]),)
    ),
    # gates [B, T, N, G H], weight_hh [B, G H, P]: the state's products; the inputs' are made before.
    "dnnsuite::recurrence": lambda s, v: Work(2 * prod(s[0]) * s[1][2], ((*s[0][:-1], s[1][2]),)),
    # The gradient of the state; that of the weight is a product of its own.
    "dnnsuite::recurrence_backward": lambda s, v: Work(2 * prod(s[7][:3]) * s[3][1] * s[3][2], ((*s[7][:3], s[3][1]),)),
    "dnnsuite::depthwise": _depthwise,
    "dnnsuite::depthwise_backward_input": lambda s, v: Work(
        2 * prod(s[0]) * s[1][1] * s[1][2], ((s[0][0], s[0][1], v[2], v[3], s[0][4]),)
    ),
    "dnnsuite::depthwise_backward_weight": lambda s, v: Work(
        2 * prod(s[0]) * v[2] * v[3], ((s[1][0], v[2] * v[3] + 1, s[1][4]),)
    ),
    # Of pools, the gradient [B, N, h, w, C] becomes that of x, whose height and width are among the values.
    "dnnsuite::max_pool": _pool(dilated=True),
    "dnnsuite::max_pool_backward": lambda s, v: Work(0, ((s[0][0], s[0][1], v[2], v[3], s[0][4]),)),
    "dnnsuite::avg_pool": _pool(dilated=False),
    "dnnsuite::avg_pool_backward": lambda s, v: Work(0, ((s[0][0], s[0][1], v[1], v[2], s[0][4]),)),
    "dnnsuite::cross_entropy": lambda s, v: Work(0, (tuple(s[1]),)),
    "dnnsuite::cross_entropy_backward": lambda s, v: Work(0, (tuple(s[1]),)),
}


def knows(name: str) -> bool:
    """Return True if `name`, as `aten::mm`, has a formula; in-place variants have names of their own."""
    return name in _FORMULAS


def work(name: str, shapes: Shapes, values: Values) -> Work | None:
    """Count the work of operator `name`.

    Args:
        name: name with its namespace, for example `aten::mm`.
        shapes: shape of each argument in the order of the schema; empty for one that is no tensor.
        values: values of the arguments that are no tensors, in the same places.

    Returns:
        None for an operator without a formula, and for arguments that do not fit it (a profiler that recorded none).
    """
    formula = _FORMULAS.get(name)
    if formula is None:
        return None
    try:
        return formula(shapes, values)
    except (IndexError, TypeError, ValueError):
        return None
