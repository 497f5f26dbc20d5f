# SPDX-License-Identifier: MIT
"""Work of an operator, from its shapes: operations and bytes of a call, and the least time a machine needs.

Operations: an addition, multiplication, comparison, division, root or exponential is one each, so a multiply-add is
two; drawing random numbers is none. Bytes: each tensor that a pass has to read or write, once; float32 has 4, an index
8. What an algorithm keeps for itself, or computes again, is its own affair and not counted. Functions count a forward
and a backward pass of all B models together, for gradients of everything that is learned and of the input.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dnnsuite.profiler.roofline import bound_s

if TYPE_CHECKING:
    from dnnsuite.profiler.roofline import Peaks

_FLOAT, _INDEX = 4, 8
_ACTIVATION = {"none": (0, 0), "relu": (1, 1), "hardswish": (5, 5), "gelu": (5, 9)}  # of an element: forward, backward
_DROPOUT = 2  # compare and scale
_LAYER_NORM = 8 + 13  # forward: mean 1, variance 3, normalise 2, affine 2; backward: x̂ 2, sums 3, dx 5, dw 2, db 1
_RMS_NORM = 4 + 9
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_UPDATE = {"SGD": 4, "Adam": 13, "AdamW": 15, "Adadelta": 16, "Adagrad": 7, "RMSprop": 9, "NAdam": 16, "Lion": 9}
_STATES = {"SGD": 1, "Adam": 2, "AdamW": 2, "Adadelta": 2, "Adagrad": 1, "RMSprop": 1, "NAdam": 2, "Lion": 1}


class Work(NamedTuple):
    """Operations and bytes of one call."""

    flops: float
    bytes: float

    def plus(self, flops: float = 0.0, bytes: float = 0.0) -> Work:
        return Work(self.flops + flops, self.bytes + bytes)


class Roof(NamedTuple):
    """The least seconds in which this machine can do some work, and what sets them: `compute`, or a level of memory."""

    seconds: float
    bound: str


def roof(work: Work, peaks: Peaks, precision: str = "fp32") -> Roof:
    """min(peak, bandwidth x intensity), as a time. The bandwidth is that of the smallest level that holds the bytes of
    a call: benchmarks repeat the call, so its operands are there at best."""
    flops_per_s, level = peaks.flops_per_s[precision], peaks.level_of(work.bytes)
    bytes_per_s = peaks.bytes_per_s[level]
    by_compute = work.flops / flops_per_s >= work.bytes / bytes_per_s
    return Roof(bound_s(*work, flops_per_s, bytes_per_s), "compute" if by_compute else level)


def linear_forward(B: int, rows: int, inputs: int, outputs: int, activation: str = "none") -> Work:
    x, w, y = B * rows * inputs, B * inputs * outputs, B * rows * outputs
    flops = 2 * x * outputs + y + _ACTIVATION[activation][0] * y
    return Work(flops, _FLOAT * (x + w + B * outputs + y))


def linear(B: int, rows: int, inputs: int, outputs: int, activation: str = "none") -> Work:
    """With bias. The derivative of an activation takes its output, or input, once more."""
    x, w, b, y = B * rows * inputs, B * inputs * outputs, B * outputs, B * rows * outputs
    seen = y if activation != "none" else 0
    flops = 4 * x * outputs + y + _ACTIVATION[activation][1] * y
    forward = linear_forward(B, rows, inputs, outputs, activation)
    return forward.plus(flops, _FLOAT * (y + seen + 2 * x + 2 * w + b))


def low_rank(B: int, rows: int, width: int, rank: int, itemsize: int) -> Work:
    """Forward and backward of y + x A B, all of one width: six products, and y, x → out; grad, x → dx."""
    return Work(12 * B * rows * width * rank, B * width * (6 * itemsize * rows + 6 * _FLOAT * rank))


def convolution(
    B: int,
    samples: int,
    inputs: int,
    outputs: int,
    side: int,
    out_side: int,
    kernel: int,
    groups: int = 1,
    bias: bool = False,
) -> Work:
    """Square maps and filters; filters over the border count in full."""
    x, y = B * samples * inputs * side**2, B * samples * outputs * out_side**2
    taps = inputs // groups * kernel**2
    w, b = B * outputs * taps, B * outputs * bias
    return Work(6 * y * taps + 2 * y * bias, _FLOAT * (3 * x + 3 * w + 2 * b + 2 * y))


def batch_norm(B: int, samples: int, channels: int, positions: int, activation: str, add: bool) -> Work:
    """Forward: mean 1, variance 3, scale and shift 2; backward: x̂ 2, sums 3, dx 4. The sum with a residual adds one
    operation, and is read with its activation's derivative."""
    e, c = B * samples * channels * positions, B * channels
    flops = (15 + sum(_ACTIVATION[activation]) + add) * e
    return Work(flops, _FLOAT * ((5 + 3 * add) * e + 9 * c))


def layer_norm(B: int, rows: int, columns: int) -> Work:
    return affine_norm(B * rows * columns, B * columns, B * rows)


def affine_norm(elements: int, features: int, groups: int) -> Work:
    """Groups with a mean and a deviation, scaled and shifted by features: layer norm, group norm."""
    return Work(_LAYER_NORM * elements, _FLOAT * (5 * elements + 5 * features + 4 * groups))


