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


def _mm(a: Shape, b: Shape) -> Work:
    """[..., M, K] times [..., K, N]: 2 M N K for each matrix."""
    return Work(2 * prod(a) * b[-1], ((*a[:-1], b[-1]),))


def _first(position: int) -> Callable[[Shapes, Values], Work]:
    return lambda shapes, values: _mm(shapes[position], shapes[position + 1])


def _pixel_products(shapes: Shapes, values: Values) -> Work:
    """x [B, N, I, P] times weight [B, O, I]."""
    x, outputs = shapes[0], shapes[1][1]
    return Work(2 * prod(x) * outputs, ((*x[:2], outputs, x[3]),))


def _sum_of_products(shapes: Shapes, values: Values) -> Work:
    """[B, S, M, K] times [B, S, K, N], summed over S."""
    a, b = shapes[:2]
    return Work(2 * prod(a) * b[-1], ((a[0], a[2], b[3]),))


def _vector(position: int) -> Callable[[Shapes, Values], Work]:
    return lambda shapes, values: Work(2 * prod(shapes[position]), (tuple(shapes[position][:-1]),))


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
        out = (x[0], weight[1] * groups, *size)
        return Work(2 * prod(x) * prod(weight[1:]), (out,))
    size = [(x[2 + i] + 2 * padding[i] - kernel[i]) // stride[i] + 1 for i in range(dims)]
    out = (x[0], weight[0], *size)
    return Work(2 * prod(out) * prod(weight[1:]), (out,))


def _convolution_backward(shapes: Shapes, values: Values) -> Work:
    """Two gradients, each of as many products as the forward pass."""
    grad, x, weight = shapes[0], shapes[1], shapes[2]
    transposed, mask = values[7], values[10]
    one = 2 * prod(x if transposed else grad) * prod(weight[1:])
    outputs = ((x, mask[0]), (weight, mask[1]), ((grad[1],), mask[2]))
    return Work(one * (bool(mask[0]) + bool(mask[1])), tuple(tuple(s) for s, wanted in outputs if wanted))


def _of_each(shapes: Shapes) -> Shapes:
    """Shapes of one model's part."""
    return [shape[1:] for shape in shapes]


def _convolve_models(shapes: Shapes, values: Values) -> Work:
    """x [B, N, C, ...], weight [B, O, C/groups, ...]."""
    models = shapes[0][0]
    done = _convolution(_of_each(shapes), values)
    return Work(models * done.flops, ((models, *done.outputs[0]),))


def _convolve_models_backward(shapes: Shapes, values: Values) -> Work:
    models, needs = shapes[0][0], values[9:12]
    arguments = [*values[:3], None, *values[3:9], needs]
    done = _convolution_backward(_of_each(shapes), arguments)
    return Work(models * done.flops, tuple((models, *shape) for shape in done.outputs))


def _sdpa(shapes: Shapes, values: Values) -> Work:
    """Query [N, H, L, D], key [N, h, S, D], value [N, h, S, V]: two products; a causal mask is not discounted."""
    (n, h, length, d), (s, v) = shapes[0], shapes[2][-2:]
    return Work(2 * n * h * length * s * (d + v), ((n, h, length, v),))


def _sdpa_backward(shapes: Shapes, values: Values) -> Work:
    """Five products: the scores again, and the gradients of value, weights, query and key."""
    (n, h, length, d), (s, v) = shapes[1], shapes[3][-2:]
    outputs = tuple(tuple(shape) for shape in shapes[1:4])
    return Work(2 * n * h * length * s * (3 * d + 2 * v), outputs)


def _mkldnn_rnn(shapes: Shapes, values: Values) -> Work:
    """Input [T, N, I], weights [G H, I] and [G H, H]."""
    x, weight_ih, weight_hh = shapes[0], shapes[1], shapes[2]
    gates = weight_ih[0]
    return Work(2 * x[0] * x[1] * gates * (x[2] + weight_hh[1]), ((x[0], x[1], weight_hh[1]),))


def _mkldnn_rnn_backward(shapes: Shapes, values: Values) -> Work:
    """Two gradients for each product of the forward pass: of what went in and of the weight."""
    x, weight_ih, weight_hh = shapes[0], shapes[1], shapes[2]
    bias, state = shapes[3], shapes[5]
    done = 2 * _mkldnn_rnn(shapes, values).flops
    outputs = (x, weight_ih, weight_hh, bias, bias, state, state)
    return Work(done, tuple(tuple(shape) for shape in outputs))


def _linear(shapes: Shapes, values: Values) -> Work:
    """x [B, R, I], weight [B, O, I]."""
    x, weight = shapes[0], shapes[1]
    return Work(2 * prod(x) * weight[1], ((x[0], x[1], weight[1]),))


def _linear_backward(shapes: Shapes, values: Values) -> Work:
    grad, x, weight = shapes[0], shapes[1], shapes[2]
    needs = values[4:7]
    outputs = zip((x, weight, weight[:2]), needs, strict=True)
    one = 2 * prod(grad) * x[-1]
    return Work(one * (bool(needs[0]) + bool(needs[1])), tuple(tuple(s) for s, wanted in outputs if wanted))


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


def _attention(shapes: Shapes, values: Values) -> Work:
    """qkv [B, N, L, 3 E]: two products of L x L scores."""
    qkv = shapes[0]
    width = qkv[-1] // 3
    return Work(4 * prod(qkv[:-1]) * qkv[-2] * width, ((*qkv[:-1], width),))


def _attention_backward(shapes: Shapes, values: Values) -> Work:
    """Five products: the scores again, and four gradients."""
    qkv = shapes[1]
    return Work(10 * prod(qkv[:-1]) * qkv[-2] * (qkv[-1] // 3), (tuple(qkv),))


def _recurrence(shapes: Shapes, values: Values) -> Work:
    """gates [B, T, N, G H], weight_hh [B, G H, P]: the state's products; the inputs' are made before."""
    gates, weight = shapes[0], shapes[1]
    return Work(2 * prod(gates) * weight[2], ((*gates[:-1], weight[2]),))


def _recurrence_backward(shapes: Shapes, values: Values) -> Work:
    """Return the gradient of the state; that of the weight is a product of its own."""
    weight, y = shapes[3], shapes[7]
    return Work(2 * prod(y[:3]) * weight[1] * weight[2], ((*y[:3], weight[1]),))


def _depthwise(shapes: Shapes, values: Values) -> Work:
    """x [B, N, H, W, C], weight [B, h, w, C]."""
    x, weight = shapes[0], shapes[1]
    stride, padding, dilation = (values[i : i + 2] for i in (3, 5, 7))
    size = [(x[2 + i] + 2 * padding[i] - dilation[i] * (weight[1 + i] - 1) - 1) // stride[i] + 1 for i in range(2)]
    out = (x[0], x[1], *size, x[4])
    return Work(2 * prod(out) * weight[1] * weight[2], (out,))


def _depthwise_backward_input(shapes: Shapes, values: Values) -> Work:
    grad, weight = shapes[0], shapes[1]
    out = (grad[0], grad[1], values[2], values[3], grad[4])
    return Work(2 * prod(grad) * weight[1] * weight[2], (out,))


def _depthwise_backward_weight(shapes: Shapes, values: Values) -> Work:
    grad, x, (kernel_h, kernel_w) = shapes[0], shapes[1], values[2:4]
    return Work(2 * prod(grad) * kernel_h * kernel_w, ((x[0], kernel_h * kernel_w + 1, x[4]),))


def _pool(dilated: bool) -> Callable[[Shapes, Values], Work]:
    """x [B, N, H, W, C], then the window's size, stride, padding (and dilation), height before width; no FLOPs."""

    def pool(shapes: Shapes, values: Values) -> Work:
        x = shapes[0]
        ceil = values[9 if dilated else 7]
        size = []
        for i in (0, 1):
            kernel, stride, padding = (values[at + i] for at in (1, 3, 5))
            reach = (values[7 + i] if dilated else 1) * (kernel - 1) + 1
            left = x[2 + i] + 2 * padding - reach
            size.append((-(-left // stride) if ceil else left // stride) + 1)
        return Work(0, ((x[0], x[1], *size, x[4]),))

    return pool


def _pool_backward(height: int) -> Callable[[Shapes, Values], Work]:
    """Gradient [B, N, h, w, C] to that of x, whose height and width are the values at `height` and behind it."""

    def pool_backward(shapes: Shapes, values: Values) -> Work:
        grad = shapes[0]
        return Work(0, ((grad[0], grad[1], values[height], values[height + 1], grad[4]),))

    return pool_backward


_FORMULAS: dict[str, Callable[[Shapes, Values], Work]] = {
    "aten::mm": _first(0),
    "aten::bmm": _first(0),
    "aten::addmm": _first(1),
    "aten::baddbmm": _first(1),
    "aten::mv": _vector(0),
    "aten::addmv": _vector(1),
    "aten::dot": _vector(0),
    "aten::convolution": _convolution,
    "aten::convolution_backward": _convolution_backward,
    "aten::_scaled_dot_product_flash_attention_for_cpu": _sdpa,
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": _sdpa_backward,
    "aten::mkldnn_rnn_layer": _mkldnn_rnn,
    "aten::mkldnn_rnn_layer_backward": _mkldnn_rnn_backward,
    "dnnsuite::convolve_models": _convolve_models,
    "dnnsuite::convolve_models_backward": _convolve_models_backward,
    # A convolution of windows is never transposed: its values have neither that nor an extra padding.
    "dnnsuite::window_convolution": lambda s, v: _convolve_models(s, [*v[:6], False, [0, 0], v[6]]),
    "dnnsuite::window_convolution_backward": lambda s, v: _convolve_models_backward(s, [*v[:6], False, [0, 0], *v[6:]]),
    "dnnsuite::linear": _linear,
    "dnnsuite::linear_backward": _linear_backward,
    "dnnsuite::low_rank": _low_rank,
    "dnnsuite::low_rank_backward": _low_rank_backward,
    "dnnsuite::matmul": _first(0),
    "dnnsuite::pixel_products": _pixel_products,
    "dnnsuite::sum_of_products": _sum_of_products,
    "dnnsuite::attention": _attention,
    "dnnsuite::attention_backward": _attention_backward,
    "dnnsuite::recurrence": _recurrence,
    "dnnsuite::recurrence_backward": _recurrence_backward,
    "dnnsuite::depthwise": _depthwise,
    "dnnsuite::depthwise_backward_input": _depthwise_backward_input,
    "dnnsuite::depthwise_backward_weight": _depthwise_backward_weight,
    "dnnsuite::max_pool": _pool(dilated=True),
    "dnnsuite::max_pool_backward": _pool_backward(2),
    "dnnsuite::avg_pool": _pool(dilated=False),
    "dnnsuite::avg_pool_backward": _pool_backward(1),
    "dnnsuite::cross_entropy": lambda shapes, values: Work(0, (tuple(shapes[1]),)),
    "dnnsuite::cross_entropy_backward": lambda shapes, values: Work(0, (tuple(shapes[1]),)),
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
