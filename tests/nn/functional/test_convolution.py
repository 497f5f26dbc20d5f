# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import stack
from dnnsuite.errors import InvalidArgument
from dnnsuite.nn import functional
from dnnsuite.nn._convolution_ways import grouped
from dnnsuite.nn.functional import convolution


@pytest.mark.parametrize("B", [0, 1, 3])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_each_model_has_its_own_weights(B, dims):
    x, w, b = torch.randn(B, 2, 4, *[5] * dims), torch.randn(B, 6, 4, *[3] * dims), torch.randn(B, 6)
    own, plain = getattr(functional, f"conv{dims}d"), getattr(torch.nn.functional, f"conv{dims}d")
    y = own(x, w, bias=b, padding=1, stride=2)
    assert y.shape == (B, 2, 6, *[3] * dims)
    for index in range(B):
        expected = plain(x[index], w[index], b[index], padding=1, stride=2)
        torch.testing.assert_close(y[index], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("side", "kernel", "rest"),
    [
        (5, 1, {"stride": 2}),
        (40, 1, {}),  # more pixels than a product is for
        (1, 3, {"padding": 1}),
        (1, 5, {"padding": 4, "dilation": 2, "stride": 7}),
        (1, 3, {"padding": 2}),  # of one pixel to nine
        (2, 3, {"padding": 1}),
        (3, 3, {"padding": 1, "stride": 2}),
        (4, 4, {"stride": 2}),  # filters of the whole map
    ],
)
@pytest.mark.parametrize("last", [False, True])
def test_products_in_disguise(side, kernel, rest, last):
    x = torch.randn(3, 2, 6, side, side)
    x = (x.movedim(2, -1).contiguous().movedim(-1, 2) if last else x).requires_grad_()
    weight = torch.randn(3, 5, 6, kernel, kernel, requires_grad=True)
    y = functional.conv2d(x, weight, **rest)
    truth = torch.stack([torch.nn.functional.conv2d(a, w, **rest) for a, w in zip(x, weight, strict=True)])
    grad = torch.randn_like(truth)
    got, wanted = (torch.autograd.grad(z, (x, weight), grad) for z in (y, truth))
    for a, b in zip((y, *got), (truth, *wanted), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("sides", [(16,), (5, 7)])
def test_contiguous_images_by_fewer_filters_of_one_tap_are_not_copied(sides, shared, has_bias):
    dims, B = len(sides), 3
    x = torch.randn(1 if shared else B, 4, 20, *sides).double().requires_grad_()
    weight = torch.randn(B, 6, 20, *[1] * dims).double().requires_grad_()
    bias = torch.randn(B, 6).double().requires_grad_() if has_bias else None
    images = x.expand(B, *x.shape[1:])
    y = getattr(functional, f"conv{dims}d")(images, weight, bias)
    plain = getattr(torch.nn.functional, f"conv{dims}d")
    biases = [None] * B if bias is None else bias
    truth = torch.stack([plain(*one) for one in zip(images, weight, biases, strict=True)])
    leaves = (x, weight, *[bias] * has_bias)
    got, wanted = (torch.autograd.grad(z.cos().sum(), leaves) for z in (y, truth))
    torch.testing.assert_close((y, *got), (truth, *wanted))
    assert y.is_contiguous()


@pytest.mark.parametrize("groups", [1, 4])
def test_sixteen_bits(groups):
    x, weight = torch.randn(2, 3, 4, 1, 1), torch.randn(2, 4, 4 // groups, 3, 3)
    rest = {"padding": 1, "groups": groups}
    expected = functional.conv2d(x, weight, **rest)
    y = functional.conv2d(x.bfloat16(), weight.bfloat16(), **rest)
    with torch.autocast("cpu", torch.bfloat16):
        under = functional.conv2d(x, weight, **rest)
    assert y.dtype == under.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), expected, rtol=3e-2, atol=3e-2)
    torch.testing.assert_close(under.float(), expected, rtol=3e-2, atol=3e-2)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("name", ["conv1d", "conv2d", "conv3d"])
