# SPDX-License-Identifier: MIT
"""FLOPs against numbers worked out by hand, against torch's own counter, and against counted loops."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from dnnsuite import ops
from dnnsuite.ops.library import library
from dnnsuite.profiler.flops import knows, work


class Counter(TorchDispatchMode):
    """Sum of the formulas over the operators that run."""

    flops = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        given = [*args, *(kwargs or {}).values()]
        shapes = [tuple(each.shape) if isinstance(each, torch.Tensor) else () for each in given]
        values = [None if isinstance(each, torch.Tensor) else each for each in given]
        name = func.name().partition(".")[0]
        self.flops += work(name, shapes, values).flops if knows(name) else 0
        return func(*args, **(kwargs or {}))


def counted(function):
    with Counter() as counter:
        function()
    return counter.flops


def by_torch(function):
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


def test_products():
    assert work("aten::mm", [(32, 128), (128, 64)], [None, None]) == (2 * 32 * 128 * 64, ((32, 64),))
    assert work("aten::addmm", [(64,), (32, 128), (128, 64), (), ()], [None] * 5).flops == 524_288
    assert work("aten::bmm", [(8, 2, 3), (8, 3, 5)], [None] * 2) == (2 * 8 * 2 * 3 * 5, ((8, 2, 5),))
    assert work("aten::mv", [(3, 7), (7,)], [None] * 2) == (42, ((3,),))
    assert work("aten::dot", [(7,), (7,)], [None] * 2) == (14, ((),))


def test_a_convolution_of_resnet():
    """ResNet-50's first: 3 to 64 channels, 7 x 7, stride 2: 118 million multiply-adds an image."""
    found = work(
        "aten::convolution",
        [(1, 3, 224, 224), (64, 3, 7, 7), ()] + [()] * 6,
        [None, None, None, [2, 2], [3, 3], [1, 1], False, [0, 0], 1],
    )
    assert found == (2 * 118_013_952, ((1, 64, 112, 112),))


def test_attention():
    """12 heads of 64, 128 tokens: two products of 128 x 128 x 64 for each head."""
    one = 2 * 12 * 128 * 128 * 64
    assert (
        work("aten::_scaled_dot_product_flash_attention_for_cpu", [(1, 12, 128, 64)] * 3, [None] * 3).flops == 2 * one
    )
    qkv = (2, 4, 128, 3 * 768)  # two models, batch 4
    assert work("dnnsuite::attention", [qkv], [None]) == (2 * 4 * 2 * one, ((2, 4, 128, 768),))
    assert work("dnnsuite::attention_backward", [(2, 4, 128, 768), qkv], [None]).flops == 5 * one * 8


def test_pixel_products():
    """Two models, three samples, 5 x 4 times 4 x 7."""
    found = work("dnnsuite::pixel_products", [(2, 3, 4, 7), (2, 5, 4), (2, 5)], [None] * 3)
    assert found == (2 * 2 * 3 * 5 * 4 * 7, ((2, 3, 5, 7),))


def test_sum_of_products():
    """Four products of 3 x 5 x 7 for each of two models."""
    found = work("dnnsuite::sum_of_products", [(2, 4, 3, 5), (2, 4, 5, 7)], [None] * 2)
    assert found == (2 * 4 * 2 * 3 * 5 * 7, ((2, 3, 7),))


def test_low_rank():
    """Two models of ranks 3 and 1, with 4 rows of 5 inputs and 7 outputs each; and with 4 rows and 1."""
    of_rows = [None] * 5, [None, None]
    forward = [(2, 4, 7), (2, 4, 5), (2, 3, 5), (2, 7, 3), (2,)]
    assert work("dnnsuite::low_rank", forward, [*of_rows[0], [3, 1], [], *of_rows[1]]).flops == 2 * 4 * 4 * 12
    ragged = [(5, 7), (5, 5), *forward[2:]]
    assert work("dnnsuite::low_rank", ragged, [*of_rows[0], [3, 1], [4, 1], *of_rows[1]]).flops == 2 * 13 * 12
    for needs_x, products in ((True, 24), (False, 19)):
        given = [*of_rows[0], None, [3, 1], [4, 1], *of_rows[1], needs_x]
        assert work("dnnsuite::low_rank_backward", [*ragged, (5, 3)], given).flops == 2 * 13 * products


def test_an_operator_without_a_formula_and_arguments_that_do_not_fit():
    assert work("aten::relu", [(3, 4)], [None]) is None
    assert not knows("aten::relu")
    assert work("aten::mm", [(3,)], [None]) is None
    assert work("aten::convolution", [(1, 3, 4, 4), (8, 3, 3, 3)], [None, None]) is None


sizes = st.integers(1, 4)


@settings(max_examples=40)
@given(
    st.sampled_from([1, 2, 3]),
    sizes,
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(0, 2),
    st.integers(1, 2),
    st.sampled_from([1, 2]),
    st.booleans(),
)
def test_convolutions_are_those_of_torch(dims, channels, kernel, stride, padding, dilation, groups, transposed):
    if transposed and kernel * dilation <= padding * 2:
        padding = 0
    c = channels * groups
    name = f"Conv{'Transpose' if transposed else ''}{dims}d"
    layer = getattr(torch.nn, name)(c, 2 * groups, kernel, stride, padding, dilation=dilation, groups=groups)
    x = torch.randn(2, c, *[7] * dims)
    out = layer(x)
    assert counted(lambda: layer(x)) == by_torch(lambda: layer(x))
    found = work(
        "aten::convolution",
        [x.shape, layer.weight.shape, layer.bias.shape, *[()] * 6],
        [None] * 3 + [[stride], [padding], [dilation], transposed, [0], groups],
    )
    assert found.outputs == (tuple(out.shape),)