def rms_norm(B: int, rows: int, columns: int) -> Work:
    """Forward: mean of squares 2, scale 2; backward: x̂ 1, sum 3, dx 3, dw 2."""
    e = B * rows * columns
    return Work(_RMS_NORM * e, _FLOAT * (5 * e + 3 * B * columns + 2 * B * rows))


def bias_dropout_add_layer_norm(B: int, rows: int, columns: int) -> Work:
    """Besides layer norm: bias, dropout and residual; their sum's gradient is written twice, and the bias has one."""
    e = B * rows * columns
    return layer_norm(B, rows, columns).plus((2 + 2 * _DROPOUT + 1) * e, _FLOAT * (3 * e + 3 * B * columns))


def dropout(B: int, rows: int, columns: int) -> Work:
    e = B * rows * columns
    return Work(2 * _DROPOUT * e, _FLOAT * 4 * e)


def bias_act_dropout(B: int, rows: int, columns: int, activation: str) -> Work:
    e = B * rows * columns
    flops = (2 + 2 * _DROPOUT + sum(_ACTIVATION[activation])) * e
    return Work(flops, _FLOAT * (5 * e + 3 * B * columns))


def bias_dropout_add(B: int, rows: int, columns: int) -> Work:
    """The residual's gradient is the one that comes in."""
    e = B * rows * columns
    return Work((3 + 2 * _DROPOUT) * e, _FLOAT * (5 * e + 2 * B * columns))


def cross_entropy(B: int, rows: int, classes: int) -> Work:
    """Forward: maximum, difference, exponential, sum; backward: difference, exponential, scale."""
    e = B * rows * classes
    return Work(7 * e, _FLOAT * 3 * e + 2 * _INDEX * B * rows)


def linear_cross_entropy(B: int, rows: int, inputs: int, classes: int) -> Work:
    """The logits need not be in memory."""
    x, w = B * rows * inputs, B * inputs * classes
    return Work(6 * x * classes + 7 * B * rows * classes, _FLOAT * 3 * (x + w) + 2 * _INDEX * B * rows)


def embedding(B: int, vocabulary: int, columns: int, count: int) -> Work:
    """The gradient is dense: all of it is written."""
    e = B * count * columns
    return Work(e, _FLOAT * (3 * e + B * vocabulary * columns) + 2 * _INDEX * B * count)


def attention(B: int, sequences: int, length: int, heads: int, head_dim: int, drop: bool) -> Work:
    """Two products forward, four backward; softmax 5 and 4 for each score."""
    e = B * sequences * length * heads * head_dim
    scores = B * sequences * heads * length**2
    return Work(12 * scores * head_dim + (9 + 2 * _DROPOUT * drop) * scores, _FLOAT * 11 * e)


def max_over(inputs: int, outputs: int) -> Work:
    """The place of each maximum is kept; the gradient is written in full."""
    return Work(inputs, _FLOAT * 2 * (inputs + outputs) + 2 * _INDEX * outputs)


def scaled(numbers: int) -> Work:
    """A product forward, one backward and a sum of products; factors are few."""
    return Work(4 * numbers, _FLOAT * 5 * numbers)


def short_softmax(numbers: int) -> Work:
    """Maximum, difference, exponential, sum and quotient; backward two products, a sum and a difference."""
    return Work(9 * numbers, _FLOAT * 5 * numbers)


def activate(numbers: int) -> Work:
    """Exponentials are one operation; the input is kept for the gradient."""
    return Work(6 * numbers, _FLOAT * 5 * numbers)


def random_numbers(numbers: int) -> Work:
    """Drawing is no operation; each number is scaled, shifted and written once."""
    return Work(2 * numbers, _FLOAT * numbers)


def pool(inputs: int, outputs: int, taps: int) -> Work:
    """A comparison or sum for each pixel of a window, forward and backward."""
    return Work(2 * taps * outputs, _FLOAT * 2 * (inputs + outputs))


def batch_norm_max(B: int, samples: int, channels: int, positions: int) -> Work:
    """Forward: mean 1, variance 3, comparison 1; backward: dx 2. What is of the maxima alone is not counted."""
    e, c = B * samples * channels * positions, B * channels
    maxima = B * samples * channels
    return Work(7 * e, _FLOAT * (3 * e + 2 * maxima + 9 * c) + 2 * _INDEX * maxima)


def recurrence(layer: str, B: int, steps: int, rows: int, inputs: int, hidden: int, backward: bool = True) -> Work:
    """Its products alone, each weight read once a pass."""
    gates = _GATES[layer] * hidden
    x, y = B * steps * rows * inputs, B * steps * rows * hidden
    w = B * gates * (inputs + hidden + 2)
    products = 2 * B * steps * rows * gates * (inputs + hidden)
    forward = Work(products, _FLOAT * (x + w + y))
    return forward.plus(2 * products, _FLOAT * (2 * x + 2 * w + 2 * y)) if backward else forward


def optimizer(kind: str, elements: int) -> Work:
    """A step: reads the gradient, reads and writes parameter and states."""
    return Work(_UPDATE[kind] * elements, _FLOAT * (3 + 2 * _STATES[kind]) * elements)