@pytest.mark.parametrize(("kernel", "padding"), [(3, "same"), (3, "valid"), (2, "same")])
@pytest.mark.parametrize("dilation", [1, 2])
def test_padding_by_name(name, kernel, padding, dilation):
    dims = int(name[-2])
    x, weight = torch.randn(2, 3, 4, *[7] * dims), torch.randn(2, 5, 4, *[kernel] * dims)
    y = getattr(functional, name)(x, weight, padding=padding, dilation=dilation)
    plain = getattr(torch.nn.functional, name)
    truth = [plain(a, w, padding=padding, dilation=dilation) for a, w in zip(x, weight, strict=True)]
    torch.testing.assert_close(y, torch.stack(truth), rtol=1e-4, atol=1e-5)


def test_channels_stay_last_in_memory():
    x = torch.randn(3, 2, 5, 5, 4).movedim(-1, 2)
    y = functional.conv2d(x, torch.randn(3, 6, 4, 3, 3))
    assert y.movedim(2, -1).is_contiguous()


@pytest.mark.parametrize("images", [1, 2])
def test_dimensions_of_one_with_strides_of_their_own(images):
    """As `torch.stack` gives them; torch's gradient of a weight in groups is wrong with them, channels last."""
    x = torch.randn(3, images, 10, 9, 1, dtype=torch.float64)
    odd = [7 if size == 1 else s for size, s in zip(x.shape, convolution.channels_last(x).stride(), strict=True)]
    same = convolution.channels_last(x).as_strided(x.shape, odd)
    assert torch.equal(same, x)
    weight = convolution.channels_last(torch.randn(3, 8, 5, 3, 1, dtype=torch.float64)).requires_grad_()
    y = functional.conv2d(same, weight, None, 1, 0, 1, 2)
    factors = torch.randn_like(y)
    (found,) = torch.autograd.grad(y, weight, factors)
    for model in range(3):
        own = weight[model].detach().contiguous().requires_grad_()
        alone = torch.nn.functional.conv2d(x[model].contiguous(), own, None, 1, 0, 1, 2)
        (expected,) = torch.autograd.grad(alone, own, factors[model].contiguous())
        torch.testing.assert_close(found[model], expected)


def test_a_shared_batch():
    x, w = torch.randn(2, 4, 5, 5), torch.randn(3, 6, 4, 3, 3)
    y = functional.conv2d(stack(x, 3), w)
    torch.testing.assert_close(y[2], torch.nn.functional.conv2d(x, w[2]), rtol=1e-5, atol=1e-5)


def test_refuses_what_does_not_fit():
    x = torch.randn(2, 3, 4, 5, 5)
    with pytest.raises(InvalidArgument, match="weight"):
        functional.conv2d(x, torch.randn(3, 6, 4, 3, 3))
    with pytest.raises(InvalidArgument, match="bias"):
        functional.conv2d(x, torch.randn(2, 6, 4, 3, 3), torch.randn(6))
    with pytest.raises(InvalidArgument, match=r"\[B, N, C, L\]"):
        functional.conv_transpose1d(x, torch.randn(2, 4, 6, 3))