def test_gradients_of_a_convolution_are_twice_its_work_in_groups_too():
    for groups in (1, 4):
        layer = torch.nn.Conv2d(8, 8, 3, groups=groups)
        x = torch.randn(2, 8, 9, 9, requires_grad=True)
        out = layer(x)
        forward = counted(lambda layer=layer, x=x: layer(x))
        assert counted(lambda out=out: out.sum().backward()) == 2 * forward
    assert by_torch(lambda: layer(x).sum().backward()) > 3 * forward  # torch's own counts every group for each


@given(sizes, sizes, sizes, sizes)
def test_products_grow_with_each_of_their_sizes(b, m, k, n):
    def flops(*dims):
        return work("aten::bmm", [dims[:3], (dims[0], dims[2], dims[3])], [None] * 2).flops

    for i in range(4):
        doubled = [b, m, k, n]
        doubled[i] *= 2
        assert flops(*doubled) == 2 * flops(b, m, k, n)


def test_a_layer_of_an_array_counts_as_its_models_do():
    x, weight, bias = torch.randn(3, 32, 16), torch.randn(3, 8, 16), torch.randn(3, 8)
    assert counted(lambda: torch.ops.dnnsuite.linear(x, weight, bias, True)) == 3 * by_torch(
        lambda: torch.nn.functional.linear(x[0], weight[0], bias[0])
    )


def test_gradients_of_a_layer_of_an_array_are_twice_its_work():
    x = torch.randn(3, 32, 16, requires_grad=True)
    weight = torch.randn(3, 8, 16, requires_grad=True)
    y = ops.linear(x, weight)
    assert counted(lambda: y.sum().backward()) == 2 * (2 * 3 * 32 * 16 * 8)


def test_a_depthwise_convolution_counts_as_torchs_grouped_one():
    x, weight = torch.randn(2, 3, 9, 9, 4), torch.randn(2, 3, 3, 4)
    mine = work("dnnsuite::depthwise", [x.shape, weight.shape, ()], [None] * 3 + [2, 2, 1, 1, 1, 1])
    conv = torch.nn.Conv2d(4, 4, 3, stride=2, padding=1, groups=4)
    assert mine.flops == 2 * by_torch(lambda: conv(torch.randn(3, 4, 9, 9)))
    assert mine.outputs == ((2, 3, 5, 5, 4),)
    gradient = work("dnnsuite::depthwise_backward_input", [mine.outputs[0], weight.shape], [None, None, 9, 9])
    assert gradient == (mine.flops, ((2, 3, 9, 9, 4),))
    gradient = work("dnnsuite::depthwise_backward_weight", [mine.outputs[0], x.shape], [None, None, 3, 3])
    assert gradient == (mine.flops, ((2, 10, 4),))


def test_a_recurrence_counts_its_steps_products():
    gates, weight = (2, 5, 3, 4 * 7), (2, 28, 7)
    step = 2 * 3 * 28 * 7  # [3, 7] times [7, 28]
    assert work("dnnsuite::recurrence", [gates, weight], [None] * 2).flops == 2 * 5 * step
    shapes = [(), (), (), weight, (), (), (), (2, 5, 3, 7)]
    assert work("dnnsuite::recurrence_backward", shapes, [None] * 8).flops == 2 * 5 * step


def test_the_lstm_of_torch_on_a_cpu():
    lstm = torch.nn.LSTM(6, 5)
    x = torch.randn(4, 3, 6)
    with torch.no_grad():
        assert counted(lambda: lstm(x)) == 2 * 4 * 3 * 20 * (6 + 5)
    bias, state = torch.zeros(20), torch.zeros(1, 3, 5)
    shapes = [t.shape for t in (x, lstm.weight_ih_l0, lstm.weight_hh_l0, bias, bias, state)]
    backward = work("aten::mkldnn_rnn_layer_backward", shapes, [None] * 6)
    assert backward.flops == 2 * 2 * 4 * 3 * 20 * (6 + 5)
    assert backward.outputs[:3] == ((4, 3, 6), (20, 6), (20, 5))


def test_pools_and_losses_have_their_outputs_and_no_flops():
    """The shapes are those that the operators themselves give, without data."""
    x = torch.empty(2, 3, 9, 8, 5, device="meta")
    logits, target = torch.empty(2, 6, 7, device="meta"), torch.empty(2, 6, dtype=torch.int64, device="meta")
    windows = [3, 2, 2, 2, 1, 1]
    pooled, taps = library.max_pool(x, *windows, 1, 1, True, False)
    mean = library.avg_pool(x, *windows, False, True, 0)
    losses, log_sum = library.cross_entropy(logits, target, -100, 0.0, "none")
    calls = [
        ("max_pool", (x, *windows, 1, 1, True, False), pooled),
        ("max_pool_backward", (pooled, taps, 9, 8, *windows, 1, 1), x),
        ("avg_pool", (x, *windows, False, True, 0), mean),
        ("avg_pool_backward", (mean, 9, 8, *windows, True, 0), x),
        ("cross_entropy", (logits, target, -100, 0.0, "none"), losses),
        ("cross_entropy_backward", (losses, logits, target, log_sum, -100, 0.0, "none"), logits),
    ]
    for name, arguments, result in calls:
        shapes = [tuple(a.shape) if isinstance(a, torch.Tensor) else () for a in arguments]
        values = [None if isinstance(a, torch.Tensor) else a for a in arguments]
        assert work(f"dnnsuite::{name}", shapes, values) == (0, (tuple(result.shape),)), name
