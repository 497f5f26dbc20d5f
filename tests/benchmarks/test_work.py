# SPDX-License-Identifier: MIT
"""Operations and bytes of operators against counts by hand and torch's own counter; the roof they stand under."""

import pytest
import torch
import work
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

B, N, I, O = 2, 3, 5, 7  # noqa: E741


def counted(call):
    """FLOPs of products in a forward and a backward pass, by torch."""
    with FlopCounterMode(display=False) as counter:
        call().sum().backward()
    return counter.get_total_flops()


def leaves(*shapes):
    return [torch.randn(*shape, requires_grad=True) for shape in shapes]


def test_linear():
    x, w = leaves((N, I), (O, I))
    found = work.linear(B, N, I, O)
    sums_of_the_bias = 2 * B * N * O
    assert found.flops == B * counted(lambda: F.linear(x, w)) + sums_of_the_bias
    # x, w, b → y; then g, x, w → dx, dw, db
    assert found.bytes == 4 * B * ((N * I + O * I + O + N * O) + (N * O + N * I + O * I + N * I + O * I + O))
    relu = work.linear(B, N, I, O, "relu")
    assert relu.flops - found.flops == 2 * B * N * O
    assert relu.bytes - found.bytes == 4 * B * N * O


def test_low_rank():
    x, a, b = leaves((N, I), (2, I), (I, 2))
    found = work.low_rank(B, N, I, 2, 4)
    assert found.flops == B * counted(lambda: F.linear(F.linear(x, a), b))
    # y, x, a, b → out; then g, x, a, b → dx, da, db
    assert found.bytes == 4 * B * (6 * N * I + 6 * 2 * I)


def test_linear_forward():
    assert work.linear_forward(1, 2, 3, 4) == (2 * 2 * 3 * 4 + 2 * 4, 4 * (6 + 12 + 4 + 8))


@pytest.mark.parametrize(("groups", "bias"), [(1, False), (4, True)])
def test_convolution(groups, bias):
    x, w = leaves((N, 4, 6, 6), (8, 4 // groups, 3, 3))
    y = F.conv2d(x, w, stride=2, padding=1, groups=groups)
    found = work.convolution(B, N, 4, 8, 6, y.size(-1), 3, groups, bias)
    products = 3 * 2 * y.numel() * w[0].numel()
    assert found.flops == B * (products + 2 * bias * y.numel())
    assert found.bytes == 4 * B * (3 * x.numel() + 3 * w.numel() + 2 * y.numel() + 2 * 8 * bias)
    if groups == 1:  # torch counts the gradient of a grouped weight as that of a full one
        assert products == counted(lambda: F.conv2d(x, w, stride=2, padding=1))


def test_norms():
    e, c = B * N * 10, B * 10
    assert work.layer_norm(B, N, 10) == (21 * e, 4 * (2 * e + 3 * e + 5 * c + 4 * B * N))
    assert work.layer_norm(B, N, 10) == work.affine_norm(e, c, B * N)
    assert work.rms_norm(B, N, 10) == (13 * e, 4 * (5 * e + 3 * c + 2 * B * N))
    assert work.batch_norm(B, N, 10, 1, "none", False) == (15 * e, 4 * (5 * e + 9 * c))
    assert work.batch_norm(B, N, 10, 1, "relu", True) == (18 * e, 4 * (8 * e + 9 * c))
    fused = work.bias_dropout_add_layer_norm(B, N, 10)
    assert fused == (28 * e, 4 * (8 * e + 8 * c + 4 * B * N))


def test_pointwise():
    e, c = B * N * 10, B * 10
    assert work.dropout(B, N, 10) == (4 * e, 4 * 4 * e)
    assert work.bias_act_dropout(B, N, 10, "relu") == (8 * e, 4 * (5 * e + 3 * c))
    assert work.bias_dropout_add(B, N, 10) == (7 * e, 4 * (5 * e + 2 * c))


def test_losses_and_tables():
    assert work.cross_entropy(1, 2, 10) == (7 * 20, 4 * 60 + 2 * 8 * 2)
    assert work.linear_cross_entropy(1, 2, 3, 10) == (6 * 60 + 140, 4 * 3 * (6 + 30) + 32)
    assert work.embedding(1, 100, 4, 5) == (20, 4 * (60 + 400) + 80)
    assert work.pool(64, 16, 4) == (128, 4 * 2 * 80)
    assert work.max_over(60, 6) == (60, 4 * 2 * 66 + 96)
    assert work.scaled(60) == (240, 4 * 5 * 60)
    assert work.short_softmax(60) == (540, 4 * 5 * 60)
    assert work.activate(60) == (360, 4 * 5 * 60)
    assert work.random_numbers(60) == (120, 4 * 60)
    e, c, maxima = 2 * 3 * 5 * 7, 2 * 5, 2 * 3 * 5
    assert work.batch_norm_max(2, 3, 5, 7) == (7 * e, 4 * (3 * e + 2 * maxima + 9 * c) + 16 * maxima)


def test_attention():
    q, k, v = leaves(*[(N, 2, 6, 4)] * 3)
    products = counted(lambda: (q @ k.transpose(2, 3)).softmax(-1) @ v)
    scores, e = N * 2 * 6 * 6, N * 6 * 2 * 4
    assert work.attention(1, N, 6, 2, 4, False) == (products + 9 * scores, 4 * 11 * e)
    assert work.attention(1, N, 6, 2, 4, True).flops == products + 13 * scores


@pytest.mark.parametrize(("layer", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_recurrence(layer, gates):
    forward = work.recurrence(layer, B, 2, 3, 5, 7, backward=False)
    weights = gates * 7 * (5 + 7) + 2 * gates * 7
    assert forward.flops == 2 * B * 2 * 3 * gates * 7 * (5 + 7)
    assert forward.bytes == 4 * B * (2 * 3 * 5 + 2 * 3 * 7 + weights)
    assert work.recurrence(layer, B, 2, 3, 5, 7) == (3 * forward.flops, 3 * forward.bytes)


def test_optimizer():
    assert work.optimizer("SGD", 10) == (40, 4 * 50)
    assert work.optimizer("Adam", 10) == (130, 4 * 70)
    assert work.optimizer("Adam", 10).plus(flops=30, bytes=40) == (160, 320)


@pytest.mark.parametrize(
    ("flops", "size", "precision", "expected"),
    [
        (1000.0, 100.0, "fp32", (10.0, "compute")),
        (1000.0, 100.0, "bf16", (2.5, "compute")),
        (10.0, 500.0, "fp32", (10.0, "L1")),
        (10.0, 5000.0, "fp32", (500.0, "memory")),
    ],
)
def test_roof_is_the_lower_of_the_two(flops, size, precision, expected, peaks):
    found = work.roof(work.Work(flops, size), peaks, precision)
    assert found == expected
    bandwidth = peaks.bytes_per_s[peaks.level_of(size)]
    assert flops / found.seconds == pytest.approx(min(peaks.flops_per_s[precision], bandwidth * flops / size))