@pytest.mark.parametrize("name", ["conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d"])
@pytest.mark.parametrize("groups", [1, 2])
def test_one_convolution_in_groups_is_each_models(name, groups):
    """What a GPU runs."""
    transposed, dims = "transpose" in name, int(name[-2])
    x = torch.randn(3, 2, 4, *[5] * dims, requires_grad=True)
    shape = (4, 6 // groups) if transposed else (6, 4 // groups)
    weight, bias = (torch.randn(3, *shape, *[3] * dims, requires_grad=True), torch.randn(3, 6, requires_grad=True))
    rest = (2, 1, 1, groups, 1) if transposed else (2, 1, 1, groups)
    plain = getattr(torch.nn.functional, name)
    y = grouped(plain, x, weight, bias, *rest)
    truth = torch.stack([plain(*own, *rest) for own in zip(x, weight, bias, strict=True)])
    grad = torch.randn_like(truth)
    got, wanted = (torch.autograd.grad(z, (x, weight, bias), grad) for z in (y, truth))
    for a, b in zip((y, *got), (truth, *wanted), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_images_are_put_channels_last_once():
    x = torch.randn(3, 2, 4, 5, 5)
    last = convolution.channels_last(x)
    assert torch.equal(last, x)
    assert last[0].is_contiguous(memory_format=torch.channels_last)
    assert convolution.channels_last(last).data_ptr() == last.data_ptr()
    shared = convolution.channels_last(stack(x[0], 8))
    assert shared.stride(0) == 0
    assert torch.equal(shared[5], x[0])
    assert functional.conv2d(x, torch.randn(3, 6, 4, 3, 3))[1].is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("name", ["conv1d", "conv_transpose1d"])
@pytest.mark.parametrize("rest", [{}, {"stride": (2,), "padding": 1, "dilation": 2}, {"groups": 2}])
def test_lines_are_images_of_one_row(name, rest):
    x = torch.randn(2, 3, 4, 9, requires_grad=True)
    shape = (6, 4) if name == "conv1d" else (4, 6)
    weight = torch.randn(2, shape[0], shape[1] // rest.get("groups", 1), 3, requires_grad=True)
    bias = torch.randn(2, 6)
    y = getattr(functional, name)(x, weight, bias, **rest)
    plain = getattr(torch.nn.functional, name)
    truth = torch.stack([plain(x[i], weight[i], bias[i], **rest) for i in range(2)])
    grad = torch.randn_like(truth)
    got, wanted = (torch.autograd.grad(z, (x, weight), grad) for z in (y, truth))
    for a, b in zip((y, *got), (truth, *wanted), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_an_activation_in_place_behind_a_convolution_of_one_model():
    x, weight = torch.randn(1, 2, 3, 5, 5), torch.randn(1, 4, 3, 3, 3, requires_grad=True)
    y = functional.conv2d(x, weight)
    torch.nn.functional.leaky_relu(y, 0.3, inplace=True).sum().backward()
    mine, weight.grad = weight.grad, None
    torch.nn.functional.leaky_relu(torch.nn.functional.conv2d(x[0], weight[0]), 0.3).sum().backward()
    torch.testing.assert_close(mine, weight.grad)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("channels", "kernel", "groups"), [(1, 3, 1), (8, 1, 4)])
def test_layouts_of_their_own_without_a_gradient_of_the_input(shared, channels, kernel, groups):
    x = torch.randn(3, 2, channels, 9, 8, dtype=torch.float64)
    x = stack(x[0], 3) if shared else x
    weight = torch.randn(3, channels, channels // groups, kernel, kernel, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(3, channels, dtype=torch.float64, requires_grad=True)
    rest = (1, kernel // 2, 1, groups)
    y = functional.conv2d(x, weight, bias, *rest)
    own = zip(x, weight, bias, strict=True)
    truth = torch.stack([torch.nn.functional.conv2d(*one, *rest) for one in own])
    torch.testing.assert_close(y, truth)
    grad = torch.randn_like(truth)
    found, wanted = (torch.autograd.grad(t, (weight, bias), grad) for t in (y, truth))
    torch.testing.assert_close(found, wanted)
    with_gradient = functional.conv2d(x.clone().requires_grad_(), weight, bias, *rest)
    torch.testing.assert_close(with_gradient, truth)


@pytest.mark.parametrize(
    ("side", "inputs", "outputs", "stride", "groups", "padding"),
    [(128, 1, 1, 2, 1, 0), (64, 1, 16, (1, 2), 1, "valid"), (112, 8, 64, (2, 1), 1, 0), (64, 8, 8, 3, 4, 0)],
)
@pytest.mark.parametrize("shared", [False, True])
def test_filters_of_one_tap_with_a_stride(shared, side, inputs, outputs, stride, groups, padding):
    # Channels last, oneDNN writes past its memory in such gradients: they are wrong, or the process ends.
    B, rest = 2, {"stride": stride, "groups": groups, "padding": padding}
    one = torch.randn(8, inputs, side, side)
    images = stack(one, B) if shared else torch.randn(B, 8, inputs, side, side, requires_grad=True)
    weight = torch.randn(B, outputs, inputs // groups, 1, 1, requires_grad=True)
    leaves = (weight,) if shared else (images, weight)
    y = functional.conv2d(images, weight, **rest)
    truth = torch.stack(
        [torch.nn.functional.conv2d(x, w, **rest) for x, w in zip(images.double(), weight.double(), strict=True)]
    )
    grad = torch.randn_like(truth)
    got, wanted = torch.autograd.grad(y, leaves, grad.float()), torch.autograd.grad(truth, leaves, grad)
    for a, b in zip((y, *got), (truth, *wanted), strict=True):
        torch.testing.assert_close(a, b.to(a), rtol=1e-4, atol=1e-2)  # sums of 50,000 numbers


GROUPED = {
    "conv2d": ((4, 16, 5, 5), (4 * 8, 16, 3, 3), {"padding": 1}),
    "conv2d, one tap": ((4, 16, 5, 5), (4 * 3, 16, 1, 1), {"stride": 2}),
    "conv2d, a name": ((4, 16, 5, 5), (4 * 3, 16, 1, 1), {"padding": "same"}),
    "conv1d": ((4, 16, 7), (4 * 5, 16, 1), {}),
    "conv_transpose2d": ((4, 16, 5, 5), (4 * 16, 8, 3, 3), {"stride": 2, "output_padding": 1}),
    "conv_transpose2d, few": ((4, 3, 5, 5), (4 * 3, 2, 3, 3), {"padding": 1}),
    "conv2d, many": ((4, 16, 24, 24), (4 * 16, 16, 3, 3), {"padding": 1}),
}


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("name", GROUPED)
def test_samples_with_weights_of_their_own(name, has_bias, turned):
    """One sample of each model, whose groups are samples that have weights each, as in a StyleGAN2."""
    (groups, *shape), filters, rest = GROUPED[name]
    B, function = 3, name.partition(",")[0]
    x = torch.randn(B, 1, groups * shape[0], *shape[1:])
    x = (x.movedim(2, -1).contiguous().movedim(-1, 2) if turned else x).requires_grad_()
    weight = torch.randn(B, *filters).requires_grad_()
    outputs = filters[1] * groups if "transpose" in name else filters[0]
    bias = torch.randn(B, outputs).requires_grad_() if has_bias else None
    given = (x, weight, bias)[: 2 + has_bias]
    own, plain = getattr(functional, function), getattr(torch.nn.functional, function)
    y = own(*given, groups=groups, **rest)
    truth = torch.stack([plain(*one, groups=groups, **rest) for one in zip(*given, strict=True)])
    grad = torch.randn_like(truth)
    got, wanted = (torch.autograd.grad(z, given, grad) for z in (y, truth))
    for a, b in zip((y, *got), (truth, *wanted), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    alone = own(*(one[:1] for one in given), groups=groups, **rest)
    assert torch.equal(y[:1], alone)
    with pytest.raises(RuntimeError):
        own(x[:, :, 1:], weight, groups=groups, **rest)


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("shared", [False, True])
def test_images_of_depthwise_filters_are_laid_out_once(dims, shared):
    B, N, C, sides = 4, 2, 32, (24,) * dims
    x = stack(torch.randn(N, C, *sides), B) if shared else torch.randn(B, N, C, *sides)
    weight = torch.randn(B, C, 1, *(3,) * dims).requires_grad_()
    convolve = getattr(functional, f"conv{dims}d")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        y = convolve(x, weight, None, 1, 1, 1, C)
        grad = torch.autograd.grad(y, weight, torch.ones_like(y))[0]
    plain = getattr(torch.nn.functional, convolve.__name__)
    truth = torch.stack([plain(*one, None, 1, 1, 1, C) for one in zip(x, weight, strict=True)])
    torch.testing.assert_close(y, truth, rtol=1e-4, atol=1e-5)
    wanted = torch.autograd.grad(truth, weight, torch.ones_like(truth))[0]
    torch.testing.assert_close(grad, wanted, rtol=1e-4, atol=1e-4)
    copies = [torch.Size(e.input_shapes[0]) for e in profile.events() if e.name == "aten::copy_"]
    large = [shape.numel() for shape in copies if shape.numel() >= x[0].numel()]
    assert large == [x[0].numel() if shared else x.numel()]


def test_a_batch_that_models_share_is_laid_out_once_for_transposed_filters():
    B, shape = 3, (4, 16, 12, 12)
    x, weight = stack(torch.randn(shape), B), torch.randn(B, 16, 4, 3, 3).requires_grad_()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        y = functional.conv_transpose2d(x, weight, None, 2, 1)
    truth = torch.stack([torch.nn.functional.conv_transpose2d(*one, None, 2, 1) for one in zip(x, weight, strict=True)])
    torch.testing.assert_close(y, truth, rtol=1e-4, atol=1e-4)
    first = next(e.input_shapes for e in profile.events() if e.name == "aten::copy_")
    assert torch.Size(first[0]).numel() == x[0].numel()
