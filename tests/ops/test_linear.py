# SPDX-License-Identifier: MIT
import pytest
import torch
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from dnnsuite import ops
from dnnsuite.errors import InvalidArgument
from dnnsuite.ops import _linear
from dnnsuite.ops.device import cpu_for_gpu


@pytest.mark.parametrize("B", [1, 3])
def test_any_rows(B):
    """[B, I], [B, N, I], [B, N, L, I], also views that are not contiguous."""
    weight, bias = torch.randn(B, 4, 6), torch.randn(B, 4)
    for shape in ((B, 6), (B, 5, 6), (B, 5, 2, 6)):
        x = torch.randn(*shape[:-1], 12)[..., ::2]
        y = ops.linear(x, weight, bias)
        assert y.shape == (*shape[:-1], 4)
        for model in range(B):
            expected = torch.nn.functional.linear(x[model], weight[model], bias[model])
            torch.testing.assert_close(y[model], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("x", "bias", "message"),
    [
        ((2, 5, 7), None, r"B = 2 and I = 6 as in weight \[2, 4, 6\], not \[2, 5, 7\]"),
        ((3, 5, 6), None, r"not \[3, 5, 6\]"),
        ((6,), None, r"not \[6\]"),
        ((2, 5, 6), (4,), r"bias must be \[2, 4\], not \[4\]"),
    ],
)
def test_bad_arguments(x, bias, message):
    with pytest.raises(InvalidArgument, match=message):
        ops.linear(torch.ones(x), torch.ones(2, 4, 6), None if bias is None else torch.ones(bias))


ACTIVATIONS = {"none": lambda x: x, "relu": torch.relu, "gelu": torch.nn.functional.gelu}


def parts(inputs, call):
    """The result and the gradients, for a fixed gradient of the result."""
    leaves = [t.detach().requires_grad_() for t in inputs if t is not None]
    left = iter(leaves)
    y = call(*(None if t is None else next(left) for t in inputs))
    grad = torch.cos(torch.arange(y[0].numel())).view_as(y[0]).expand_as(y)
    return [y.detach(), *torch.autograd.grad(y, leaves, grad)]


@pytest.mark.parametrize("bias", [False, True])
def test_large_products_are_the_same_alone(bias, monkeypatch):
    """Products by the library: right, twice differentiable, and to the bit what a model alone gets."""
    inputs = (torch.randn(3, 33, 64), torch.randn(3, 48, 64), torch.randn(3, 48) if bias else None)
    own = parts(inputs, ops.linear)
    monkeypatch.setattr(_linear, "LARGE", 0)
    library = parts(inputs, ops.linear)
    for a, b in zip(own, library, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    alone = parts([None if t is None else t[1:2] for t in inputs], ops.linear)
    for a, b in zip(alone[:2], library, strict=False):
        assert torch.equal(a[0], b[1])
    small = [torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5)]
    leaves = [t.double().requires_grad_() for t in small]
    assert torch.autograd.gradgradcheck(lambda *t: ops.linear(*t).sin(), leaves, fast_mode=True)


@pytest.mark.parametrize("rows", [1, 130])
def test_the_gradient_of_a_wide_bias(rows, monkeypatch):
    """A vocabulary's: sums over rows, also of a gradient that is one number expanded, and to the bit those alone."""
    monkeypatch.setattr(_linear, "LARGE", 0)
    columns = _linear.WIDE + 3
    inputs = (torch.randn(2, rows, 16), torch.randn(2, columns, 16), torch.randn(2, columns))
    got, alone = (parts([t[:n] for t in inputs], ops.linear) for n in (2, 1))
    expected = parts([t.double() for t in inputs], _linear.linear_composition)
    torch.testing.assert_close(got[3].double(), expected[3], rtol=1e-4, atol=1e-4)
    assert torch.equal(alone[3][0], got[3][0])
    leaf = inputs[2].clone().requires_grad_()
    ops.linear(*inputs[:2], leaf).sum().backward()
    assert (leaf.grad == rows).all()


@pytest.mark.parametrize("activation", ["none", "relu", "gelu"])
@pytest.mark.parametrize(
    "shape",
    [
        (32, 64, 128),
        (33, 30, 10),
        (8, 64, 40),
        (1, 33, 7),
        (5, 300, 70),
        (20, 520, 3),
        (300, 520, 130),
        (40, 1, 70),
        (300, 1, 64),
        (70, 50, 1),
        (1, 90, 200),
        (0, 4, 5),
        (3, 0, 5),
        (200, 3, 64),  # the weight's gradient is turned
        (2100, 3, 70),  # one model after the other through the whole backward pass
        (300, 1, 2100),  # lines of a long matrix, more than a task of them
        (9, 1000, 1000),  # the library's
    ],
)
def test_every_shape(shape, activation):
    """Whole tiles, parts of them, dot products, several pieces of the depth: forward and backward."""
    rows, inputs, outputs = shape
    given = (torch.randn(2, rows, inputs), torch.randn(2, outputs, inputs), torch.randn(2, outputs))
    got = parts(given, lambda *t: ops.linear(*t, activation))
    double = [t.double() for t in given]
    expected = parts(double, lambda *t: ACTIVATIONS[activation](_linear.linear_composition(*t)))
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(2100, 3, 70), (300, 1, 2100), (9, 1000, 1000)])
def test_a_model_alone_has_the_bits_that_it_has_among_others(shape):
    rows, inputs, outputs = shape
    given = (torch.randn(3, rows, inputs), torch.randn(3, outputs, inputs), torch.randn(3, outputs))
    together = parts(given, lambda *t: ops.linear(*t, "relu"))
    for model in range(3):
        alone = parts([t[model : model + 1] for t in given], lambda *t: ops.linear(*t, "relu"))
        for a, b in zip(together, alone, strict=True):
            assert torch.equal(a[model], b[0])


