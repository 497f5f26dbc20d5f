# SPDX-License-Identifier: MIT
"""Convolutions in Triton against torch's of float64, model by model: on a GPU, or here in Triton's interpreter.

    TRITON_INTERPRET=1 python tests/support/triton_cases.py

is how the interpreter runs: what imports Triton before the variable is set would not be interpreted.
"""

import torch
from torch.nn import functional as F

from dnnsuite.nn import _triton_convolution as in_triton
from dnnsuite.nn._convolution_ways import convolution_ways

# Function, images [B, N, C, *], filters of one model, and what torch takes after the bias.
CASES = {
    "stem": (F.conv2d, (2, 3, 3, 7, 6), (6, 3, 5, 3), (2, (2, 1), 1, 1)),
    "3x3": (F.conv2d, (2, 2, 20, 5, 4), (17, 20, 3, 3), (1, 1, 1, 1)),
    "strides": (F.conv2d, (2, 2, 33, 9, 8), (17, 33, 3, 2), ((2, 3), (2, 0), (2, 1), 1)),
    "even groups": (F.conv2d, (2, 2, 64, 5, 4), (32, 32, 3, 1), (2, (1, 0), 1, 2)),
    "small groups": (F.conv2d, (2, 3, 8, 6, 5), (12, 2, 3, 3), (1, 1, 1, 4)),
    "1x1": (F.conv2d, (2, 2, 40, 5, 6), (70, 40, 1, 1), (1, 0, 1, 1)),
    "1x1 strided": (F.conv2d, (2, 2, 24, 5, 6), (16, 24, 1, 1), (2, 0, 1, 1)),
    "a filter of the whole map": (F.conv2d, (2, 5, 16, 4, 4), (3, 16, 4, 4), (1, 0, 1, 1)),
    "steps over pixels": (F.conv2d, (2, 2, 4, 9, 9), (4, 4, 2, 2), (4, 1, 3, 1)),
    "maps of one pixel": (F.conv2d, (2, 3, 16, 1, 1), (16, 16, 3, 5), (1, (1, 2), 1, 1)),
    "no pixel reached": (F.conv2d, (2, 2, 16, 1, 1), (5, 16, 2, 2), (1, 1, 2, 1)),
    "far taps": (F.conv2d, (2, 2, 4, 2, 3), (4, 4, 3, 4), (2, (5, 4), (2, 1), 1)),
    "one model": (F.conv2d, (1, 2, 16, 6, 5), (9, 16, 3, 3), (1, 1, 1, 1)),
    "transposed": (F.conv_transpose2d, (2, 2, 20, 3, 4), (20, 18, 4, 4), (2, 1, 0, 1, 1)),
    "transposed, few": (F.conv_transpose2d, (2, 2, 4, 4, 3), (4, 3, 3, 3), (3, 1, (2, 1), 1, 2)),
    "transposed, groups": (F.conv_transpose2d, (2, 2, 8, 4, 3), (8, 3, 3, 2), (2, 1, 1, 2, 1)),
    "transposed, small": (F.conv_transpose2d, (2, 2, 16, 1, 1), (16, 4, 4, 3), (1, (1, 1), 0, 1, 1)),
    "line": (F.conv1d, (2, 3, 18, 19), (5, 18, 3), (1, 1, 2, 1)),
    "line, groups": (F.conv1d, (2, 3, 18, 11), (6, 9, 3), ((2,), (1,), (2,), 2)),
    "transposed line": (F.conv_transpose1d, (2, 3, 18, 7), (18, 5, 3), (2, 1, 1, 1, 1)),
}
BOUNDS = {torch.float32: 1e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3}


def tensors(case, dtype, device="cpu", bias=True):
    torch.manual_seed(0)
    plain, shape, filters, rest = CASES[case]
    outputs = filters[1] * rest[3] if plain.__name__.startswith("conv_transpose") else filters[0]
    shapes = [shape, (shape[0], *filters), (shape[0], outputs)]
    made = [torch.randn(s).to(device, dtype).requires_grad_() for s in shapes[: 3 if bias else 2]]
    return plain, [*made, *([] if bias else [None])], rest


def truth(plain, inputs, rest):
    """Torch's of float64, with leaves of its own."""
    leaves = [t if t is None else t.detach().double().requires_grad_(t.requires_grad) for t in inputs]
    y = torch.stack([plain(*(t if t is None else t[b] for t in leaves), *rest) for b in range(len(inputs[0]))])
    return y, [t for t in leaves if t is not None and t.requires_grad]


def close(found, expected, bound, what):
    assert found.shape == expected.shape, (what, found.shape, expected.shape)
    if found.numel():
        error = ((found.double() - expected).abs().max() / expected.abs().max().clamp(min=1e-30)).item()
        assert error < bound, (what, error)


def check(case, dtype, device="cpu", bound=None, change=lambda x: x, bias=True, filters=lambda w: w):
    """Values and gradients; `change` gives the images another form, `filters` those."""
    plain, inputs, rest = tensors(case, dtype, device, bias)
    inputs[0] = change(inputs[0].detach())
    inputs[1] = filters(inputs[1].detach()).requires_grad_()
    leaves = [t for t in inputs if t is not None and t.requires_grad]
    y = convolution_ways(plain, *inputs, *rest)["triton"](*inputs)
    assert y.dtype == dtype
    assert y.movedim(2, -1).is_contiguous()
    expected, others = truth(plain, inputs, rest)
    weights = torch.randn_like(expected).to(dtype)
    bound = bound or BOUNDS[dtype]
    close(y, expected, bound, case)
    found = torch.autograd.grad(y, leaves, weights)
    wanted = torch.autograd.grad(expected, others, weights.double())
    assert found[-2 if bias else -1].stride() == inputs[1].stride()
    for one, other in zip(found, wanted, strict=True):
        close(one, other, bound, case)


