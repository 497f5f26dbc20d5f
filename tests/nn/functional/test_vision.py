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