@pytest.mark.parametrize("shape", [(32, 64, 128), (33, 30, 10), (4, 64, 40)])
def test_a_shared_input_is_not_copied_and_changes_no_bits(shape):
    rows, inputs, outputs = shape
    x, weight, bias = torch.randn(rows, inputs), torch.randn(3, outputs, inputs), torch.randn(3, outputs)
    shared = parts((x, weight, bias), lambda x, w, b: ops.linear(x.expand(3, rows, inputs), w, b, "relu"))
    copied = parts((x.repeat(3, 1, 1), weight, bias), lambda x, w, b: ops.linear(x, w, b, "relu"))
    assert torch.equal(shared[0], copied[0])
    torch.testing.assert_close(shared[1], copied[1].sum(0))
    for a, b in zip(shared[2:], copied[2:], strict=True):
        assert torch.equal(a, b)


def test_only_what_is_asked_for():
    x, weight = torch.randn(2, 3, 4), torch.randn(2, 5, 4, requires_grad=True)
    y = ops.linear(x, weight, torch.randn(2, 5), "relu")
    (gradient,) = torch.autograd.grad(y.sum(), weight)
    assert gradient.shape == weight.shape
    assert not ops.linear(x, weight.detach()).requires_grad


def test_tensors_on_two_devices_are_refused():
    with pytest.raises(InvalidArgument, match="x is on meta and weight on cpu"):
        ops.linear(torch.empty(2, 3, 4, device="meta"), torch.randn(2, 5, 4), torch.randn(2, 5))


def test_an_unknown_activation_is_refused():
    with pytest.raises(InvalidArgument, match="'tanh'"):
        ops.linear(torch.ones(1, 2, 3), torch.ones(1, 4, 3), None, "tanh")


LOW = {"autocast": None, "asked for": torch.bfloat16}


@pytest.mark.parametrize("how", LOW)
@pytest.mark.parametrize("activation", ["none", "relu", "gelu"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shared", [True, False])
def test_rounded_products_are_torchs_with_float32_parameters(how, activation, bias, shared):
    x = torch.randn(1, 7, 12).expand(3, 7, 12) if shared else torch.randn(3, 7, 12)
    leaves = [x.detach().clone().requires_grad_(), torch.randn(3, 5, 12).requires_grad_()]
    leaves += [torch.randn(3, 5).requires_grad_()] if bias else []
    with torch.autocast("cpu", torch.bfloat16, enabled=how == "autocast"):
        y = ops.linear(x if shared else leaves[0], leaves[1], leaves[2] if bias else None, activation, LOW[how])
    assert y.dtype == torch.bfloat16
    rounded = [leaf.detach().bfloat16().float().requires_grad_() for leaf in leaves]
    expected = rounded[0] @ rounded[1].mT + (rounded[2].unsqueeze(1) if bias else 0.0)
    expected = {"none": lambda v: v, "relu": torch.relu, "gelu": F.gelu}[activation](expected)
    torch.testing.assert_close(y.float(), expected, rtol=0.02, atol=0.02)
    clear = expected.abs() > 0.05  # rounding may carry the others over ReLU's edge
    grad = torch.randn_like(expected) * clear
    y.backward(grad.bfloat16())
    expected.backward(grad)
    for mine, theirs in list(zip(leaves, rounded, strict=True))[shared:]:
        assert mine.grad.dtype == torch.float32
        assert mine.grad.is_contiguous()
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=0.05, atol=0.1)


def test_rounded_products_can_be_differentiated_twice():
    x, weight = torch.randn(2, 3, 4, requires_grad=True), torch.randn(2, 5, 4, requires_grad=True)
    y = ops.linear(x, weight, dtype=torch.bfloat16).float()
    (dx,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    dx.square().sum().backward()
    exact = x.detach().requires_grad_(), weight.detach().requires_grad_()
    (dx,) = torch.autograd.grad(ops.linear(*exact).square().sum(), exact[0], create_graph=True)
    dx.square().sum().backward()
    torch.testing.assert_close(weight.grad, exact[1].grad, rtol=0.1, atol=0.1 * float(exact[1].grad.abs().max()))


@pytest.mark.parametrize(("inputs", "outputs"), [(48, 3), (8, 768)])  # the latter shows it on a CPU with AVX2 only
def test_zeros_at_the_end_change_no_bit_of_a_rounded_product_in_order(inputs, outputs):
    x = torch.randn(2, 200, inputs, requires_grad=True)
    weight = torch.randn(2, outputs, inputs, requires_grad=True)
    of_inputs = inputs < outputs
    more = F.pad(weight, (0, 30) if of_inputs else (0, 0, 0, 30))
    with torch.autocast("cpu", torch.bfloat16):
        y = ops.linear(x, weight, in_order=True)
        wide = ops.linear(F.pad(x, (0, 30)) if of_inputs else x, more, in_order=True)[..., :outputs]
        assert y.dtype == torch.bfloat16
        assert torch.equal(wide, y)
        torch.testing.assert_close(y, ops.linear(x, weight), rtol=0.01, atol=0.05)
    grads = [torch.autograd.grad(found.float().square().sum(), [x, weight]) for found in (y, wide)]
    assert all(map(torch.equal, *grads))


def test_sixteen_bits_without_autocast_and_doubles_under_it():
    x, weight, bias = torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5)
    y = ops.linear(x.bfloat16(), weight.bfloat16(), bias.bfloat16(), "relu")
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), ops.linear(x, weight, bias, "relu"), rtol=0.05, atol=0.05)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ops.linear(x.double(), weight.double()).dtype == torch.float64