def own(x):
    return x.requires_grad_()


def last(x):
    return x.movedim(2, -1).contiguous().movedim(-1, 2)


def check_layouts(device="cpu", bound=None):
    """Images in any memory order, ones that all models share, ones without a gradient, and none."""
    forms = {
        "channels last": lambda x: own(last(x)),
        "in turn": lambda x: own(x.permute(1, 3, 4, 0, 2).contiguous().permute(3, 0, 4, 1, 2)),
        "every other": lambda x: own(x.repeat_interleave(2, 2)[:, :, ::2]),
        "shared": lambda x: x[:1].expand_as(x),
        "none": lambda x: own(x[:, :0]),
    }
    for change in forms.values():
        check("even groups" if device == "cuda" else "1x1 strided", torch.float32, device, bound, change)
    check("far taps", torch.float32, device, bound, forms["shared"], bias=False)
    for case in ("small groups", "maps of one pixel"):
        check(case, torch.float32, device, bound, filters=last)


def check_in_place():
    """Code that goes on in place, as torchvision's and DCGAN's, trains as any other."""
    for case in ("transposed, small", "line"):
        plain, inputs, rest = tensors(case, torch.float32)
        found = []
        for activate in (F.leaky_relu, F.leaky_relu_):
            y = activate(convolution_ways(plain, *inputs, *rest)["triton"](*inputs), 0.2)
            found.append(torch.autograd.grad(y.square().sum(), inputs))
        assert all(map(torch.equal, *found)), case


def check_tiles(device="cpu", bound=None):
    """Each tile that may be measured is right, and the same bits come again however the sum is split."""
    for case in ("even groups", "transposed, small"):
        plain, (x, w, _), rest = tensors(case, torch.float32, device)
        transposed = plain is F.conv_transpose2d
        x, w = x.detach().clone().requires_grad_(False), w.detach()
        y, (filters,) = truth(plain, (x, w.requires_grad_(), None), rest)
        w = w.detach()
        stride, padding, dilation, groups = (*rest[:2], *((rest[4], rest[3]) if transposed else rest[2:4]))
        pair = [(s, s) if isinstance(s, int) else s for s in (stride, padding, dilation)]
        geometry = [*sum(pair, ()), groups, *y.shape[3:]]
        for tile in [*in_triton.tiles(x, w, geometry, transposed), *([32, 32, 16, 4, 4, how] for how in (0, 1, 2))]:
            found = torch.ops.dnnsuite.triton_convolution(x, w, None, geometry, transposed, "tf32x3", tile)
            close(found, y, bound or 1e-6, (case, tile))
        if transposed:
            continue
        dy = torch.randn_like(y).float()
        (expected,) = torch.autograd.grad(y, filters, dy.double())
        images = x, dy
        for tile in [*in_triton.gradient_tiles(*images, w, geometry), [64, 64, 32, 2, 3, 0], [32, 64, 16, 4, 2, 2]]:
            found = torch.ops.dnnsuite.triton_filter_gradient(*images, w, geometry, "tf32x3", tile)
            close(found, expected, bound or 1e-6, (case, tile))
        again = torch.ops.dnnsuite.triton_filter_gradient(*images, w, geometry, "tf32x3", tile)
        assert torch.equal(found, again)


def check_gradients_of_gradients(device="cpu", bound=1e-6):
    for case in ("far taps", "transposed, small"):
        plain, inputs, rest = tensors(case, torch.float32, device)

        def penalty(y, leaves):
            first = torch.autograd.grad(y.square().sum(), leaves, create_graph=True)
            return torch.autograd.grad(sum(g.square().sum() for g in first), leaves)

        y = convolution_ways(plain, *inputs, *rest)["triton"](*inputs)
        expected, others = truth(plain, inputs, rest)
        for one, other in zip(penalty(y, inputs), penalty(expected, others), strict=True):
            close(one, other, 10 * bound, case)


def check_autocast(device="cpu"):
    plain, inputs, rest = tensors("1x1 strided", torch.float32, device)
    with torch.autocast(device, dtype=torch.bfloat16):
        y = convolution_ways(plain, *inputs, *rest)["triton"](*inputs)
    assert y.dtype == torch.bfloat16
    expected, others = truth(plain, inputs, rest)
    weights = torch.randn_like(expected)
    close(y, expected, 2e-2, "autocast")
    found = torch.autograd.grad(y, inputs, weights.bfloat16())
    for one, other in zip(found, torch.autograd.grad(expected, others, weights), strict=True):
        assert one.dtype == torch.float32
        close(one, other, 2e-2, "autocast")


def check_all(names, *dtypes):
    for case in names:
        for dtype in dtypes:
            check(case, dtype)


def main():
    torch.set_num_threads(1)
    check_all(CASES, torch.float32)
    check_all(("stem", "1x1 strided"), torch.bfloat16, torch.float16)
    check_layouts()
    check_gradients_of_gradients()
    check_autocast()
    check_in_place()
    check_tiles()


if __name__ == "__main__":
    main()
