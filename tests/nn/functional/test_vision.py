# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite.errors import InvalidArgument
from dnnsuite.nn import functional

F = torch.nn.functional
X = torch.linspace(-1, 1, 2 * 3 * 4 * 6 * 6).view(2, 3, 4, 6, 6)
CALLS = {
    "interpolate": ((), {"scale_factor": 2, "mode": "bilinear"}),
    "upsample": ((), {"size": (3, 3)}),
    "upsample_nearest": ((2 * 6,), {}),
    "upsample_bilinear": ((2 * 6,), {}),
    "pixel_shuffle": ((2,), {}),
    "pixel_unshuffle": ((3,), {}),
    "channel_shuffle": ((2,), {}),
    "unfold": ((3,), {"padding": 1}),
    "pad": (((1, 2, 0, 1),), {"mode": "reflect"}),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore:.*nn.functional.upsample")
def test_what_torch_does_to_each_model(name):
    arguments, keywords = CALLS[name]
    expected = getattr(F, name)(X[1], *arguments, **keywords)
    assert torch.equal(getattr(functional, name)(X, *arguments, **keywords)[1], expected)


def test_fold_undoes_unfold():
    columns = functional.unfold(X, 2, stride=2)
    assert torch.equal(functional.fold(columns, (6, 6), 2, stride=2), X)


def test_grids():
    theta = torch.randn(2, 3, 2, 3)
    grid = functional.affine_grid(theta, (3, 4, 5, 5), align_corners=False)
    assert torch.equal(grid[1], F.affine_grid(theta[1], [3, 4, 5, 5], align_corners=False))
    got = functional.grid_sample(X, grid, align_corners=False)
    torch.testing.assert_close(got[1], F.grid_sample(X[1], grid[1], align_corners=False))
    with pytest.raises(InvalidArgument, match="affine_grid"):
        functional.affine_grid(theta, (2, 4, 5, 5))


def test_padding_never_reaches_the_model():
    with pytest.raises(InvalidArgument, match="the model"):
        functional.pad(torch.randn(2, 3), (0, 0, 1, 1))
    with pytest.raises(InvalidArgument, match="interpolate"):
        functional.interpolate(torch.randn(2, 3, 4), 2)


def last(*shape):
    return torch.randn(*shape[:2], *shape[3:], shape[2]).movedim(-1, 2)


@pytest.mark.parametrize(
    "function",
    [
        lambda module, x: module.pad(x, (1, 2, 0, 3), value=0.5),
        lambda module, x: module.pad(x, (0, 0, -1, 1, 2, 0)),
        lambda module, x: module.pad(x, (1, 1)),
        lambda module, x: module.pad(x, (1, 1, 1, 1), mode="reflect"),
        lambda module, x: module.pixel_shuffle(module.pixel_unshuffle(x, 2), 2),
        lambda module, x: module.pixel_unshuffle(x, 2),
        lambda module, x: module.interpolate(x, scale_factor=2),
    ],
)
@pytest.mark.parametrize("how", ["last", "contiguous", "strided", "shared"])
@pytest.mark.parametrize("B", [1, 3])
def test_layouts(function, how, B):
    shape = (B, 2, 4, 6, 8)
    x = last(*shape) if how in ("last", "shared") else torch.randn(shape)
    x = torch.randn(*shape[:-1], 16)[..., ::2] if how == "strided" else x
    x = x[:1].expand(shape) if how == "shared" else x
    x.requires_grad_()
    y = function(functional, x)
    truth = torch.stack([function(F, one) for one in x.unbind(0)])
    torch.testing.assert_close(y, truth)
    if how == "last":
        assert y.movedim(2, -1).is_contiguous()
    if how != "shared":
        grad = torch.randn_like(truth)
        torch.testing.assert_close(*(torch.autograd.grad(t, x, grad) for t in (y, truth)))


def test_padding_of_nothing():
    assert functional.pad(last(2, 0, 3, 4, 4), (1, 1, 1, 1)).shape == (2, 0, 3, 6, 6)
    assert functional.pixel_shuffle(last(2, 0, 4, 3, 3), 2).shape == (2, 0, 1, 6, 6)
    assert functional.pixel_shuffle(torch.randn(2, 4, 3, 3), 2).shape == (2, 1, 6, 6)