def test_a_dtype_of_the_product_is_taken_under_torch_func():
    x, weight = torch.randn(4, 2, 3, 5), torch.randn(2, 6, 5)
    mapped = torch.func.vmap(lambda x: ops.linear(x, weight, dtype=torch.bfloat16))(x)
    torch.testing.assert_close(mapped.float(), torch.einsum("abri,boi->abro", x, weight), rtol=0.05, atol=0.05)


def test_maps_over_a_batch():
    """Under torch.func the composition is called."""
    x, weight = torch.randn(4, 2, 3, 5), torch.randn(2, 6, 5)
    mapped = torch.func.vmap(lambda x: ops.linear(x, weight))(x)
    torch.testing.assert_close(mapped[1], ops.linear(x[1], weight))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("activation", ["none", "relu"])
def test_products_of_a_gpu(shared, activation):
    """Results, gradients where the parameters lie, and gradients of gradients; on a CPU that stands in for a GPU."""
    x = torch.randn(5, 6, dtype=torch.float64).expand(3, 5, 6) if shared else torch.randn(3, 5, 6).double()
    weight, bias = torch.randn(3, 4, 6).double().requires_grad_(), torch.randn(3, 4).double().requires_grad_()
    x = x.detach().requires_grad_()
    expected = parts([x, weight, bias], lambda *t: ops.linear(*t, activation))
    with cpu_for_gpu():
        found = parts([x, weight, bias], lambda *t: ops.linear(*t, activation))
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other)
        assert torch.autograd.grad(ops.linear(x, weight, bias).sum(), weight)[0].is_contiguous()
        leaves = x.detach().clone(memory_format=torch.contiguous_format).requires_grad_(), weight, bias
        assert torch.autograd.gradgradcheck(lambda *t: ops.linear(*t), leaves, fast_mode=True)


@pytest.mark.parametrize("relu", [False, True])
def test_a_column_times_a_row_larger_than_the_caches(relu):
    """Written past them."""
    x, weight, bias = torch.randn(2, 9000, 1), torch.randn(2, 256, 1), torch.randn(2, 256)
    expected = x * weight.transpose(1, 2) + bias[:, None]
    got = torch.ops.dnnsuite.linear(x, weight, bias, relu)
    torch.testing.assert_close(got, expected.relu() if relu else expected)


@pytest.mark.skipif(ops.instruction_set() == "generic", reason="a processor without AVX2 has other rules")
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 512), (784, 1)])
def test_many_rows_of_one_column_are_one_product_of_all_models(inputs, outputs):
    """The library's, model by model, reads or writes what is long once more: forward and backward, bits of a model
    alone, and values of float64."""
    x, weight = (torch.randn(2, n, inputs, requires_grad=True) for n in (1024, outputs))
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        y = ops.linear(x, weight)
        grads = torch.autograd.grad(y.square().sum(), (x, weight))
    names = {event.key for event in seen.key_averages()}
    assert {"dnnsuite::linear", "dnnsuite::linear_backward"} <= names
    wide = [t.detach().double().requires_grad_() for t in (x, weight)]
    truth = torch.autograd.grad(torch.bmm(wide[0], wide[1].mT).square().sum(), wide)
    alone = [t.detach()[:1].clone().requires_grad_() for t in (x, weight)]
    own = torch.autograd.grad(ops.linear(*alone).square().sum(), alone)
    for found, right, one in zip(grads, truth, own, strict=True):
        torch.testing.assert_close(found, right.float(), rtol=1e-3, atol=1e-2)
        assert torch.equal(found[:1], one)
